"""Normalisation, so that depth does not make numbers grow.

    LayerNorm   (x - mean) / √(var + eps) · weight + bias, over the features of each token         Ba et al. 2016
    RMSNorm     x / √(mean(x²) + eps) · weight, over the same; without the weight in nanochat      Zhang & Sennrich 2019
    BatchNorm   as LayerNorm, but over all tokens of a batch for each feature                      Ioffe & Szegedy 2015

The fused modules of PyTorch run; the functions below say what they compute, and a test holds them equal. Only RMSNorm
without a weight is ours: PyTorch makes it of five passes on a CPU, and twice as many on the way back.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import LayerNorm, RMSNorm

__all__ = [
    "BareRMSNorm", "BatchNorm", "LayerNorm", "RMSNorm",
    "bare_rms_norm", "batch_norm_reference", "layer_norm_reference", "rms_norm_reference",
]  # fmt: skip


class BareRMSNorm(nn.Module):
    def __init__(self, eps: float = 1e-6):
        super().__init__()
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        return bare_rms_norm(x, self.eps)


def bare_rms_norm(x: Tensor, eps: float) -> Tensor:
    return _RMS.apply(x, eps)


class _RMS(torch.autograd.Function):
    """y = x s with s = 1 / √(mean(x²) + eps), so the gradient of x is s (g - y mean(g y))."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, eps: float) -> Tensor:
        s = torch.linalg.vector_norm(x, dim=-1, keepdim=True).square_().div_(x.size(-1)).add_(eps).rsqrt_()
        y = x * s
        ctx.save_for_backward(y, s)
        return y

    @staticmethod
    def backward(ctx: Any, *grad: Tensor) -> tuple[Tensor, None]:
        y, s = ctx.saved_tensors
        along = (grad[0] * y).mean(-1, keepdim=True)
        return torch.addcmul(grad[0], y, along, value=-1).mul_(s), None


class BatchNorm(nn.BatchNorm1d):
    """For comparison: a token's vector now depends on its neighbours and on padding, and in use on the averages that
    training left behind. The others replaced it for that reason."""

    def forward(self, x: Tensor) -> Tensor:  # (B,T,D)
        return super().forward(x.flatten(0, -2)).view_as(x)


def layer_norm_reference(x: Tensor, weight: Tensor, bias: Tensor, eps: float = 1e-5) -> Tensor:
    centred = x - x.mean(-1, keepdim=True)
    return centred * (centred.square().mean(-1, keepdim=True) + eps).rsqrt() * weight + bias


def rms_norm_reference(x: Tensor, weight: Tensor | float = 1.0, eps: float = 1e-5) -> Tensor:
    return x * (x.square().mean(-1, keepdim=True) + eps).rsqrt() * weight


def batch_norm_reference(x: Tensor, weight: Tensor, bias: Tensor, eps: float = 1e-5) -> Tensor:
    """As in training; in use the running averages stand for mean and variance."""
    centred = x - x.mean((0, 1))
    return centred * (centred.square().mean((0, 1)) + eps).rsqrt() * weight + bias
