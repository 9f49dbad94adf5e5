"""Attention to what is remembered: keys and values lie in slots, and each row has a list of those it may see.

y = Σ_s softmax(q · k_s / √E) v_s
"""

from __future__ import annotations

from typing import Any

import numpy as np

from regard.engine.kernels.attention_tiles import mix_tile, scores_tile
from regard.engine.kernels.elementwise import exp
from regard.engine.kernels.linear_layer import row_of
from regard.engine.kernels.llvm import LANES, compiled, floats, half_at, int32s, nan, not_finite, put_half

_scores32, _scores64, _scores128 = (scores_tile(width // LANES, False) for width in (32, 64, 128))
_half_scores32, _half_scores64, _half_scores128 = (scores_tile(width // LANES, True) for width in (32, 64, 128))
_mix32, _mix64, _mix128 = (mix_tile(width // LANES, False) for width in (32, 64, 128))
_half_mix32, _half_mix64, _half_mix128 = (mix_tile(width // LANES, True) for width in (32, 64, 128))


@compiled
def answers(p: Any, frame: Any) -> tuple[int, int, int]:
    """Where keys and values of a layer begin, and how many slots each of its heads has."""
    width = p.kv_heads * p.head_dim
    slots = frame.slots1 if p.memory else frame.slots0
    size = slots * width * (2 if p.half else 4)
    keys = (frame.memory1 if p.memory else frame.memory0) + 2 * p.layer * size
    return keys, keys + size, slots


@compiled
def keep(p: Any, frame: Any, row: int) -> None:
    """Keys (at `source`) and values (at `other`) of a row go to its slot of the memory."""
    keys, values, slots = answers(p, frame)
    slot, E = int32s(frame.own)[row], p.head_dim
    wide = p.kv_heads * E
    from_k, from_v = floats(row_of(frame, p.source, wide, row)), floats(row_of(frame, p.other, wide, row))
    for head in range(p.kv_heads):
        place = (head * slots + slot) * E
        put(keys, place, from_k, head * E, E, p.half)
        put(values, place, from_v, head * E, E, p.half)


@compiled
def put(memory: int, place: int, x: Any, first: int, E: int, half: int) -> None:
    if half:
        for i in range(E):
            put_half(memory + 2 * (place + i), x[first + i])
    else:
        y = floats(memory + 4 * place)
        for i in range(E):
            y[i] = x[first + i]


@compiled
def attend(p: Any, frame: Any, row: int, group: int, room: int) -> None:
    """One head of keys and values, and all heads of queries that share it."""
    keys, values, many = answers(p, frame)
    longest = frame.longest1 if p.memory else frame.longest0
    line = int32s(frame.lines1 if p.memory else frame.lines0)[row]
    count = int32s(frame.seen1 if p.memory else frame.seen0)[row]
    slots = (frame.table1 if p.memory else frame.table0) + 4 * line * longest
    E, weights = p.head_dim, floats(room)
    before = group * many * E * (2 if p.half else 4)
    keys, values = keys + before, values + before
    sharing = p.heads // p.kv_heads
    for head in range(group * sharing, (group + 1) * sharing):
        q = row_of(frame, p.source, p.source_width, row) + 4 * head * E
        y = row_of(frame, p.target, p.target_width, row) + 4 * head * E
        products(q, keys, slots, room, count, E, p.half)
        if not_finite(room, count):  # `exp` would make numbers of what is none
            for i in range(E):
                floats(y)[i] = nan()
            continue
        largest = np.float32(-3e38)
        for s in range(count):
            weights[s] *= np.float32(p.number)
            largest = max(largest, weights[s])
        total = np.float32(0.0)
        for s in range(count):
            weights[s] = exp(weights[s] - largest)
            total += weights[s]
        for s in range(count):
            weights[s] /= total
        mix(y, values, slots, room, count, E, p.half)


@compiled
def products(q: int, keys: int, slots: int, room: int, count: int, E: int, half: int) -> None:
    """Scores of all keys. Heads of the usual widths have code of their own."""
    if half and E == 64:
        _half_scores64(q, keys, slots, room, count, 2 * E)
    elif half and E == 32:
        _half_scores32(q, keys, slots, room, count, 2 * E)
    elif half and E == 128:
        _half_scores128(q, keys, slots, room, count, 2 * E)
    elif not half and E == 64:
        _scores64(q, keys, slots, room, count, 4 * E)
    elif not half and E == 32:
        _scores32(q, keys, slots, room, count, 4 * E)
    elif not half and E == 128:
        _scores128(q, keys, slots, room, count, 4 * E)
    else:
        slot, asked, scores = int32s(slots), floats(q), floats(room)
        for s in range(count):
            total = np.float32(0.0)
            for i in range(E):
                total += asked[i] * number_at(keys, slot[s] * E + i, half)
            scores[s] = total


@compiled
def mix(y: int, values: int, slots: int, room: int, count: int, E: int, half: int) -> None:
    """The weighted sum of all values."""
    if half and E == 64:
        _half_mix64(y, values, slots, room, count, 2 * E)
    elif half and E == 32:
        _half_mix32(y, values, slots, room, count, 2 * E)
    elif half and E == 128:
        _half_mix128(y, values, slots, room, count, 2 * E)
    elif not half and E == 64:
        _mix64(y, values, slots, room, count, 4 * E)
    elif not half and E == 32:
        _mix32(y, values, slots, room, count, 4 * E)
    elif not half and E == 128:
        _mix128(y, values, slots, room, count, 4 * E)
    else:
        slot, mixed, weights = int32s(slots), floats(y), floats(room)
        for i in range(E):
            mixed[i] = np.float32(0.0)
        for s in range(count):
            for i in range(E):
                mixed[i] += weights[s] * number_at(values, slot[s] * E + i, half)


@compiled
def number_at(memory: int, place: int, half: int) -> Any:
    return half_at(memory + 2 * place) if half else floats(memory)[place]
