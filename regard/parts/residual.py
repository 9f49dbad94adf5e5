"""Residual connections: a part adds to what is there, so that a gradient reaches every depth.

PreNorm    x + f(norm(x))          the order of today; nothing ever rescales the residual stream
PostNorm   norm(x + f(x))          the order of 2017, and of BERT
Dense      x, f₁(x), f₂(x, f₁(x)) ...   nothing is added up: each layer sees all before it (Huang et al. 2017)
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn

from regard.parts.dropout import Dropout


class PreNorm(nn.Module):
    def __init__(self, norm: nn.Module, inner: nn.Module, dropout: float = 0.0):
        super().__init__()
        self.norm, self.inner, self.drop = norm, inner, Dropout(dropout)

    def forward(self, x: Tensor, **context: Any) -> Tensor:  # handed on: an unknown name fails in the inner part
        return x + self.drop(self.inner(self.norm(x), **context))


class PostNorm(PreNorm):
    def forward(self, x: Tensor, **context: Any) -> Tensor:
        return self.norm(x + self.drop(self.inner(x, **context)))


class DenseConnections(nn.Module):
    """Layers of which the i-th turns a width of D + i·growth into `growth`; together they turn D into D + n·growth."""

    def __init__(self, layers: Iterable[nn.Module]):
        super().__init__()
        self.layers = nn.ModuleList(layers)

    def forward(self, x: Tensor, **context: Any) -> Tensor:
        for layer in self.layers:
            x = torch.cat((x, layer(x, **context)), -1)
        return x
