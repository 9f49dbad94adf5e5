"""Scaled dot-product attention, as self-attention and as cross-attention, with several heads.

    attend(q, k, v) = softmax(q kᵀ / √E) v          Vaswani et al. 2017, eq. 1

`attend` calls PyTorch's fused kernel, which never stores the weights. `attention_reference` computes the same step by
step (a test compares the two), and `attention_weights` returns the weights. Masks are boolean, True = visible, and
broadcast to (B,H,T,S), or a `DocumentMask`: then documents attend one after the other, and no T x S tensor is made.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from regard.look import is_traced, needs_grad_trace, record
from regard.parts.cache import Cache
from regard.parts.document_mask import CHUNK_TOKENS, DocumentMask, Mask, as_tensor

UNFUSED_LIMIT = 64 * 64  # weights per head; measured by benchmarks/attention.py
Rotate = Callable[[Tensor, Tensor, int], tuple[Tensor, Tensor]]
ScoreBias = Callable[[int, int], Tensor]


def attend(
    q: Tensor,  # (B,H,T,E)
    k: Tensor,  # (B,G,S,E)
    v: Tensor,
    mask: Mask | None = None,
    bias: Tensor | None = None,
    causal: bool = False,
    scale: float | None = None,  # default 1/√E
) -> Tensor:
    """(B,H,T,E). In training on a CPU, up to UNFUSED_LIMIT weights per head are stored: there the fused kernel is
    slower."""
    if isinstance(mask, DocumentMask) and bias is None:  # a bias is as large as a dense mask
        by_documents = attend_chunks if mask.window is None else attend_window
        return by_documents(q, k, v, mask, causal, scale)
    if q.is_cpu and q.requires_grad and q.size(2) * k.size(2) <= UNFUSED_LIMIT:
        return attention_reference(q, k, v, mask, bias, causal, scale)
    mask, causal = resolve_mask(q, k, mask, causal)
    if bias is not None:
        mask, causal = additive_mask(bias, resolve_mask(q, k, mask, causal, materialize=True)[0]), False
    grouped = q.size(1) != k.size(1)
    return F.scaled_dot_product_attention(q, k, v, mask, is_causal=causal, scale=scale, enable_gqa=grouped)


def attend_chunks(
    q: Tensor, k: Tensor, v: Tensor, mask: DocumentMask, causal: bool = False, scale: float | None = None
) -> Tensor:
    """`attend` for each chunk of whole documents; a long document has no mask at all."""
    rows = []
    for row, chunks in enumerate(mask.chunks):
        queries, keys, values = (x[row : row + 1].split([chunk.tokens for chunk in chunks], 2) for x in (q, k, v))
        outputs = [
            attend(query, key, value, chunk.visible, causal=causal, scale=scale)
            for query, key, value, chunk in zip(queries, keys, values, chunks, strict=True)
        ]
        rows.append(torch.cat(outputs, 2))
    return torch.cat(rows)


def attend_window(
    q: Tensor, k: Tensor, v: Tensor, mask: DocumentMask, causal: bool = False, scale: float | None = None
) -> Tensor:
    """`attend` for each block of queries, to the keys of that block and of its two neighbours."""
    assert mask.window is not None
    B, T = len(q), q.size(2)
    size = max(mask.window, CHUNK_TOKENS)
    count = -(-T // size)
    missing = count * size - T

    def neighbours(x: Tensor) -> Tensor:  # (B,G,T,E) -> (B·count,G,3·size,E)
        parts = F.pad(x, (0, 0, size, missing + size)).unflatten(2, (-1, size))
        return torch.cat((parts[:, :, :-2], parts[:, :, 1:-1], parts[:, :, 2:]), 3).transpose(1, 2).flatten(0, 1)

    queries = F.pad(q, (0, 0, 0, missing)).unflatten(2, (-1, size)).transpose(1, 2).flatten(0, 1)  # (B·count,H,size,E)
    document = F.pad(mask.document.expand(B, T), (size, missing + size), value=-1)  # padding sees itself
    own, near = document[:, size:-size].unflatten(1, (-1, size)), document.unfold(1, 3 * size, size)
    age = size + torch.arange(size, device=q.device)[:, None] - torch.arange(3 * size, device=q.device)
    in_window = (age >= (0 if causal else -mask.window)) & (age <= mask.window)  # (size,3·size)
    visible = (own[..., None] == near[:, :, None]) & in_window  # (B,count,size,3·size)
    y = attend(queries, neighbours(k), neighbours(v), visible.flatten(0, 1)[:, None], scale=scale)
    return y.unflatten(0, (B, count)).transpose(1, 2).flatten(2, 3)[:, :, :T]


def attention_reference(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: Mask | None = None,
    bias: Tensor | None = None,
    causal: bool = False,
    scale: float | None = None,
) -> Tensor:
    """`attend` step by step: score, scale, mask, softmax, weighted sum of values."""
    return attention_weights(q, k, mask, bias, causal, scale) @ repeat_kv(v, q.size(1))


def attention_weights(
    q: Tensor,
    k: Tensor,
    mask: Mask | None = None,
    bias: Tensor | None = None,
    causal: bool = False,
    scale: float | None = None,
) -> Tensor:
    """(B,H,T,S). Every row sums to 1; a fully masked row is uniform, not NaN."""
    scale = 1 / math.sqrt(q.size(-1)) if scale is None else scale
    scores = (q * scale) @ repeat_kv(k, q.size(1)).mT  # (B,H,T,S)
    if bias is not None:
        scores = scores + bias
    mask, _ = resolve_mask(q, k, mask, causal, materialize=True)
    if mask is not None:
        scores.masked_fill_(~mask, torch.finfo(scores.dtype).min)
    return scores.softmax(-1)


def resolve_mask(
    q: Tensor, k: Tensor, mask: Mask | None, causal: bool, materialize: bool = False
) -> tuple[Tensor | None, bool]:
    """Split (mask, causal) into the mask and the kernel's `is_causal`, which accepts only one of the two.

    `is_causal` aligns the diagonal with the upper left corner, so it is correct only for T == S; with a cache, the last
    of T new tokens sees all S keys. `materialize` always returns a mask.
    """
    mask, T, S = as_tensor(mask), q.size(2), k.size(2)
    if not causal or T == 1:  # a single new token sees all keys
        return mask, False
    if mask is None and T == S and not materialize:
        return None, True
    past = torch.ones(T, S, dtype=torch.bool, device=q.device).tril(S - T)
    return (past if mask is None else mask & past), False


def repeat_kv(k: Tensor, heads: int) -> Tensor:
    """Grouped-query attention: H / G query heads share one key head, (B,G,S,E) -> (B,H,S,E)."""
    return k if k.size(1) == heads else k.repeat_interleave(heads // k.size(1), dim=1)


def additive_mask(bias: Tensor, mask: Tensor | None) -> Tensor:
    """The bias where the mask is True, -inf elsewhere."""
    return bias if mask is None else bias.masked_fill(~mask, -math.inf)


def split_heads(x: Tensor, heads: int) -> Tensor:
    """(B,T,H·E) -> (B,H,T,E)"""
    return x.unflatten(-1, (heads, -1)).transpose(1, 2)


def merge_heads(x: Tensor) -> Tensor:
    """(B,H,T,E) -> (B,T,H·E)"""
    return x.transpose(1, 2).flatten(2)


class SelfAttention(nn.Module):
    """Multi-head self-attention; grouped-query attention if `kv_heads` < `heads`.

    `rotate(q, k, start)` acts between projection and scores: rotary positions, a norm, or both. `score_bias(T, S)`
    returns a tensor that is added to the scores: ALiBi, relative positions. `bias` (B,H,T,S) is added as well; it comes
    from the model and depends on the example.
    """

    def __init__(
        self,
        dim: int,
        heads: int,
        kv_heads: int | None = None,  # default `heads`
        head_dim: int | None = None,  # default dim / heads
        bias: bool = True,
        out_bias: bool | None = None,  # default `bias`
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

    def forward(
        self, x: Tensor, mask: Mask | None = None, cache: Cache | None = None, bias: Tensor | None = None
    ) -> Tensor:
        q = split_heads(self.query(x), self.heads)  # (B,H,T,E)
        k = split_heads(self.key(x), self.kv_heads)  # (B,G,T,E)
        v = split_heads(self.value(x), self.kv_heads)
        if self.rotate is not None:
            q, k = self.rotate(q, k, cache.length if cache is not None else 0)
        if cache is not None:
            k, v = cache.extend(k, v)  # (B,G,S,E)
        if self.score_bias is not None:
            own = self.score_bias(q.size(2), k.size(2))  # (1,H,T,S)
            bias = own if bias is None else bias + own
        y = attend(q, k, v, mask, bias, self.causal)
        if is_traced():
            y = record_attention(self, y, q, k, v, mask, bias, self.causal)
        return self.out(merge_heads(y))


class CrossAttention(nn.Module):
    """Multi-head attention of a decoder to its source. A cache supplies the source's keys and values."""

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
            assert source is not None, "a decoder needs a source, or a cache that holds its keys and values"
            k, v = self.project_kv(source)
        q = split_heads(self.query(x), self.heads)  # (B·beams,H,T,E)
        B, T = k.size(0), q.size(2)
        q = fold_beams(q, B)  # (B,H,beams·T,E)
        y = unfold_beams(attend(q, k, v, mask), T)
        if is_traced():
            y = record_attention(self, y, unfold_beams(q, T), *repeat_for_beams(k, v, mask, len(x) // B))
        return self.out(merge_heads(y))


def record_attention(
    module: nn.Module,
    y: Tensor,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: Mask | None = None,
    bias: Tensor | None = None,
    causal: bool = False,
) -> Tensor:
    """Record q, k, v, mask and weights. Returns the kernel's output `y`, or the unfused one if a trace changed a tensor
    or needs gradients."""
    queries, keys, values = record(module, "queries", q), record(module, "keys", k), record(module, "values", v)
    weights = attention_weights(queries, keys, mask, bias, causal)
    visible, _ = resolve_mask(q, k, mask, causal, materialize=True)
    if visible is not None:
        record(module, "mask", visible, fixed=True)
    recorded = record(module, "weights", weights)
    unchanged = queries is q and keys is k and values is v and recorded is weights
    return y if unchanged and not needs_grad_trace() else recorded @ repeat_kv(values, q.size(1))


def repeat_for_beams(k: Tensor, v: Tensor, mask: Tensor | None, beams: int) -> tuple[Tensor, Tensor, Tensor | None]:
    """One copy per beam of a source that the beams share."""
    if beams == 1:
        return k, v, mask
    parts = (part if part is None else part.repeat_interleave(beams, 0) for part in (k, v, mask))
    return tuple(parts)  # type: ignore[return-value]


def fold_beams(q: Tensor, sources: int) -> Tensor:
    """(B·beams,H,T,E) -> (B,H,beams·T,E). Cross-attention is not causal, so the beams of a sentence can be handled as
    further query positions of it."""
    return q if q.size(0) == sources else q.unflatten(0, (sources, -1)).transpose(1, 2).flatten(2, 3)


def unfold_beams(y: Tensor, T: int) -> Tensor:  # (B,H,beams·T,E) -> (B·beams,H,T,E)
    return y if y.size(2) == T else y.unflatten(2, (-1, T)).transpose(1, 2).flatten(0, 1)
