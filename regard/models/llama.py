"""LLaMA (Touvron et al. 2023): GPT with the repairs that had proved themselves by then.

It differs from GPT in rotary positions, RMSNorm, a gated feed-forward, several heads that share a key and value, no
biases, and an output layer of its own. Mistral and Qwen2 are this model too, with other numbers.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from regard.parts.attention import SelfAttention
from regard.parts.block import Block
from regard.parts.cache import Cache
from regard.parts.dropout import Dropout
from regard.parts.feedforward import ACTIVATIONS, SwiGLU
from regard.parts.heads import Output
from regard.parts.norms import RMSNorm
from regard.parts.positions import Rotary
from regard.parts.residual import PreNorm
from regard.validate import check_config, check_fields


@dataclass(frozen=True)
class LlamaConfig:
    vocab: int  # different tokens
    context: int = 256  # most tokens seen at once
    dim: int = 128  # width of the residual stream
    layers: int = 4  # blocks
    heads: int = 4  # attention heads in each block
    kv_heads: int = 0  # heads of keys and values, each shared by several; as many as heads if 0
    head_dim: int = 0  # width of a head; dim / heads if 0
    hidden: int = 344  # inner width of the feed-forward
    activation: Literal["silu", "gelu", "gelu-tanh", "relu"] = "silu"  # of the feed-forward's gate
    biases: Literal["none", "qkv", "attention", "feedforward", "all"] = "none"  # maps that add a vector of their own
    tied: bool = False  # the output layer is the token embedding itself
    dropout: float = 0.0  # share of numbers dropped in training
    pad: int = -1  # id of the padding, counted from the end if negative
    base: float = 10_000.0  # the slowest rotary pair turns once in about 6 times as many tokens
    stretch: float = 1.0  # slow rotary pairs turn so many times slower, to see farther than in training
    trained: int = 0  # context before it was stretched, in which fast pairs come round four times; all are slow if 0
    eps: float = 1e-5  # added to the variance in each norm

    def __post_init__(self) -> None:
        check_config(self, allow_zero=("kv_heads", "head_dim", "trained"))
        check_fields(self, **{name: (getattr(self, name) > 0, "above 0") for name in ("base", "stretch", "eps")})
        object.__setattr__(self, "kv_heads", self.kv_heads or self.heads)
        object.__setattr__(self, "head_dim", self.head_dim or self.dim // self.heads)
        even = f"even: heads ({self.heads}) must divide dim ({self.dim}) into even widths"
        check_fields(self, head_dim=(self.head_dim % 2 == 0, even))


SIZES: dict[str, dict[str, int]] = {
    "tiny": {"layers": 4, "dim": 128, "heads": 4, "kv_heads": 2, "hidden": 344},
    "mini": {"layers": 6, "dim": 256, "heads": 4, "kv_heads": 2, "hidden": 688},
    "small": {"layers": 8, "dim": 512, "heads": 8, "kv_heads": 4, "hidden": 1376},
    # Touvron et al. 2023, and Llama 3
    "7b": {"layers": 32, "dim": 4096, "heads": 32, "hidden": 11008, "context": 2048},
    "8b": {"layers": 32, "dim": 4096, "heads": 32, "kv_heads": 8, "hidden": 14336, "context": 8192, "base": 500_000},
}


class Llama(nn.Module):
    def __init__(self, c: LlamaConfig):
        super().__init__()
        self.config = c

        def around(inner: nn.Module) -> nn.Module:
            return PreNorm(RMSNorm(c.dim, c.eps), inner, c.dropout)

        self.tokens = nn.Embedding(c.vocab, c.dim)
        self.positions = turn = Rotary(c.head_dim, c.context, c.base, stretch=c.stretch, trained=c.trained)
        self.drop = Dropout(c.dropout)
        biased = {"qkv": "qkv", "attention": "qkv out", "feedforward": "mlp", "all": "qkv out mlp"}.get(c.biases, "")
        qkv, out, mlp = (part in biased for part in ("qkv", "out", "mlp"))
        self.blocks = nn.ModuleList(
            Block(
                mixer=around(SelfAttention(c.dim, c.heads, c.kv_heads, c.head_dim, qkv, out, causal=True, rotate=turn)),
                feedforward=around(SwiGLU(c.dim, c.hidden, ACTIVATIONS[c.activation], bias=mlp)),
            )
            for _ in range(c.layers)
        )
        self.norm = RMSNorm(c.dim, c.eps)
        for name, weight in self.named_parameters():
            if name.endswith(("out.weight", "down.weight")):  # so many are added up that the sum would grow
                nn.init.normal_(weight, std=0.02 / math.sqrt(2 * c.layers))
            elif weight.dim() == 2:
                nn.init.normal_(weight, std=0.02)
            elif name.endswith("bias"):
                nn.init.zeros_(weight)

    def forward(self, ids: Tensor, mask: Tensor | None = None, cache: list[Cache] | None = None) -> Tensor:
        x = self.drop(self.tokens(ids))  # (B,T,D)
        for i, block in enumerate(self.blocks):
            x = block(x, mask=mask, cache=cache[i] if cache else None)
        return self.norm(x)

    def caches(self) -> list[Cache]:
        return [Cache() for _ in self.blocks]

    def vocabulary(self) -> nn.Module:
        """The output layer of this family: a matrix of its own."""
        tokens = self.tokens.weight
        return Output(tokens if self.config.tied else nn.Parameter(torch.randn_like(tokens) * 0.02))
