"""The bytecode interpreter: one call runs every block of a model for all rows, on several threads.

Stages run one after the other. A stage is split into work items (rows, blocks of outputs, or heads), which threads take
from an atomic counter. A thread that starts late finds no work left, so no thread waits for it.
"""

from __future__ import annotations

import math
import os
from pathlib import Path
from typing import Any

import numpy as np
from numba import types

from regard.engine.bytecode import EMBED, GATE, NORM, QUANTIZE, ROPE, SPLIT_HEADS, SPLIT_OUTPUTS, SPLIT_ROWS, STORE_KV
from regard.engine.kernels.decode_attention import decode_attention, store_kv
from regard.engine.kernels.gemm_int8 import quantize_group
from regard.engine.kernels.linear_layer import (
    PACK_MIN_ROWS,
    fp32_linear,
    fp32_linear_packed,
    fp32_linear_panels,
    group_index,
    int8_linear,
    int8_linear_unpacked,
    num_rows,
    output_blocks,
    quantized_inputs,
    scratch_row,
    unpacks_weights,
)
from regard.engine.kernels.llvm import (
    KERNEL_CACHE,
    atomic_load,
    cpu_pause,
    fetch_add,
    floats,
    int8s,
    int32s,
    int64s,
    jit,
    load_half,
)
from regard.engine.kernels.prefill_attention import prefill_attention
from regard.engine.quantize import BLOCK, GROUP

RUNNING, HELPERS, COUNTERS = 0, 8, 16  # offsets into the shared state, on cache lines of their own
CHUNKS_PER_THREAD = 8  # of a stage: small chunks keep the wait for the last thread short
_yield: Any = types.ExternalFunction("sched_yield", types.int32()) if hasattr(os, "sched_yield") else None


