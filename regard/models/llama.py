"""LLaMA (Touvron et al. 2023): GPT with RoPE, RMSNorm and SwiGLU.

It differs from GPT in rotary positions, RMSNorm, a gated feed-forward, grouped-query attention, no biases, and an
output layer of its own. Mistral and Qwen2 are the same model with other settings.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from regard.parts.attention import SelfAttention
from regard.parts.block import Block, PreNorm
from regard.parts.cache import Cache
from regard.parts.document_mask import Mask
from regard.parts.dropout import Dropout
from regard.parts.feedforward import ACTIVATIONS, SwiGLU
from regard.parts.heads import Body, LMHead
from regard.parts.norms import RMSNorm
from regard.parts.positions import RotaryPositions
from regard.validate import check_config, check_fields


@dataclass(frozen=True)
class LlamaConfig:
    vocab: int  # vocabulary size
    context: int = 256  # maximum tokens per sequence
    dim: int = 128  # model width
    layers: int = 4  # number of blocks
    heads: int = 4  # attention heads per block
    kv_heads: int = 0  # key/value heads (grouped-query attention); 0 = heads
    head_dim: int = 0  # width of a head; 0 = dim / heads
    hidden: int = 344  # hidden width of the feed-forward
    activation: Literal["silu", "gelu", "gelu-tanh", "relu"] = "silu"  # activation of the feed-forward's gate
    biases: Literal["none", "qkv", "attention", "feedforward", "all"] = "none"  # linear layers with a bias
    tie_embeddings: bool = False  # tie the output layer to the token embedding
    dropout: float = 0.0  # dropout probability
    pad: int = -1  # padding id; a negative id counts from the end of the vocabulary
    rope_theta: float = 10_000.0  # base of the rotary frequencies
    rope_factor: float = 1.0  # context extension factor of rotary positions
    rope_original_context: int = 0  # context before the extension (Llama 3 scaling); 0 = linear scaling
    norm_eps: float = 1e-5  # epsilon of the norms, added to the variance

    def __post_init__(self) -> None:
        check_config(self, allow_zero=("kv_heads", "head_dim", "rope_original_context"))
        positive = ("rope_theta", "rope_factor", "norm_eps")
        check_fields(self, **{name: (getattr(self, name) > 0, "above 0") for name in positive})
        object.__setattr__(self, "kv_heads", self.kv_heads or self.heads)
        object.__setattr__(self, "head_dim", self.head_dim or self.dim // self.heads)
        even = f"even: heads ({self.heads}) must divide dim ({self.dim}) into heads of even width"
        check_fields(self, head_dim=(self.head_dim % 2 == 0, even))


SIZES: dict[str, dict[str, int]] = {
    "tiny": {"layers": 4, "dim": 128, "heads": 4, "kv_heads": 2, "hidden": 344},
    "mini": {"layers": 6, "dim": 256, "heads": 4, "kv_heads": 2, "hidden": 688},
    "small": {"layers": 8, "dim": 512, "heads": 8, "kv_heads": 4, "hidden": 1376},
    # Touvron et al. 2023, and Llama 3
    "7b": {"layers": 32, "dim": 4096, "heads": 32, "hidden": 11008, "context": 2048},
    "8b": {
        "layers": 32,
        "dim": 4096,
        "heads": 32,
        "kv_heads": 8,
        "hidden": 14336,
        "context": 8192,
        "rope_theta": 500_000,
    },
}


class Llama(Body):
    def __init__(self, c: LlamaConfig):
        super().__init__(c)

        def residual(inner: nn.Module) -> nn.Module:
            return PreNorm(RMSNorm(c.dim, c.norm_eps), inner, c.dropout)

        self.tokens = nn.Embedding(c.vocab, c.dim)
        self.positions = rotate = RotaryPositions(
            c.head_dim, c.context, c.rope_theta, factor=c.rope_factor, original_context=c.rope_original_context
        )
        self.drop = Dropout(c.dropout)
        with_bias = {"qkv": "qkv", "attention": "qkv out", "feedforward": "mlp", "all": "qkv out mlp"}.get(c.biases, "")
        qkv, out, mlp = (part in with_bias for part in ("qkv", "out", "mlp"))
        self.blocks = nn.ModuleList(
            Block(
                mixer=residual(
                    SelfAttention(c.dim, c.heads, c.kv_heads, c.head_dim, qkv, out, causal=True, rotate=rotate)
                ),
                feedforward=residual(SwiGLU(c.dim, c.hidden, ACTIVATIONS[c.activation], bias=mlp)),
            )
            for _ in range(c.layers)
        )
        self.norm = RMSNorm(c.dim, c.norm_eps)
        for name, weight in self.named_parameters():
            if name.endswith(("out.weight", "down.weight")):  # 2 · layers outputs add up: smaller, as in GPT-2
                nn.init.normal_(weight, std=0.02 / math.sqrt(2 * c.layers))
            elif weight.dim() == 2:
                nn.init.normal_(weight, std=0.02)
            elif name.endswith("bias"):
                nn.init.zeros_(weight)

    def forward(self, ids: Tensor, mask: Mask | None = None, cache: list[Cache] | None = None) -> Tensor:
        x = self.drop(self.tokens(ids))  # (B,T,D)
        for i, block in enumerate(self.blocks):
            x = block(x, mask=mask, cache=cache[i] if cache else None)
        return self.norm(x)

    def caches(self) -> list[Cache]:
        return [Cache() for _ in self.blocks]

    def lm_head(self) -> nn.Module:
        """The token embedding if tied, else a matrix of its own."""
        tokens = self.tokens.weight
        return LMHead(tokens if self.config.tie_embeddings else nn.Parameter(torch.randn_like(tokens) * 0.02))
