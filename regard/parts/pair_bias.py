"""A learned bias on the attention scores of each kind of token pair.

    scores[t, s] = q_t · k_s / √E + b[h, kind of pair (t, s)]          Ying et al. 2021 (Graphormer)

For the atoms of a molecule, the kind is their distance and the bond that joins them. Graphormer has a table of
distances and one of bonds; a bond exists exactly where the distance is 1, so one table is equivalent.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

# The bias depends on the example, but SelfAttention calls score_bias(T, S) with lengths only. The model therefore
# stores the biases of all layers here during a forward. A ContextVar is local to a thread and an async task, so
# concurrent requests do not interfere.
_pair_biases: ContextVar[Tensor] = ContextVar("pair_biases")  # (L,B,H,T,T)


class PairBias(nn.Module):
    """One trained number per pair kind, layer and head; all start at 0."""

    def __init__(self, kinds: int, layers: int, heads: int):
        super().__init__()
        self.layers = layers
        self.weight = nn.Parameter(torch.zeros(kinds, layers * heads))

    def forward(self, pairs: Tensor) -> Tensor:  # (B,T,T)
        return F.embedding(pairs, self.weight).unflatten(-1, (self.layers, -1)).permute(3, 0, 4, 1, 2)  # (L,B,H,T,T)


@contextmanager
def use_pair_biases(biases: Tensor) -> Iterator[None]:
    """Within this context, every LayerPairBias returns its layer of `biases`."""
    token = _pair_biases.set(biases)
    try:
        yield
    finally:
        _pair_biases.reset(token)


class LayerPairBias:
    """The `score_bias` of one layer."""

    def __init__(self, layer: int):
        self.layer = layer

    def __call__(self, T: int, S: int) -> Tensor:
        return _pair_biases.get()[self.layer]  # (B,H,T,S)
