"""Dropout: in training, set each number to zero with probability p and scale the others so that the mean is unchanged.

    y = x · keep / (1 - p)          Srivastava et al. 2014

PyTorch draws a double per number, which on a CPU takes a fifth of a training step. One random byte per number suffices:
p is rounded to a multiple of 1/256, and the scale follows the rounded p, so the mean is exact.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class Dropout(nn.Module):
    def __init__(self, p: float):
        super().__init__()
        if not 0 <= p < 1:
            raise ValueError(f"dropout must be at least 0 and below 1, not {p}")
        self.p = p

    def forward(self, x: Tensor) -> Tensor:
        if not x.is_cpu or torch.compiler.is_compiling():  # there random numbers are cheap and the kernel is fused
            return F.dropout(x, self.p, self.training)
        threshold = min(round(self.p * 256), 255)
        return _DropoutFunction.apply(x, threshold) if self.training and threshold else x

    def extra_repr(self) -> str:
        return str(self.p)


def random_bytes(like: Tensor) -> Tensor:  # uniform uint8
    words = torch.empty(-(-like.numel() // 8), dtype=torch.int64, device=like.device)
    return words.random_(-(2**63), None).view(torch.uint8)[: like.numel()].view(like.shape)


class _DropoutFunction(torch.autograd.Function):
    """Saves one byte per number for the backward pass, not four."""

    scale: float

    @staticmethod
    def forward(ctx: _DropoutFunction, x: Tensor, threshold: int) -> Tensor:
        keep = random_bytes(x) >= threshold
        ctx.save_for_backward(keep)
        ctx.scale = 256 / (256 - threshold)
        return (x * keep).mul_(ctx.scale)

    @staticmethod
    def backward(ctx: _DropoutFunction, *grad: Tensor) -> tuple[Tensor, None]:
        return (grad[0] * ctx.saved_tensors[0]).mul_(ctx.scale), None
