"""The interpreter of programs: one call runs every block of a model for all rows, on as many cores as help.

A program is a list of stages, run one after the other; a stage is cut into pieces that any core may take: rows, blocks
of outputs, or heads. A core that comes late finds nothing left to do, so nobody waits for it.
"""

from __future__ import annotations

import math
import os
from pathlib import Path
from typing import Any

import numpy as np
from numba import types

from regard.engine.bytecode import EMBED, GATE, HEADS, KEEP, NORM, OUTPUTS, QUANTISE, ROWS, TURN
from regard.engine.kernels.decode_attention import attend, keep
from regard.engine.kernels.gemm_int8 import INPUT, rounded_group
from regard.engine.kernels.linear_layer import (
    MANY,
    blocks_of,
    float_outputs,
    float_outputs_of_many,
    group_of,
    int8_outputs,
    int8_outputs_of_many,
    parts_weights,
    row_of,
)
from regard.engine.kernels.llvm import KEPT, bytes_, compiled, fetch_add, floats, half_at, int32s, int64s, peek, relax
from regard.engine.kernels.prefill_attention import attend_together
from regard.engine.quantize import BLOCK, GROUP

OPEN, HELPERS, COUNTERS = 0, 8, 16  # places in the shared state, on cache lines of their own
SHARES = 8  # of a stage, for each core: the last one to end is not waited for long
_yield: Any = types.ExternalFunction("sched_yield", types.int32()) if hasattr(os, "sched_yield") else None