@jit
def dequantize_row(table: int, scales: int, row_id: int, y: Any, width: int, scale: float) -> None:
    """A row of an int8 matrix in fp32, times `scale`."""
    block, lane, groups = row_id // BLOCK, row_id % BLOCK, (width + GROUP - 1) // GROUP
    for group in range(block * groups, (block + 1) * groups):
        w = int8s(table + group * GROUP * BLOCK + 4 * lane)
        step = load_half(scales + 2 * (group * BLOCK + lane)) * np.float32(scale)
        first = (group - block * groups) * GROUP
        for i in range(min(GROUP, width - first)):
            y[first + i] = np.float32((w[i // 4 * 4 * BLOCK + i % 4] & 255) - 128) * step


@jit
def dequantize_rows(table: int, scales: int, ids: int, y: int, count: int, width: int, scale: float) -> None:
    for row in range(count):
        dequantize_row(table, scales, int64s(ids)[row], floats(y + 4 * row * width), width, scale)


@jit
def embed(p: Any, frame: Any, row: int) -> None:
    """The embedding of the token of a row, plus that of its position if `source2` is a table of them."""
    y, row_id, width = floats(scratch_row(frame, p.target, p.target_width, row)), int64s(frame.ids)[row], p.target_width
    if p.scales:
        dequantize_row(p.weight, p.scales, row_id, y, width, p.scalar)
    else:
        token = floats(p.weight + 4 * row_id * width)
        for i in range(width):
            y[i] = token[i] * np.float32(p.scalar)
    if p.source2:
        position = floats(p.source2 + 4 * int32s(frame.positions)[row] * width)
        for i in range(width):
            y[i] += position[i]


@jit
def source_and_target(p: Any, frame: Any, row: int) -> tuple[Any, Any]:
    return (
        floats(scratch_row(frame, p.source, p.source_width, row)),
        floats(scratch_row(frame, p.target, p.target_width, row)),
    )


@jit
def norm(p: Any, frame: Any, row: int) -> None:
    """LayerNorm if `center` is set, else RMSNorm."""
    x, y = source_and_target(p, frame, row)
    weight, bias, width = floats(p.weight), floats(p.bias), p.inputs
    mean, square = np.float32(0.0), np.float32(0.0)
    if p.center:
        for i in range(width):
            mean += x[i]
        mean /= np.float32(width)
    for i in range(width):
        square += (x[i] - mean) * (x[i] - mean)
    scale = np.float32(1.0 / math.sqrt(square / width + p.scalar))
    for i in range(width):
        y[i] = (x[i] - mean) * scale
    if p.weight:
        for i in range(width):
            y[i] *= weight[i]
    if p.bias:
        for i in range(width):
            y[i] += bias[i]


@jit
def quantize(p: Any, frame: Any, row: int, workspace: int) -> None:
    """Quantize a row to int8, with one scale per group of inputs. The last group is padded with zeros."""
    groups, full = (p.inputs + GROUP - 1) // GROUP, p.inputs // GROUP
    x = scratch_row(frame, p.source, p.source_width, row)
    for g in range(groups):
        q, scale, zp = quantized_inputs(frame, group_index(frame, row, g, groups))
        if g < full:
            quantize_group(x + 4 * g * GROUP, q, scale, zp)
        else:
            padded = floats(workspace)
            for i in range(GROUP):
                padded[i] = floats(x)[full * GROUP + i] if full * GROUP + i < p.inputs else np.float32(0.0)
            quantize_group(workspace, q, scale, zp)


@jit
def rope(p: Any, frame: Any, row: int) -> None:
    """Rotary position embedding of `heads` heads, then RMSNorm of each head if `scalar` gives an epsilon."""
    half = p.head_dim // 2
    position = int32s(frame.positions)[row]
    sines, cosines = floats(p.weight + 4 * position * p.head_dim), floats(p.weight + 4 * (position * p.head_dim + half))
    for h in range(p.heads):
        x = floats(scratch_row(frame, p.source, p.source_width, row) + 4 * h * p.head_dim)
        for i in range(half):
            a, b = x[i], x[half + i]
            x[i] = a * cosines[i] - b * sines[i]
            x[half + i] = b * cosines[i] + a * sines[i]
        if p.scalar > 0:
            square = np.float32(0.0)
            for i in range(p.head_dim):
                square += x[i] * x[i]
            scale = np.float32(1.0 / math.sqrt(square / p.head_dim + p.scalar))
            for i in range(p.head_dim):
                x[i] *= scale


@jit
def gate(p: Any, frame: Any, row: int) -> None:
    x, y = source_and_target(p, frame, row)
    for i in range(p.inputs):
        y[i] *= x[i]


@jit
def num_queries(p: Any, frame: Any) -> tuple[int, int]:
    """Rows that attend one by one, which come first; and prefills, which contain all other rows."""
    if p.cache:
        return frame.decode_rows1, frame.num_prefills1
    return frame.decode_rows0, frame.num_prefills0


@jit
def work_items(stage: Any, code: Any, frame: Any) -> int:
    if stage.split == SPLIT_ROWS:
        return frame.rows
    if stage.split == SPLIT_HEADS:
        p = code[stage.first]
        decode_rows, prefills = num_queries(p, frame)
        return (decode_rows + prefills) * p.kv_heads
    total = 0
    for i in range(stage.first, stage.first + stage.count):
        total += output_blocks(code[i])
    return total


@jit
def execute(stage: Any, code: Any, frame: Any, item: int, workspace: int) -> None:
    if stage.split == SPLIT_OUTPUTS:
        i = stage.first
        while item >= output_blocks(code[i]):
            item -= output_blocks(code[i])
            i += 1
        if code[i].scales and unpacks_weights(frame):
            int8_linear_unpacked(code[i], frame, item, workspace)
        elif code[i].scales:
            int8_linear(code[i], frame, item, workspace)
        elif code[i].panels:
            fp32_linear_panels(code[i], frame, item, workspace)
        elif num_rows(code[i], frame) >= PACK_MIN_ROWS:
            fp32_linear_packed(code[i], frame, item, workspace)
        else:
            fp32_linear(code[i], frame, item, workspace)
    elif stage.split == SPLIT_HEADS:
        p = code[stage.first]
        decode_rows, prefills = num_queries(p, frame)
        query, group = item % (decode_rows + prefills), item // (decode_rows + prefills)
        if query < decode_rows:
            decode_attention(p, frame, query, group, workspace)
        else:
            prefill_attention(p, frame, query - decode_rows, group, workspace)
    else:
        for i in range(stage.first, stage.first + stage.count):
            p = code[i]
            if p.op == EMBED:
                embed(p, frame, item)
            elif p.op == NORM:
                norm(p, frame, item)
            elif p.op == QUANTIZE:
                quantize(p, frame, item, workspace)
            elif p.op == ROPE:
                rope(p, frame, item)
            elif p.op == STORE_KV:
                store_kv(p, frame, item)
            elif p.op == GATE:
                gate(p, frame, item)


@jit
def spin_wait(times: int) -> int:
    """Wait for another thread; yield now and then, as it may need this core."""
    cpu_pause()
    if _yield is not None and times % 1000 == 999:
        _yield()
    return times + 1


@jit
def run_stages(stages: Any, code: Any, frames: Any, state: int, worker: int) -> None:
    frame = frames[0]
    workspace = frame.workspace + worker * frame.workspace_size
    for s in range(len(stages)):
        count = work_items(stages[s], code, frame)
        next_item, finished_items = state + 8 * (COUNTERS + 16 * s), state + 8 * (COUNTERS + 16 * s + 8)
        chunk = max(1, count // (CHUNKS_PER_THREAD * frame.threads)) if frame.threads > 1 else count
        begin = fetch_add(next_item, chunk)
        while begin < count:
            end = min(begin + chunk, count)
            for item in range(begin, end):
                execute(stages[s], code, frame, item, workspace)
            fetch_add(finished_items, end - begin)
            begin = fetch_add(next_item, chunk)
        spins = 0
        while atomic_load(finished_items) < count:
            spins = spin_wait(spins)


@jit
def run_program(stages: Any, code: Any, frames: Any, state: int) -> None:
    """Run a program as worker 0. Helpers may join until RUNNING is cleared; those that joined are waited for."""
    fetch_add(state + 8 * RUNNING, 1)
    run_stages(stages, code, frames, state, 0)
    fetch_add(state + 8 * RUNNING, -1)
    spins = 0
    while atomic_load(state + 8 * HELPERS) > 0:
        spins = spin_wait(spins)


@jit
def help_run(stages: Any, code: Any, frames: Any, state: int, worker: int) -> None:
    fetch_add(state + 8 * HELPERS, 1)
    # With fewer threads than before, a worker of the larger pool has no workspace.
    if atomic_load(state + 8 * RUNNING) == 1 and worker < frames[0].threads:
        run_stages(stages, code, frames, state, worker)
    fetch_add(state + 8 * HELPERS, -1)


def drop_stale_kernels() -> None:
    """Delete cached kernels that are older than a file of the engine: Numba checks only the file of the function."""
    if KERNEL_CACHE is None:
        return
    changed = max(file.stat().st_mtime for file in Path(__file__).parents[1].rglob("*.py"))
    for index_file in Path(run_program.stats.cache_path).glob("*.nbi"):  # type: ignore[attr-defined]
        if index_file.stat().st_mtime < changed:
            index_file.unlink(missing_ok=True)


drop_stale_kernels()
