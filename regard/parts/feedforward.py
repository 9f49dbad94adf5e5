"""Feed-forward networks, applied to every position on its own.

FeedForward   down(relu(up(x)))                  Vaswani et al. 2017, eq. 2; GELU since BERT
SwiGLU        down(silu(gate(x)) · up(x))        Shazeer 2020, LLaMA; another activation gives another GLU variant

ACTIVATIONS by name: those of PyTorch, the tanh approximation of GELU (Hendrycks & Gimpel 2016), relu_squared
max(0, x)² (So et al. 2021), and quick_gelu x · sigmoid(1.702 x) (CLIP).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
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
    def __init__(self, dim: int, hidden: int, activation: Callable[[Tensor], Tensor] = F.silu, *, bias: bool = False):
        super().__init__()
        self.activation = activation
        self.gate = nn.Linear(dim, hidden, bias)
        self.up = nn.Linear(dim, hidden, bias)
        self.down = nn.Linear(hidden, dim, bias)

    def forward(self, x: Tensor) -> Tensor:
        return self.down(self.activation(self.gate(x)) * self.up(x))


def relu_squared(x: Tensor) -> Tensor:
    return _ReLUSquared.apply(x)


class _ReLUSquared(torch.autograd.Function):
    """One pass less than PyTorch's relu and square, forward and backward."""

    @staticmethod
    def forward(ctx: _ReLUSquared, x: Tensor) -> Tensor:
        positive = F.relu(x)
        ctx.save_for_backward(positive)
        return positive * positive

    @staticmethod
    def backward(ctx: _ReLUSquared, *grad: Tensor) -> Tensor:
        return (grad[0] * ctx.saved_tensors[0]).mul_(2)


def quick_gelu(x: Tensor) -> Tensor:
    return x * (1.702 * x).sigmoid()


ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": F.relu,
    "gelu": F.gelu,
    "gelu-tanh": partial(F.gelu, approximate="tanh"),
    "silu": F.silu,
    "quick-gelu": quick_gelu,
    "relu2": relu_squared,
}
