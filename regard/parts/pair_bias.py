"""Pairs: what two tokens are to each other, as a number that every head adds to their score.

    scores[t, s] = q_t · k_s / √E + b[h, kind of pair (t, s)]          Ying et al. 2021 (Graphormer)

Of the atoms of a molecule, the kind is how far apart two are and which bond joins them. Graphormer has a table for the
distance and one for the bond; a bond is there exactly where the distance is 1, so that one table says the same.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

# A bias hangs on the example, but attention asks for it by lengths alone. So the model makes those of all layers and
# lays them down here for the time of one forward; per thread and task, so that requests side by side do not meet.
_held: ContextVar[Tensor] = ContextVar("biases")  # (L,B,H,T,T)


class PairBias(nn.Module):
    """A trained number for each kind of pair, each layer and each head; all are 0 at first."""

    def __init__(self, kinds: int, layers: int, heads: int):
        super().__init__()
        self.layers = layers
        self.weight = nn.Parameter(torch.zeros(kinds, layers * heads))

    def forward(self, pairs: Tensor) -> Tensor:  # (B,T,T)
        return F.embedding(pairs, self.weight).unflatten(-1, (self.layers, -1)).permute(3, 0, 4, 1, 2)  # (L,B,H,T,T)


@contextmanager
def held(biases: Tensor) -> Iterator[None]:
    """While this lasts, each layer finds its bias."""
    before = _held.set(biases)
    try:
        yield
    finally:
        _held.reset(before)


class LayerPairBias:
    """The bias of one layer, as attention asks for it."""

    def __init__(self, number: int):
        self.number = number

    def __call__(self, T: int, S: int) -> Tensor:
        return _held.get()[self.number]  # (B,H,T,S)
