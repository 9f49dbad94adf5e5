"""Positions: attention sees a set, so order has to be added to the tokens.

sinusoidal   p[t, j] = sin(t / 10000^(2j/D)), p[t, D/2 + j] = cos(the same)          Vaswani et al. 2017, section 3.5
learned      p[t] is a row of a matrix                                               Gehring et al. 2017
"""

from __future__ import annotations

import torch
from torch import Tensor, nn


def sinusoids(context: int, dim: int, interleaved: bool = False) -> Tensor:
    """(context, D). All sines then all cosines, or in turn as the paper prints them: the same columns, reordered."""
    if dim % 2:
        raise ValueError(f"sinusoidal positions pair a sine with a cosine: dim must be even, not {dim}")
    time = torch.arange(context, dtype=torch.float64)[:, None]
    angle = time * 10_000.0 ** (-torch.arange(0, dim, 2, dtype=torch.float64) / dim)  # (context, D/2)
    waves = (angle.sin(), angle.cos())
    return (torch.stack(waves, -1).flatten(1) if interleaved else torch.cat(waves, -1)).float()


class Sinusoidal(nn.Module):
    """A fixed table, computed once, not saved: it follows from two numbers."""

    table: Tensor

    def __init__(self, context: int, dim: int, interleaved: bool = False):
        super().__init__()
        self.register_buffer("table", sinusoids(context, dim, interleaved), persistent=False)

    def forward(self, length: int, start: int = 0) -> Tensor:
        return self.table[within(start, length, self.table)]  # (T,D)


class Learned(nn.Module):
    """A trained vector for each position."""

    def __init__(self, context: int, dim: int):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(context, dim) * 0.02)

    def forward(self, length: int, start: int = 0) -> Tensor:
        return self.weight[within(start, length, self.weight)]  # (T,D)


def within(start: int, length: int, table: Tensor) -> slice:
    if start + length > len(table):
        raise ValueError(
            f"{start + length} tokens do not fit this model's context of {len(table)}: shorten or split the text, "
            "or train with a larger --context"
        )
    return slice(start, start + length)
