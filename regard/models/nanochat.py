"""nanochat (Karpathy 2025): LLaMA with fewer parameters in its norms, made for short training runs.

It differs from LLaMA in norms without weights, also after the embedding and on queries and keys, in the squared ReLU,
and in blocks that start as the identity.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from regard.parts.attention import SelfAttention
from regard.parts.block import Block, PreNorm
from regard.parts.cache import Cache
from regard.parts.document_mask import Mask
from regard.parts.dropout import Dropout
from regard.parts.feedforward import FeedForward, relu_squared
from regard.parts.heads import Body, LMHead, SoftcapLMHead
from regard.parts.norms import BareRMSNorm
from regard.parts.positions import RotaryQKNorm
from regard.validate import check_config, check_fields


@dataclass(frozen=True)
class NanoChatConfig:
    vocab: int  # vocabulary size
    context: int = 256  # maximum tokens per sequence
    dim: int = 128  # model width
    layers: int = 4  # number of blocks
    heads: int = 4  # attention heads per block
    kv_heads: int = 0  # key/value heads (grouped-query attention); 0 = heads
    hidden: int = 512  # hidden width of the feed-forward
    tie_embeddings: bool = False  # tie the output layer to the token embedding
    softcap: float = 0.0  # bound of the soft-capped logits; 0 = no cap
    dropout: float = 0.0  # dropout probability
    pad: int = -1  # padding id; a negative id counts from the end of the vocabulary
    rope_theta: float = 10_000.0  # base of the rotary frequencies
    norm_eps: float = 1e-6  # epsilon of the norms, added to the variance

    def __post_init__(self) -> None:
        check_config(self, allow_zero=("kv_heads",))
        check_fields(
            self,
            softcap=(self.softcap >= 0, "0 or more"),
            rope_theta=(self.rope_theta > 0, "above 0"),
            norm_eps=(self.norm_eps > 0, "above 0"),
        )
        if self.dim % (2 * self.heads):
            raise ValueError(f"heads ({self.heads}) must divide dim ({self.dim}) into heads of even width")
        object.__setattr__(self, "kv_heads", self.kv_heads or self.heads)


SIZES: dict[str, dict[str, int]] = {
    "tiny": {"layers": 4, "dim": 128, "heads": 4, "hidden": 512},
    "mini": {"layers": 6, "dim": 256, "heads": 4, "hidden": 1024},
    "small": {"layers": 8, "dim": 512, "heads": 8, "hidden": 2048},
    # nanochat's depths: 64 of width per block, 128 per head
    "d20": {"layers": 20, "dim": 1280, "heads": 10, "hidden": 5120, "context": 2048},
    "d32": {"layers": 32, "dim": 2048, "heads": 16, "hidden": 8192, "context": 2048},
}


class NanoChat(Body):
    def __init__(self, c: NanoChatConfig):
        super().__init__(c)

        def residual(inner: nn.Module) -> nn.Module:
            return PreNorm(BareRMSNorm(c.norm_eps), inner, c.dropout)

        self.tokens = nn.Embedding(c.vocab, c.dim)
        self.positions = rotate = RotaryQKNorm(c.dim // c.heads, c.context, c.rope_theta, sign=-1.0, eps=c.norm_eps)
        self.embed_norm = BareRMSNorm(c.norm_eps)
        self.drop = Dropout(c.dropout)
        self.blocks = nn.ModuleList(
            Block(
                mixer=residual(SelfAttention(c.dim, c.heads, c.kv_heads, causal=True, bias=False, rotate=rotate)),
                feedforward=residual(FeedForward(c.dim, c.hidden, relu_squared, bias=False)),
            )
            for _ in range(c.layers)
        )
        self.norm = BareRMSNorm(c.norm_eps)
        for name, weight in self.named_parameters():
            if name.endswith(("out.weight", "down.weight")):  # every block starts as the identity
                nn.init.zeros_(weight)
            else:
                nn.init.normal_(weight, std=0.02)

    def forward(self, ids: Tensor, mask: Mask | None = None, cache: list[Cache] | None = None) -> Tensor:
        x = self.drop(self.embed_norm(self.tokens(ids)))  # (B,T,D)
        for i, block in enumerate(self.blocks):
            x = block(x, mask=mask, cache=cache[i] if cache else None)
        return self.norm(x)

    def caches(self) -> list[Cache]:
        return [Cache() for _ in self.blocks]

    def lm_head(self) -> nn.Module:
        """A matrix of its own, or the tied token embedding; soft-capped if configured."""
        tokens, cap = self.tokens.weight, self.config.softcap
        weight = tokens if self.config.tie_embeddings else nn.Parameter(torch.randn_like(tokens) * 0.001)
        return SoftcapLMHead(weight, cap) if cap else LMHead(weight)
