"""Attention scores: the similarity of a query and a key; softmax turns scores into weights.

    dot          q·k                             Luong et al. 2015
    scaled dot   q·k / √E                        Vaswani et al. 2017
    additive     uᵀ tanh(W q + U k)              Bahdanau et al. 2015
    gaussian     -|q - k|² / 2w²                 Nadaraya 1964, Watson 1964

    output       Σ_s weight_s v_s,  weight = softmax(scores)

A kernel average Σ K(q,k_s) v_s / Σ K(q,k_s) is the same with K = exp(score): attention is kernel regression with a
learned kernel. All scores map (...,T,E) and (...,S,E) to (...,T,S).
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from regard.look import is_traced, record
from regard.parts.attention import fold_beams, merge_heads, split_heads, unfold_beams
from regard.parts.cache import Cache


def dot(q: Tensor, k: Tensor) -> Tensor:
    return q @ k.mT


def scaled_dot(q: Tensor, k: Tensor) -> Tensor:
    return dot(q, k) / math.sqrt(q.size(-1))


def additive(q: Tensor, k: Tensor, u: Tensor) -> Tensor:
    """`q` and `k` are projected already; `u` is (E,)."""
    return (q[..., :, None, :] + k[..., None, :, :]).tanh() @ u


def gaussian(q: Tensor, k: Tensor, width: float = 1.0) -> Tensor:
    return -(q[..., :, None, :] - k[..., None, :, :]).square().sum(-1) / (2 * width**2)


def masked_softmax(scores: Tensor, mask: Tensor | None = None) -> Tensor:
    """Every row sums to 1 and is 0 where the mask is False; a fully masked row is uniform, not NaN."""
    return (scores if mask is None else scores.masked_fill(~mask, torch.finfo(scores.dtype).min)).softmax(-1)


def kernel_average(kernel: Tensor, v: Tensor, mask: Tensor | None = None) -> Tensor:
    """`kernel` (...,T,S) is the similarity of each query and key, at least 0."""
    kernel = kernel if mask is None else kernel * mask
    return (kernel / kernel.sum(-1, keepdim=True)) @ v


class AdditiveAttention(nn.Module):
    """Attention of a decoder to its source, with one head and additive scores; the values are the source itself.

    A cache supplies the source's keys and values.
    """

    def __init__(self, dim: int, hidden: int | None = None):
        super().__init__()
        hidden = hidden or dim
        self.query = nn.Linear(dim, hidden, bias=False)  # the key's bias suffices: the two are added
        self.key = nn.Linear(dim, hidden)
        self.score = nn.Parameter(torch.empty(hidden).uniform_(-1, 1) / math.sqrt(hidden))
        self.out = nn.Linear(dim, dim)

    def project_kv(self, source: Tensor) -> tuple[Tensor, Tensor]:
        """Keys (B,1,S,E) and values (B,1,S,D) of the source."""
        return split_heads(self.key(source), 1), split_heads(source, 1)

    def forward(
        self, x: Tensor, source: Tensor | None = None, mask: Tensor | None = None, cache: Cache | None = None
    ) -> Tensor:
        if cache is not None and cache.source is not None:
            (k, v), mask = cache.source, cache.source_mask
        else:
            assert source is not None, "a decoder needs a source, or a cache that holds its keys and values"
            k, v = self.project_kv(source)
        T = x.size(1)
        q = fold_beams(split_heads(self.query(x), 1), len(k))  # (B,1,beams·T,E)
        weights = masked_softmax(additive(q, k, self.score), mask)  # (B,1,beams·T,S)
        if is_traced():
            weights = fold_beams(record(self, "weights", unfold_beams(weights, T)), len(k))
        return self.out(merge_heads(unfold_beams(weights @ v, T)))
