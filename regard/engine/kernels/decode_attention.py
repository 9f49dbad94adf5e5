"""Decode attention: one query row against the slots that its row of the block table lists; and the KV cache's writes.

y = Σ_s softmax(q · k_s / √E) v_s
"""

from __future__ import annotations

from typing import Any

import numpy as np

from regard.engine.kernels.attention_tiles import scores_tile, weighted_sum_tile
from regard.engine.kernels.elementwise import exp
from regard.engine.kernels.linear_layer import scratch_row
from regard.engine.kernels.llvm import LANES, any_nonfinite, dispatch, floats, int32s, jit, load_half, nan, store_half

HEAD_WIDTHS = (32, 64, 128)  # that have unrolled tiles
# One variant for each width E and type of the cache; the first argument is 2 E + fp16
_KINDS = [(E, fp16) for E in HEAD_WIDTHS for fp16 in (False, True)]
_scores = dispatch({2 * E + fp16: scores_tile(E // LANES, fp16) for E, fp16 in _KINDS})
_weighted_sum = dispatch({2 * E + fp16: weighted_sum_tile(E // LANES, fp16) for E, fp16 in _KINDS})


@jit
def kv_addresses(p: Any, frame: Any) -> tuple[int, int, int]:
    """Addresses of a layer's keys and values, (G, slots, E) each, and the number of slots."""
    width = p.kv_heads * p.head_dim
    slots = frame.num_slots1 if p.cache else frame.num_slots0
    size = slots * width * (2 if p.kv_fp16 else 4)
    keys = (frame.kv1 if p.cache else frame.kv0) + 2 * p.layer * size
    return keys, keys + size, slots


@jit
def store_kv(p: Any, frame: Any, row: int) -> None:
    """Write keys (`source`) and values (`source2`) of a row to its slot of the cache."""
    keys, values, slots = kv_addresses(p, frame)
    slot, E = int32s(frame.slot_mapping)[row], p.head_dim
    width = p.kv_heads * E
    from_k, from_v = floats(scratch_row(frame, p.source, width, row)), floats(scratch_row(frame, p.source2, width, row))
    for head in range(p.kv_heads):
        offset = (head * slots + slot) * E
        store_head(keys, offset, from_k, head * E, E, p.kv_fp16)
        store_head(values, offset, from_v, head * E, E, p.kv_fp16)


@jit
def store_head(kv: int, offset: int, x: Any, first: int, E: int, fp16: int) -> None:
    if fp16:
        for i in range(E):
            store_half(kv + 2 * (offset + i), x[first + i])
    else:
        y = floats(kv + 4 * offset)
        for i in range(E):
            y[i] = x[first + i]


@jit
def decode_attention(p: Any, frame: Any, row: int, group: int, workspace: int) -> None:
    """One key/value head, and all query heads that share it."""
    keys, values, num_slots = kv_addresses(p, frame)
    table_width = frame.table_width1 if p.cache else frame.table_width0
    table_row = int32s(frame.table_rows1 if p.cache else frame.table_rows0)[row]
    count = int32s(frame.seq_lens1 if p.cache else frame.seq_lens0)[row]
    slots = (frame.block_table1 if p.cache else frame.block_table0) + 4 * table_row * table_width
    E, weights = p.head_dim, floats(workspace)
    head_offset = group * num_slots * E * (2 if p.kv_fp16 else 4)
    keys, values = keys + head_offset, values + head_offset
    group_size = p.heads // p.kv_heads
    for head in range(group * group_size, (group + 1) * group_size):
        q = scratch_row(frame, p.source, p.source_width, row) + 4 * head * E
        y = scratch_row(frame, p.target, p.target_width, row) + 4 * head * E
        query_scores(q, keys, slots, workspace, count, E, p.kv_fp16)
        if any_nonfinite(workspace, count):  # `exp` would turn NaN into a finite number
            for i in range(E):
                floats(y)[i] = nan()
            continue
        largest = np.float32(-3e38)
        for s in range(count):
            weights[s] *= np.float32(p.scalar)
            largest = max(largest, weights[s])
        total = np.float32(0.0)
        for s in range(count):
            weights[s] = exp(weights[s] - largest)
            total += weights[s]
        for s in range(count):
            weights[s] /= total
        weighted_values(y, values, slots, workspace, count, E, p.kv_fp16)


@jit
def query_scores(q: int, keys: int, slots: int, workspace: int, count: int, E: int, fp16: int) -> None:
    """Scores of all keys."""
    if E in HEAD_WIDTHS:
        _scores(2 * E + fp16, q, keys, slots, workspace, count, (2 if fp16 else 4) * E)
    else:
        slot, query, scores = int32s(slots), floats(q), floats(workspace)
        for s in range(count):
            total = np.float32(0.0)
            for i in range(E):
                total += query[i] * kv_element(keys, slot[s] * E + i, fp16)
            scores[s] = total


@jit
def weighted_values(y: int, values: int, slots: int, workspace: int, count: int, E: int, fp16: int) -> None:
    """The weighted sum of all values."""
    if E in HEAD_WIDTHS:
        _weighted_sum(2 * E + fp16, y, values, slots, workspace, count, (2 if fp16 else 4) * E)
    else:
        slot, output, weights = int32s(slots), floats(y), floats(workspace)
        for i in range(E):
            output[i] = np.float32(0.0)
        for s in range(count):
            for i in range(E):
                output[i] += weights[s] * kv_element(values, slot[s] * E + i, fp16)


@jit
def kv_element(kv: int, offset: int, fp16: int) -> Any:
    return load_half(kv + 2 * offset) if fp16 else floats(kv)[offset]