@compiled
def row_of_table(table: int, scales: int, which: int, y: Any, width: int, scale: float) -> None:
    """A row of an int8 matrix as numbers."""
    block, lane, groups = which // BLOCK, which % BLOCK, (width + GROUP - 1) // GROUP
    for group in range(block * groups, (block + 1) * groups):
        w = bytes_(table + group * GROUP * BLOCK + 4 * lane)
        step = half_at(scales + 2 * (group * BLOCK + lane)) * np.float32(scale)
        first = (group - block * groups) * GROUP
        for i in range(min(GROUP, width - first)):
            y[first + i] = np.float32((w[i // 4 * 4 * BLOCK + i % 4] & 255) - 128) * step


@compiled
def rows_of_table(table: int, scales: int, ids: int, y: int, count: int, width: int, scale: float) -> None:
    for row in range(count):
        row_of_table(table, scales, int64s(ids)[row], floats(y + 4 * row * width), width, scale)


@compiled
def embed(p: Any, frame: Any, row: int) -> None:
    """The newest token of a row takes a slot, then its row of the table, and that of its place if places have one."""
    slot = frame.slot + row
    int32s(frame.own)[row], int32s(frame.places)[row], int32s(frame.seen0)[row] = slot, frame.length, frame.length + 1
    int32s(frame.table0)[row * frame.longest0 + frame.length] = slot
    y, which, width = floats(row_of(frame, p.target, p.target_width, row)), int64s(frame.ids)[row], p.target_width
    if p.scales:
        row_of_table(p.weight, p.scales, which, y, width, p.number)
    else:
        token = floats(p.weight + 4 * which * width)
        for i in range(width):
            y[i] = token[i] * np.float32(p.number)
    if p.other:
        place = floats(p.other + 4 * int32s(frame.places)[row] * width)
        for i in range(width):
            y[i] += place[i]


@compiled
def norm(p: Any, frame: Any, row: int) -> None:
    """LayerNorm if `adds` says that the mean is taken away, else RMSNorm."""
    x, y = floats(row_of(frame, p.source, p.source_width, row)), floats(row_of(frame, p.target, p.target_width, row))
    weight, bias, width = floats(p.weight), floats(p.bias), p.inputs
    mean, square = np.float32(0.0), np.float32(0.0)
    if p.adds:
        for i in range(width):
            mean += x[i]
        mean /= np.float32(width)
    for i in range(width):
        square += (x[i] - mean) * (x[i] - mean)
    scale = np.float32(1.0 / math.sqrt(square / width + p.number))
    for i in range(width):
        y[i] = (x[i] - mean) * scale
    if p.weight:
        for i in range(width):
            y[i] *= weight[i]
    if p.bias:
        for i in range(width):
            y[i] += bias[i]


@compiled
def quantise(p: Any, frame: Any, row: int, room: int) -> None:
    """A row becomes bytes, each group of inputs with a scale of its own. The last group is filled up with zeros."""
    groups, full = (p.inputs + GROUP - 1) // GROUP, p.inputs // GROUP
    x = row_of(frame, p.source, p.source_width, row)
    for g in range(groups):
        place = group_of(frame, row, g, groups)
        q, scale, less = frame.bytes + place * GROUP * INPUT, frame.scales + 4 * place, frame.less + 4 * place
        if g < full:
            rounded_group(x + 4 * g * GROUP, q, scale, less)
        else:
            last = floats(room)
            for i in range(GROUP):
                last[i] = floats(x)[full * GROUP + i] if full * GROUP + i < p.inputs else np.float32(0.0)
            rounded_group(room, q, scale, less)


@compiled
def turn(p: Any, frame: Any, row: int) -> None:
    """Rotary positions of `heads` heads, then a norm of each if a number is given to it."""
    half = p.head_dim // 2
    place = int32s(frame.places)[row]
    sines, cosines = floats(p.weight + 4 * place * p.head_dim), floats(p.weight + 4 * (place * p.head_dim + half))
    for h in range(p.heads):
        x = floats(row_of(frame, p.source, p.source_width, row) + 4 * h * p.head_dim)
        for i in range(half):
            a, b = x[i], x[half + i]
            x[i] = a * cosines[i] - b * sines[i]
            x[half + i] = b * cosines[i] + a * sines[i]
        if p.number > 0:
            square = np.float32(0.0)
            for i in range(p.head_dim):
                square += x[i] * x[i]
            scale = np.float32(1.0 / math.sqrt(square / p.head_dim + p.number))
            for i in range(p.head_dim):
                x[i] *= scale


@compiled
def gate(p: Any, frame: Any, row: int) -> None:
    y, x = floats(row_of(frame, p.target, p.target_width, row)), floats(row_of(frame, p.source, p.source_width, row))
    for i in range(p.inputs):
        y[i] *= x[i]


@compiled
def crowds_of(p: Any, frame: Any) -> int:
    return frame.crowded1 if p.memory else frame.crowded0


@compiled
def pieces(stage: Any, code: Any, frame: Any) -> int:
    if stage.cut == ROWS:
        return frame.rows
    if stage.cut == HEADS:
        p = code[stage.first]
        return (crowds_of(p, frame) or frame.rows) * p.kv_heads
    total = 0
    for i in range(stage.first, stage.first + stage.count):
        total += blocks_of(code[i])
    return total


@compiled
def do(stage: Any, code: Any, frame: Any, piece: int, room: int) -> None:
    if stage.cut == OUTPUTS:
        i = stage.first
        while piece >= blocks_of(code[i]):
            piece -= blocks_of(code[i])
            i += 1
        if code[i].scales and parts_weights(frame):
            int8_outputs_of_many(code[i], frame, piece, room)
        elif code[i].scales:
            int8_outputs(code[i], frame, piece, room)
        elif frame.rows >= MANY:
            float_outputs_of_many(code[i], frame, piece, room)
        else:
            float_outputs(code[i], frame, piece, room)
    elif stage.cut == HEADS:
        p = code[stage.first]
        crowds = crowds_of(p, frame)
        if crowds:
            attend_together(p, frame, piece % crowds, piece // crowds, room)
        else:
            attend(p, frame, piece % frame.rows, piece // frame.rows, room)
    else:
        for i in range(stage.first, stage.first + stage.count):
            p = code[i]
            if p.op == EMBED:
                embed(p, frame, piece)
            elif p.op == NORM:
                norm(p, frame, piece)
            elif p.op == QUANTISE:
                quantise(p, frame, piece, room)
            elif p.op == TURN:
                turn(p, frame, piece)
            elif p.op == KEEP:
                keep(p, frame, piece)
            elif p.op == GATE:
                gate(p, frame, piece)


@compiled
def pause(times: int) -> int:
    """Waiting for another core; after a while it may need this one."""
    relax()
    if _yield is not None and times % 1000 == 999:
        _yield()
    return times + 1


@compiled
def work(stages: Any, code: Any, frames: Any, state: int, me: int) -> None:
    frame = frames[0]
    room = frame.room + me * frame.room_size
    for s in range(len(stages)):
        count = pieces(stages[s], code, frame)
        taken, done = state + 8 * (COUNTERS + 16 * s), state + 8 * (COUNTERS + 16 * s + 8)
        some = max(1, count // (SHARES * frame.threads)) if frame.threads > 1 else count
        begin = fetch_add(taken, some)
        while begin < count:
            end = min(begin + some, count)
            for piece in range(begin, end):
                do(stages[s], code, frame, piece, room)
            fetch_add(done, end - begin)
            begin = fetch_add(taken, some)
        waited = 0
        while peek(done) < count:
            waited = pause(waited)


@compiled
def lead(stages: Any, code: Any, frames: Any, state: int) -> None:
    """Run a program. Those who help may come until it is closed, and are waited for if they came."""
    fetch_add(state + 8 * OPEN, 1)
    work(stages, code, frames, state, 0)
    fetch_add(state + 8 * OPEN, -1)
    waited = 0
    while peek(state + 8 * HELPERS) > 0:
        waited = pause(waited)


@compiled
def help_out(stages: Any, code: Any, frames: Any, state: int, me: int) -> None:
    fetch_add(state + 8 * HELPERS, 1)
    if peek(state + 8 * OPEN) == 1 and me < frames[0].threads:  # one of an earlier, larger crew has no room
        work(stages, code, frames, state, me)
    fetch_add(state + 8 * HELPERS, -1)


def forget_older() -> None:
    """What was compiled before a file beside this one changed: Numba looks at one file only."""
    if KEPT is None:
        return
    changed = max(file.stat().st_mtime for file in Path(__file__).parents[1].rglob("*.py"))
    for kept in Path(lead.stats.cache_path).glob("*.nbi"):  # type: ignore[attr-defined]
        if kept.stat().st_mtime < changed:
            kept.unlink(missing_ok=True)


forget_older()
