"""Kernel regression from stored examples (x_i, y_i): by attention, and by a Gaussian process.

attention          Σ K(x,x_i) y_i / Σ K(x,x_i),  K = exp(q·k)          Nadaraya 1964, Watson 1964
Gaussian process   Σ K(x,x_i) v_i,  v = (K + σ²I)⁻¹ y                  Rasmussen & Williams 2006
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from regard.parts.attention import CrossAttention
from regard.parts.attention_scores import gaussian


def gaussian_attention(width: float) -> CrossAttention:
    """An attention layer with a Gaussian kernel: a query is (x, 1, 0), a key (x, x², y), a value (0, 0, y)."""
    layer = CrossAttention(3, 1, bias=False).double()
    scale = math.sqrt(3) / width**2  # attention divides by √E
    diagonals = torch.tensor([[scale, -scale / 2, 0], [1, 1, 0], [0, 0, 1], [1, 1, 1]], dtype=torch.float64)
    names = ("query.weight", "key.weight", "value.weight", "out.weight")
    layer.load_state_dict(dict(zip(names, diagonals.diag_embed(), strict=True)))
    return layer


def predict(layer: CrossAttention, at: Tensor, x: Tensor, y: Tensor, mask: Tensor | None = None) -> Tensor:
    query = torch.stack((at, torch.ones_like(at), torch.zeros_like(at)), -1)  # (T,3)
    example = torch.stack((x, x.square(), y), -1)  # (S,3)
    return layer(query[None], example[None], mask)[0, :, 2]  # (T,)


def gp_weights(at: Tensor, x: Tensor, width: float, noise: float) -> Tensor:
    """(T,S): weights of the examples' y in the mean of a Gaussian process. A row need not sum to 1."""
    covariance = gaussian(x[:, None], x[:, None], width).exp() + noise**2 * torch.eye(len(x)).double()
    return gaussian(at[:, None], x[:, None], width).exp() @ torch.linalg.inv(covariance)
