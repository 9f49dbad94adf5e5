"""Dropout: in training each number is zero with probability `rate`, and the others grow to keep the mean.

    y = x · keep / (1 - rate)          Srivastava et al. 2014

PyTorch draws a double for every number, on a CPU a fifth of a training step. A byte is enough to decide: the rate is
rounded to the next 1/256, and the growth follows the rounded rate, so that the mean is kept exactly.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class Dropout(nn.Module):
    def __init__(self, rate: float):
        super().__init__()
        if not 0 <= rate < 1:
            raise ValueError(f"dropout must be at least 0 and below 1, not {rate}")
        self.rate = rate

    def forward(self, x: Tensor) -> Tensor:
        if not x.is_cpu:  # elsewhere random numbers are cheap, and the kernel is fused
            return F.dropout(x, self.rate, self.training)
        dropped = min(round(self.rate * 256), 255)
        return _Drop.apply(x, dropped) if self.training and dropped else x

    def extra_repr(self) -> str:
        return str(self.rate)


def random_bytes(like: Tensor) -> Tensor:
    words = torch.empty(-(-like.numel() // 8), dtype=torch.int64, device=like.device)
    return words.random_(-(2**63), None).view(torch.uint8)[: like.numel()].view(like.shape)


class _Drop(torch.autograd.Function):
    """Keeps a byte a number for the way back, not four."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, dropped: int) -> Tensor:
        keep = random_bytes(x) >= dropped
        ctx.save_for_backward(keep)
        ctx.growth = 256 / (256 - dropped)
        return (x * keep).mul_(ctx.growth)

    @staticmethod
    def backward(ctx: Any, *grad: Tensor) -> tuple[Tensor, None]:
        return (grad[0] * ctx.saved_tensors[0]).mul_(ctx.growth), None
