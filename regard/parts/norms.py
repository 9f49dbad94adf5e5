"""Normalisation over the features of each token, so that depth does not make numbers grow.

    LayerNorm   (x - mean) / √(var + eps) · weight + bias          Ba et al. 2016
    RMSNorm     x / √(mean(x²) + eps) · weight                     Zhang & Sennrich 2019

The fused modules of PyTorch run; the two functions below say what they compute, and a test holds them equal.
"""

from __future__ import annotations

from torch import Tensor
from torch.nn import LayerNorm, RMSNorm

__all__ = ["LayerNorm", "RMSNorm", "layer_norm_openly", "rms_norm_openly"]


def layer_norm_openly(x: Tensor, weight: Tensor, bias: Tensor, eps: float = 1e-5) -> Tensor:
    centred = x - x.mean(-1, keepdim=True)
    return centred * (centred.square().mean(-1, keepdim=True) + eps).rsqrt() * weight + bias


def rms_norm_openly(x: Tensor, weight: Tensor, eps: float = 1e-5) -> Tensor:
    return x * (x.square().mean(-1, keepdim=True) + eps).rsqrt() * weight
