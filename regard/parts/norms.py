"""Normalisation: keeps activations at one scale, whatever the depth.

    LayerNorm   (x - mean) / √(var + eps) · weight + bias, over the features of each token         Ba et al. 2016
    RMSNorm     x / √(mean(x²) + eps) · weight, over the same; without the weight in nanochat      Zhang & Sennrich 2019
    BatchNorm   as LayerNorm, but over all tokens of a batch for each feature                      Ioffe & Szegedy 2015

PyTorch's fused modules compute them, and a test compares them with the formulas. BareRMSNorm, without a weight, is
implemented here: PyTorch takes five passes for it on a CPU, and twice as many in the backward pass.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import LayerNorm, RMSNorm

__all__ = ["BareRMSNorm", "BatchNorm", "LayerNorm", "RMSNorm", "bare_rms_norm"]


class BareRMSNorm(nn.Module):
    def __init__(self, eps: float = 1e-6):
        super().__init__()
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        return bare_rms_norm(x, self.eps)


def bare_rms_norm(x: Tensor, eps: float) -> Tensor:
    return _BareRMSNormFunction.apply(x, eps)


class _BareRMSNormFunction(torch.autograd.Function):
    """y = x s with s = 1 / √(mean(x²) + eps), so the gradient of x is s (g - y mean(g y))."""

    @staticmethod
    def forward(ctx: _BareRMSNormFunction, x: Tensor, eps: float) -> Tensor:
        s = torch.linalg.vector_norm(x, dim=-1, keepdim=True).square_().div_(x.size(-1)).add_(eps).rsqrt_()
        y = x * s
        ctx.save_for_backward(y, s)
        return y

    @staticmethod
    def backward(ctx: Any, *grad: Tensor) -> tuple[Tensor, None]:
        y, s = ctx.saved_tensors
        projection = (grad[0] * y).mean(-1, keepdim=True)
        return torch.addcmul(grad[0], y, projection, value=-1).mul_(s), None


class BatchNorm(nn.BatchNorm1d):
    """For comparison: the output for a token depends on the other tokens of the batch and on padding, and at inference
    on running averages from training."""

    def forward(self, x: Tensor) -> Tensor:  # (B,T,D)
        return super().forward(x.flatten(0, -2)).view_as(x)
