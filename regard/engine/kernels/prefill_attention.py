"""Attention of many rows to the same slots, such as the tokens of a text: keys and values are laid out once for all.

y_r = Σ_s softmax(q_r · k_s / √E) v_s,   as two products of matrices with a softmax between them
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from regard.engine.kernels.decode_attention import answers, number_at
from regard.engine.kernels.elementwise import exp
from regard.engine.kernels.linear_layer import row_of
from regard.engine.kernels.llvm import LANES, compiled, floats, half_at, int32s, nan, not_finite
from regard.engine.kernels.packed_gemm import PANEL_ROWS, half_turned, product, turned, whole

LONGEST = 2048  # slots that are laid out: more would not stay near the processor
LEAST = 8  # rows of a crowd: fewer are not worth it


@compiled
def powers(x: Any, count: int, size: int, scale: float) -> Any:
    """A softmax that is not divided by the sum yet, which is returned. After `count` numbers there are zeros."""
    for s in range(count, size):
        x[s] = np.float32(-1e30)  # whose power is nothing: so only whole registers are worked on
    largest, total = np.float32(-3e38), np.float32(0.0)
    for s in range(size):
        largest = max(largest, x[s])
    for s in range(size):
        x[s] = exp((x[s] - largest) * np.float32(scale))
        total += x[s]
    return total


@compiled
def attend_together(p: Any, frame: Any, crowd: int, group: int, room: int) -> None:
    """One head of keys and values, and all queries of a crowd that share it."""
    crowds = int32s(frame.crowds1 if p.memory else frame.crowds0)
    first, rows = crowds[2 * crowd], crowds[2 * crowd + 1]
    longest = frame.longest1 if p.memory else frame.longest0
    line = int32s(frame.lines1 if p.memory else frame.lines0)[first]
    seen = int32s(frame.seen1 if p.memory else frame.seen0)
    slots = (frame.table1 if p.memory else frame.table0) + 4 * line * longest
    most = 0
    for row in range(first, first + rows):
        most = max(most, seen[row])
    E, S = p.head_dim, whole(most)
    keys, values, weights = room, room + 4 * E * S, room + 8 * E * S
    totals = floats(weights + 4 * PANEL_ROWS * S)
    lay_out(p, frame, group, slots, keys, values, most, S)
    sharing = p.heads // p.kv_heads
    for head in range(group * sharing, (group + 1) * sharing):
        for row in range(first, first + rows, PANEL_ROWS):
            some = min(PANEL_ROWS, first + rows - row)
            q = row_of(frame, p.source, p.source_width, row) + 4 * head * E
            y = row_of(frame, p.target, p.target_width, row) + 4 * head * E
            product(q, keys, weights, some, E, S, 4 * p.source_width, 4 * S)
            for r in range(some):
                scores = weights + 4 * r * S
                odd = not_finite(scores, seen[row + r])  # `exp` would make numbers of what is none
                total = powers(floats(scores), seen[row + r], S, p.number)
                totals[r] = nan() if odd else total
            product(weights, values, y, some, most, E, 4 * S, 4 * p.target_width)
            for r in range(some):
                mixed = floats(y + 4 * r * p.target_width)
                for i in range(E):
                    mixed[i] /= totals[r]


@compiled
def lay_out(p: Any, frame: Any, group: int, slots: int, keys: int, values: int, count: int, S: int) -> None:
    """Keys as (E,S), values as (S,E)."""
    from_keys, from_values, many = answers(p, frame)
    E, size = p.head_dim, 2 if p.half else 4
    from_keys, from_values = from_keys + size * group * many * E, from_values + size * group * many * E
    full = count // LANES * LANES
    for s in range(0, full, LANES):
        for i in range(0, E, LANES):
            if p.half:
                half_turned(from_keys + size * i, slots + 4 * s, keys + 4 * (i * S + s), size * E, 4 * S)
            else:
                turned(from_keys + size * i, slots + 4 * s, keys + 4 * (i * S + s), size * E, 4 * S)
    slot, k, v = int32s(slots), floats(keys), floats(values)
    for i in range(E):
        for s in range(full, S):
            k[i * S + s] = number_at(from_keys, slot[s] * E + i, p.half) if s < count else np.float32(0.0)
    for s in range(count):
        if p.half:
            for i in range(E):
                v[s * E + i] = half_at(from_values + 2 * (slot[s] * E + i))
        else:
            for i in range(E):
                v[s * E + i] = floats(from_values)[slot[s] * E + i]


def room_for(S: int, E: int) -> int:
    """Numbers that a core needs to attend to so many slots."""
    return (2 * E + PANEL_ROWS) * -(-S // LANES) * LANES + PANEL_ROWS


def crowds_of(lines: Tensor) -> Tensor:
    """The first row and the number of those, one after the other, that see the same line, (N,2); none if few do."""
    counts = torch.unique_consecutive(lines, return_counts=True)[1].int()
    if len(lines) < LEAST * len(counts):
        return torch.empty(0, 2, dtype=torch.int32)
    return torch.stack((counts.cumsum(0, dtype=torch.int32) - counts, counts), 1)
