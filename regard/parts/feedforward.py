"""Feed-forward: each token thinks alone, in a wider space.

FeedForward   down(relu(up(x)))                  Vaswani et al. 2017, eq. 2; GELU since BERT
SwiGLU        down(silu(gate(x)) · up(x))        Shazeer 2020, LLaMA
"""

from __future__ import annotations

from collections.abc import Callable

import torch.nn.functional as F
from torch import Tensor, nn


class FeedForward(nn.Module):
    def __init__(self, dim: int, hidden: int, activation: Callable[[Tensor], Tensor] = F.relu, *, bias: bool = True):
        super().__init__()
        self.activation = activation
        self.up = nn.Linear(dim, hidden, bias)
        self.down = nn.Linear(hidden, dim, bias)

    def forward(self, x: Tensor) -> Tensor:
        return self.down(self.activation(self.up(x)))


class SwiGLU(nn.Module):
    def __init__(self, dim: int, hidden: int, *, bias: bool = False):
        super().__init__()
        self.gate = nn.Linear(dim, hidden, bias)
        self.up = nn.Linear(dim, hidden, bias)
        self.down = nn.Linear(hidden, dim, bias)

    def forward(self, x: Tensor) -> Tensor:
        return self.down(F.silu(self.gate(x)) * self.up(x))
