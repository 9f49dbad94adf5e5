"""Nano (Karpathy 2025, nanochat): LLaMA with less in it, for a model that is trained in hours.

It differs from LLaMA in norms without weights, also right after the embedding and on queries and keys, in the squared
ReLU, and in that every block begins by adding nothing.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from regard.parts.attention import SelfAttention
from regard.parts.block import Block
from regard.parts.cache import Cache
from regard.parts.dropout import Dropout
from regard.parts.feedforward import FeedForward, relu_squared
from regard.parts.heads import CappedOutput, Output
from regard.parts.norms import BareRMSNorm
from regard.parts.positions import RotaryThenNorm
from regard.parts.residual import PreNorm
from regard.validate import check_config, check_fields


@dataclass(frozen=True)
class NanoConfig:
    vocab: int  # different tokens
    context: int = 256  # most tokens seen at once
    dim: int = 128  # width of the residual stream
    layers: int = 4  # blocks
    heads: int = 4  # attention heads in each block
    kv_heads: int = 0  # heads of keys and values, each shared by several; as many as heads if 0
    hidden: int = 512  # inner width of the feed-forward
    tied: bool = False  # the output layer is the token embedding itself
    softcap: float = 0.0  # logits are bent to stay within ± this; they are not if 0
    dropout: float = 0.0  # share of numbers dropped in training
    pad: int = -1  # id of the padding, counted from the end if negative
    base: float = 10_000.0  # the slowest rotary pair turns once in about 6 times as many tokens
    eps: float = 1e-6  # added to the variance in each norm

    def __post_init__(self) -> None:
        check_config(self, allow_zero=("kv_heads",))
        check_fields(
            self,
            softcap=(self.softcap >= 0, "0 or more"),
            base=(self.base > 0, "above 0"),
            eps=(self.eps > 0, "above 0"),
        )
        if self.dim % (2 * self.heads):
            raise ValueError(f"heads ({self.heads}) must divide dim ({self.dim}) into even widths")
        object.__setattr__(self, "kv_heads", self.kv_heads or self.heads)


SIZES: dict[str, dict[str, int]] = {
    "tiny": {"layers": 4, "dim": 128, "heads": 4, "hidden": 512},
    "mini": {"layers": 6, "dim": 256, "heads": 4, "hidden": 1024},
    "small": {"layers": 8, "dim": 512, "heads": 8, "hidden": 2048},
    # nanochat's depths: 64 numbers of width for each block, 128 for each head
    "d20": {"layers": 20, "dim": 1280, "heads": 10, "hidden": 5120, "context": 2048},
    "d32": {"layers": 32, "dim": 2048, "heads": 16, "hidden": 8192, "context": 2048},
}


class Nano(nn.Module):
    def __init__(self, c: NanoConfig):
        super().__init__()
        self.config = c

        def around(inner: nn.Module) -> nn.Module:
            return PreNorm(BareRMSNorm(c.eps), inner, c.dropout)

        self.tokens = nn.Embedding(c.vocab, c.dim)
        self.positions = turn = RotaryThenNorm(c.dim // c.heads, c.context, c.base, turn=-1.0, eps=c.eps)
        self.embed_norm = BareRMSNorm(c.eps)
        self.drop = Dropout(c.dropout)
        self.blocks = nn.ModuleList(
            Block(
                mixer=around(SelfAttention(c.dim, c.heads, c.kv_heads, causal=True, bias=False, rotate=turn)),
                feedforward=around(FeedForward(c.dim, c.hidden, relu_squared, bias=False)),
            )
            for _ in range(c.layers)
        )
        self.norm = BareRMSNorm(c.eps)
        for name, weight in self.named_parameters():
            if name.endswith(("out.weight", "down.weight")):  # at first the embedding goes straight to the output
                nn.init.zeros_(weight)
            else:
                nn.init.normal_(weight, std=0.02)

    def forward(self, ids: Tensor, mask: Tensor | None = None, cache: list[Cache] | None = None) -> Tensor:
        x = self.drop(self.embed_norm(self.tokens(ids)))  # (B,T,D)
        for i, block in enumerate(self.blocks):
            x = block(x, mask=mask, cache=cache[i] if cache else None)
        return self.norm(x)

    def caches(self) -> list[Cache]:
        return [Cache() for _ in self.blocks]

    def vocabulary(self) -> nn.Module:
        """The output layer of this family: a matrix of its own."""
        tokens, cap = self.tokens.weight, self.config.softcap
        weight = tokens if self.config.tied else nn.Parameter(torch.randn_like(tokens) * 0.001)
        return CappedOutput(weight, cap) if cap else Output(weight)
