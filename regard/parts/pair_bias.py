"""A learned bias on the attention scores of each kind of token pair.

    scores[t, s] = q_t · k_s / √E + b[h, kind of pair (t, s)]          Ying et al. 2021 (Graphormer)

For the atoms of a molecule, the kind is their distance and the bond that joins them. Graphormer has a table of
distances and one of bonds; a bond exists exactly where the distance is 1, so one table is equivalent.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class PairBias(nn.Module):
    """One trained number per pair kind, layer and head; all start at 0."""

    def __init__(self, kinds: int, layers: int, heads: int):
        super().__init__()
        self.layers = layers
        self.weight = nn.Parameter(torch.zeros(kinds, layers * heads))

    def forward(self, pairs: Tensor) -> Tensor:  # (B,T,T)
        return F.embedding(pairs, self.weight).unflatten(-1, (self.layers, -1)).permute(3, 0, 4, 1, 2)  # (L,B,H,T,T)
