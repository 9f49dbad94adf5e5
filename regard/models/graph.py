"""Graph (Ying et al. 2021, Graphormer): a molecule is a set of atoms, and attention knows how far apart two are.

It differs from BERT in the norm before each part, in tokens that are sums of properties (element, degree, charge ...),
and in having no positions: atoms have no order. Instead each head adds to the score of two atoms a number for the bond
or the distance between them. Without that bias a molecule is a bag of atoms.
"""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass

import torch.nn.functional as F
from torch import Tensor, nn

from regard.parts.attention import SelfAttention
from regard.parts.block import Block
from regard.parts.dropout import Dropout
from regard.parts.feedforward import FeedForward
from regard.parts.norms import LayerNorm
from regard.parts.pairs import OfLayer, PairBias, held
from regard.parts.residual import PreNorm
from regard.validate import check_config


@dataclass(frozen=True)
class GraphConfig:
    properties: int  # different properties of atoms, and none
    pairs: int  # kinds of pairs of atoms: bonds and distances
    dim: int = 64  # width of the residual stream
    layers: int = 4  # blocks
    heads: int = 4  # attention heads in each block
    hidden: int = 192  # inner width of the feed-forward
    dropout: float = 0.1  # share of numbers dropped in training
    bias: bool = True  # tell attention the bonds and distances
    eps: float = 1e-5  # added to the variance in each norm

    def __post_init__(self) -> None:
        check_config(self)


SIZES: dict[str, dict[str, int]] = {
    "nano": {"layers": 4, "dim": 64, "heads": 4, "hidden": 192},
    # Ying et al. 2021
    "slim": {"layers": 12, "dim": 80, "heads": 8, "hidden": 80},
    "base": {"layers": 12, "dim": 768, "heads": 32, "hidden": 768},
}


class Graph(nn.Module):
    def __init__(self, c: GraphConfig):
        super().__init__()
        self.config = c

        def around(inner: nn.Module) -> nn.Module:
            return PreNorm(LayerNorm(c.dim, c.eps), inner, c.dropout)

        self.tokens = nn.Embedding(c.properties, c.dim, padding_idx=0)
        self.pairs = PairBias(c.pairs, c.layers, c.heads) if c.bias else None
        self.drop = Dropout(c.dropout)
        self.blocks = nn.ModuleList(
            Block(
                mixer=around(SelfAttention(c.dim, c.heads, score_bias=OfLayer(i) if c.bias else None)),
                feedforward=around(FeedForward(c.dim, c.hidden, F.gelu)),
            )
            for i in range(c.layers)
        )
        self.norm = LayerNorm(c.dim, c.eps)
        nn.init.normal_(self.tokens.weight[1:], std=0.02)

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """A row of `x` tells of one atom: ids of its properties, then what it is to every atom, (B,T,P+T)."""
        atoms, pairs = x.split((x.size(2) - x.size(1), x.size(1)), -1)
        y = self.drop(self.tokens(atoms).sum(2))  # (B,T,D)
        with nullcontext() if self.pairs is None else held(self.pairs(pairs)):
            for block in self.blocks:
                y = block(y, mask=mask)
        return self.norm(y)
