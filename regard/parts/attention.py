"""Attention: each token asks a question, and mixes the answers of the tokens it may see.

    attend(q, k, v) = softmax(q kᵀ / √E) v          Vaswani et al. 2017, eq. 1

`attend` runs one fused kernel that never stores the weights; `attend_openly` is its spelled-out twin, held equal by a
test, and `weights_openly` is what the viewers show. Masks are boolean, True = may be seen, broadcastable to (B,H,T,S).
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from regard.look import is_traced, needs_grad_trace, record
from regard.parts.cache import Cache

UNFUSED_LIMIT = 64 * 64  # weights a head; measured by benchmarks/attention.py
Rotate = Callable[[Tensor, Tensor, int], tuple[Tensor, Tensor]]
ScoreBias = Callable[[int, int], Tensor]


def attend(
    q: Tensor,  # (B,H,T,E)
    k: Tensor,  # (B,G,S,E)
    v: Tensor,
    mask: Tensor | None = None,
    bias: Tensor | None = None,
    causal: bool = False,
    scale: float | None = None,  # 1/√E unless given
) -> Tensor:
    """(B,H,T,E). The fused kernel never stores the (T,S) weights; where those are small, storing them costs no more."""
    if q.is_cpu and q.requires_grad and q.size(2) * k.size(2) <= UNFUSED_LIMIT:
        return attention_reference(q, k, v, mask, bias, causal, scale)
    mask, causal = resolve_mask(q, k, mask, causal)
    if bias is not None:
        mask, causal = added(bias, resolve_mask(q, k, mask, causal, materialize=True)[0]), False
    grouped = q.size(1) != k.size(1)
    return F.scaled_dot_product_attention(q, k, v, mask, is_causal=causal, scale=scale, enable_gqa=grouped)


def attention_reference(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: Tensor | None = None,
    bias: Tensor | None = None,
    causal: bool = False,
    scale: float | None = None,
) -> Tensor:
    """The same in the open: score, scale, mask, softmax, weighted sum of values."""
    return attention_weights(q, k, mask, bias, causal, scale) @ repeat_kv(v, q.size(1))


def attention_weights(
    q: Tensor,
    k: Tensor,
    mask: Tensor | None = None,
    bias: Tensor | None = None,
    causal: bool = False,
    scale: float | None = None,
) -> Tensor:
    """Who attends to whom, (B,H,T,S): every row sums to 1. One that may see nothing is finite too."""
    scale = 1 / math.sqrt(q.size(-1)) if scale is None else scale
    scores = (q * scale) @ repeat_kv(k, q.size(1)).mT  # (B,H,T,S)
    if bias is not None:
        scores = scores + bias
    mask, _ = resolve_mask(q, k, mask, causal, materialize=True)
    if mask is not None:
        scores.masked_fill_(~mask, torch.finfo(scores.dtype).min)
    return scores.softmax(-1)


def resolve_mask(
    q: Tensor, k: Tensor, mask: Tensor | None, causal: bool, materialize: bool = False
) -> tuple[Tensor | None, bool]:
    """The mask and the kernel's own causal switch, of which it takes only one.

    The switch counts from the upper left corner, so it is right only when T == S; with a cache the last of T new tokens
    sees all S. `spell` always gives a mask.
    """
    T, S = q.size(2), k.size(2)
    if not causal or T == 1:  # one new token may see everything so far
        return mask, False
    if mask is None and T == S and not materialize:
        return None, True
    past = torch.ones(T, S, dtype=torch.bool, device=q.device).tril(S - T)
    return (past if mask is None else mask & past), False


def repeat_kv(k: Tensor, heads: int) -> Tensor:
    """Grouped-query attention: several query heads share a key, (B,G,S,E) -> (B,H,S,E)."""
    return k if k.size(1) == heads else k.repeat_interleave(heads // k.size(1), dim=1)


def added(bias: Tensor, mask: Tensor | None) -> Tensor:
    """One additive mask: the bias where something may be seen, -inf elsewhere."""
    return bias if mask is None else bias.masked_fill(~mask, -math.inf)


def split_heads(x: Tensor, heads: int) -> Tensor:
    """(B,T,H·E) -> (B,H,T,E)"""
    return x.unflatten(-1, (heads, -1)).transpose(1, 2)


def merge_heads(x: Tensor) -> Tensor:
    """(B,H,T,E) -> (B,T,H·E)"""
    return x.transpose(1, 2).flatten(2)


class SelfAttention(nn.Module):
    """Multi-head attention of a sequence to itself; fewer `kv_heads` than `heads` makes it grouped-query. A head is
    `head_dim` wide, dim / heads unless given.

    `rotate` is what happens to q and k between projection and scores: nothing, rotary positions, a norm, or both.
    `score_bias` makes, of (T, S), what is added to the scores: ALiBi, relative positions.
    """

    def __init__(
        self,
        dim: int,
        heads: int,
        kv_heads: int | None = None,
        head_dim: int | None = None,
        bias: bool = True,
        out_bias: bool | None = None,  # as the others unless given
        *,
        causal: bool = False,
        rotate: Rotate | None = None,
        score_bias: ScoreBias | None = None,
    ):
        super().__init__()
        self.heads, self.kv_heads, self.causal = heads, kv_heads or heads, causal
        self.rotate, self.score_bias = rotate, score_bias
        E = head_dim or dim // heads
        self.query = nn.Linear(dim, heads * E, bias)
        self.key = nn.Linear(dim, self.kv_heads * E, bias)
        self.value = nn.Linear(dim, self.kv_heads * E, bias)
        self.out = nn.Linear(heads * E, dim, bias if out_bias is None else out_bias)

    def forward(self, x: Tensor, mask: Tensor | None = None, cache: Cache | None = None) -> Tensor:
        q = split_heads(self.query(x), self.heads)  # (B,H,T,E)
        k = split_heads(self.key(x), self.kv_heads)  # (B,G,T,E)
        v = split_heads(self.value(x), self.kv_heads)
        if self.rotate is not None:
            q, k = self.rotate(q, k, cache.length if cache is not None else 0)
        if cache is not None:
            k, v = cache.extend(k, v)  # (B,G,S,E)
        bias = None if self.score_bias is None else self.score_bias(q.size(2), k.size(2))  # (1,H,T,S)
        y = attend(q, k, v, mask, bias, self.causal)
        if is_traced():
            y = shown(self, y, q, k, v, mask, bias, self.causal)
        return self.out(merge_heads(y))


class CrossAttention(nn.Module):
    """Multi-head attention of a decoder to its source. With a cache, the source's keys and values come from there."""

    def __init__(self, dim: int, heads: int, *, bias: bool = True):
        super().__init__()
        self.heads = heads
        self.query = nn.Linear(dim, dim, bias)
        self.key = nn.Linear(dim, dim, bias)
        self.value = nn.Linear(dim, dim, bias)
        self.out = nn.Linear(dim, dim, bias)

    def project_kv(self, source: Tensor) -> tuple[Tensor, Tensor]:
        """Keys and values of the source, (B,H,S,E)."""
        return split_heads(self.key(source), self.heads), split_heads(self.value(source), self.heads)

    def forward(
        self, x: Tensor, source: Tensor | None = None, mask: Tensor | None = None, cache: Cache | None = None
    ) -> Tensor:
        if cache is not None and cache.source is not None:
            (k, v), mask = cache.source, cache.source_mask
        else:
            assert source is not None, "a decoder needs a source, or a cache that has read one"
            k, v = self.project_kv(source)
        q = split_heads(self.query(x), self.heads)  # (B·beams,H,T,E)
        B, T = k.size(0), q.size(2)
        q = beams_as_tokens(q, B)  # (B,H,beams·T,E)
        y = tokens_as_beams(attend(q, k, v, mask), T)
        if is_traced():
            y = shown(self, y, tokens_as_beams(q, T), *for_each_beam(k, v, mask, len(x) // B))
        return self.out(merge_heads(y))


def shown(
    module: nn.Module,
    y: Tensor,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: Tensor | None = None,
    bias: Tensor | None = None,
    causal: bool = False,
) -> Tensor:
    """Show what attention works with. The output is the kernel's, unless it must follow from what was shown."""
    asked, answered, said = record(module, "queries", q), record(module, "keys", k), record(module, "values", v)
    weights = attention_weights(asked, answered, mask, bias, causal)
    may, _ = resolve_mask(q, k, mask, causal, materialize=True)
    if may is not None:
        record(module, "mask", may, fixed=True)
    used = record(module, "weights", weights)
    same = asked is q and answered is k and said is v and used is weights
    return y if same and not needs_grad_trace() else used @ repeat_kv(said, q.size(1))


def for_each_beam(k: Tensor, v: Tensor, mask: Tensor | None, beams: int) -> tuple[Tensor, Tensor, Tensor | None]:
    """Of a source that several beams share, a copy for each."""
    if beams == 1:
        return k, v, mask
    parts = (part if part is None else part.repeat_interleave(beams, 0) for part in (k, v, mask))
    return tuple(parts)  # type: ignore[return-value]


def beams_as_tokens(q: Tensor, sources: int) -> Tensor:
    """Nothing is causal about a source, so the beams of a sentence may ask as if they were more tokens of it."""
    return q if q.size(0) == sources else q.unflatten(0, (sources, -1)).transpose(1, 2).flatten(2, 3)


def tokens_as_beams(y: Tensor, T: int) -> Tensor:
    return y if y.size(2) == T else y.unflatten(2, (-1, T)).transpose(1, 2).flatten(0, 1)
