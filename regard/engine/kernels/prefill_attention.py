"""Prefill attention: many query rows of one sequence share its keys and values, which are gathered once.

y_r = Σ_s softmax(q_r · k_s / √E) v_s,   as two matrix products with a softmax between them
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from regard.engine.kernels.decode_attention import kv_addresses, kv_element
from regard.engine.kernels.elementwise import exp
from regard.engine.kernels.linear_layer import scratch_row
from regard.engine.kernels.llvm import LANES, any_nonfinite, floats, int32s, jit, load_half, nan
from regard.engine.kernels.packed_gemm import (
    PANEL_ROWS,
    packed_matmul,
    round_up_to_lanes,
    transpose_fp16,
    transpose_fp32,
)

MAX_KEYS = 2048  # that are gathered: more would not stay in the cache
MIN_ROWS = 8  # average rows per prefill below which decode_attention is faster
NO_PREFILLS = np.empty((0, 2), np.int32)


@jit
def softmax_numerators(x: Any, count: int, size: int, scale: float) -> Any:
    """exp of the scaled scores in place, zeros after `count`; returns their sum, by which the caller divides."""
    for s in range(count, size):
        x[s] = np.float32(-1e30)  # whose exp is 0: so the loops work on full registers
    largest, total = np.float32(-3e38), np.float32(0.0)
    for s in range(size):
        largest = max(largest, x[s])
    for s in range(size):
        x[s] = exp((x[s] - largest) * np.float32(scale))
        total += x[s]
    return total


@jit
def prefill_attention(p: Any, frame: Any, prefill: int, group: int, workspace: int) -> None:
    """One key/value head, and all query rows and heads of a prefill that share it."""
    prefills = int32s(frame.prefills1 if p.cache else frame.prefills0)
    first, rows = prefills[2 * prefill], prefills[2 * prefill + 1]
    table_width = frame.table_width1 if p.cache else frame.table_width0
    table_row = int32s(frame.table_rows1 if p.cache else frame.table_rows0)[first]
    seq_lens = int32s(frame.seq_lens1 if p.cache else frame.seq_lens0)
    slots = (frame.block_table1 if p.cache else frame.block_table0) + 4 * table_row * table_width
    max_len = 0
    for row in range(first, first + rows):
        max_len = max(max_len, seq_lens[row])
    E, S = p.head_dim, round_up_to_lanes(max_len)
    keys, values, weights = workspace, workspace + 4 * E * S, workspace + 8 * E * S
    totals = floats(weights + 4 * PANEL_ROWS * S)
    gather_kv(p, frame, group, slots, keys, values, max_len, S)
    group_size = p.heads // p.kv_heads
    for head in range(group * group_size, (group + 1) * group_size):
        for row in range(first, first + rows, PANEL_ROWS):
            tile_rows = min(PANEL_ROWS, first + rows - row)
            q = scratch_row(frame, p.source, p.source_width, row) + 4 * head * E
            y = scratch_row(frame, p.target, p.target_width, row) + 4 * head * E
            packed_matmul(q, keys, weights, tile_rows, E, S, 4 * p.source_width, 4 * S)
            for r in range(tile_rows):
                scores = weights + 4 * r * S
                nonfinite = any_nonfinite(scores, seq_lens[row + r])  # `exp` would hide NaN
                total = softmax_numerators(floats(scores), seq_lens[row + r], S, p.scalar)
                totals[r] = nan() if nonfinite else total
            packed_matmul(weights, values, y, tile_rows, max_len, E, 4 * S, 4 * p.target_width)
            for r in range(tile_rows):
                output = floats(y + 4 * r * p.target_width)
                for i in range(E):
                    output[i] /= totals[r]


@jit
def gather_kv(p: Any, frame: Any, group: int, slots: int, keys: int, values: int, count: int, S: int) -> None:
    """Copy keys as (E,S) and values as (S,E) from their slots to the workspace."""
    from_keys, from_values, num_slots = kv_addresses(p, frame)
    E, size = p.head_dim, 2 if p.kv_fp16 else 4
    from_keys, from_values = from_keys + size * group * num_slots * E, from_values + size * group * num_slots * E
    full_keys = count // LANES * LANES
    for s in range(0, full_keys, LANES):
        for i in range(0, E, LANES):
            if p.kv_fp16:
                transpose_fp16(from_keys + size * i, slots + 4 * s, keys + 4 * (i * S + s), size * E, 4 * S)
            else:
                transpose_fp32(from_keys + size * i, slots + 4 * s, keys + 4 * (i * S + s), size * E, 4 * S)
    slot, k, v = int32s(slots), floats(keys), floats(values)
    for i in range(E):
        for s in range(full_keys, S):
            k[i * S + s] = kv_element(from_keys, slot[s] * E + i, p.kv_fp16) if s < count else np.float32(0.0)
    for s in range(count):
        if p.kv_fp16:
            for i in range(E):
                v[s * E + i] = load_half(from_values + 2 * (slot[s] * E + i))
        else:
            for i in range(E):
                v[s * E + i] = floats(from_values)[slot[s] * E + i]


def prefill_workspace(S: int, E: int) -> int:
    """Floats per thread to attend to S slots."""
    return (2 * E + PANEL_ROWS) * -(-S // LANES) * LANES + PANEL_ROWS


def find_prefills(table_rows: npt.NDArray[np.int32], first: int = 0) -> npt.NDArray[np.int32]:
    """Runs of consecutive rows with the same row of the block table, (N,2): the number of the first row, counted from
    `first`, and that of rows. Empty if they are short."""
    if not len(table_rows):
        return NO_PREFILLS
    starts = np.flatnonzero(np.diff(table_rows, prepend=-1))
    if len(table_rows) < MIN_ROWS * len(starts):
        starts = starts[:0]
    counts = np.diff(starts, append=len(table_rows)) if len(starts) else starts
    return np.stack((starts + first, counts), 1).astype(np.int32)
