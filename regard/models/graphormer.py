"""Graphormer (Ying et al. 2021): an encoder of molecules, with a score bias for bonds and distances.

It differs from BERT in pre-norm, in tokens that are sums of atom features (element, degree, charge ...), and in having
no positions: atoms have no order. Each head adds a learned bias for the bond or distance of two atoms to their score.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch.nn.functional as F
from torch import Tensor, nn

from regard.parts.attention import SelfAttention
from regard.parts.block import Block, PreNorm
from regard.parts.dropout import Dropout
from regard.parts.feedforward import FeedForward
from regard.parts.heads import Body
from regard.parts.norms import LayerNorm
from regard.parts.positions import PairBias
from regard.validate import check_config


@dataclass(frozen=True)
class GraphormerConfig:
    atom_features: int  # number of atom feature ids, padding included
    pair_kinds: int  # number of atom pair kinds: bonds and distances
    dim: int = 64  # model width
    layers: int = 4  # number of blocks
    heads: int = 4  # attention heads per block
    hidden: int = 192  # hidden width of the feed-forward
    dropout: float = 0.1  # dropout probability
    pair_bias: bool = True  # add a bias for bonds and distances to the attention scores
    norm_eps: float = 1e-5  # epsilon of the norms, added to the variance

    def __post_init__(self) -> None:
        check_config(self)


SIZES: dict[str, dict[str, int]] = {
    "nano": {"layers": 4, "dim": 64, "heads": 4, "hidden": 192},
    # Ying et al. 2021
    "slim": {"layers": 12, "dim": 80, "heads": 8, "hidden": 80},
    "base": {"layers": 12, "dim": 768, "heads": 32, "hidden": 768},
}


class Graphormer(Body):
    def __init__(self, c: GraphormerConfig):
        super().__init__(c)

        def residual(inner: nn.Module) -> nn.Module:
            return PreNorm(LayerNorm(c.dim, c.norm_eps), inner, c.dropout)

        self.tokens = nn.Embedding(c.atom_features, c.dim, padding_idx=0)
        self.pair_bias = PairBias(c.pair_kinds, c.layers, c.heads) if c.pair_bias else None
        self.drop = Dropout(c.dropout)
        self.blocks = nn.ModuleList(
            Block(
                mixer=residual(SelfAttention(c.dim, c.heads)),
                feedforward=residual(FeedForward(c.dim, c.hidden, F.gelu)),
            )
            for _ in range(c.layers)
        )
        self.norm = LayerNorm(c.dim, c.norm_eps)
        nn.init.normal_(self.tokens.weight[1:], std=0.02)

    def forward(self, x: Tensor, mask: Tensor | None = None, pairs: Tensor | None = None) -> Tensor:
        """`x` (B,T,P) are the P feature ids of each atom, `pairs` (B,T,T) the kinds of all pairs of atoms."""
        y = self.drop(self.tokens(x).sum(2))  # (B,T,D)
        biases = [None] * len(self.blocks) if self.pair_bias is None else self.pair_bias(pairs)  # (L,B,H,T,T)
        for block, bias in zip(self.blocks, biases, strict=True):
            y = block(y, mask=mask, bias=bias)
        return self.norm(y)
