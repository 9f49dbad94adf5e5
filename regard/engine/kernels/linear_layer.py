"""Linear layers: a block of outputs for all rows, then what is done to each output beside the product.

y = activation(x Wᵀ + b),   or added to what is there
"""

from __future__ import annotations

from typing import Any

from regard.engine.kernels.elementwise import activate
from regard.engine.kernels.gemm_fp32 import float_tile
from regard.engine.kernels.gemm_int8 import INPUT, MOST_ROWS, group_tile, int8_tile, part_group
from regard.engine.kernels.llvm import LANES, VNNI, compiled, floats, int32s, nan, not_finite
from regard.engine.kernels.packed_gemm import PANEL, PANEL_ROWS, product, turned, whole
from regard.engine.quantize import BLOCK, GROUP

CROWD = 96  # rows whose outputs stay near while all weights of a block go past
FEW = 8  # rows for which weights are not laid out
ROOM = (
    max(MOST_ROWS, 0 if VNNI else CROWD + GROUP // 2) * BLOCK
)  # numbers that a core needs for a tile, or a crowd and a group
CHUNK = 64  # float outputs that a core takes at once
MANY = 32  # rows for which weights are laid out

_i1, _i2, _i3, _i4 = (int8_tile(rows) for rows in (1, 2, 3, 4))
_g1, _g2, _g3, _g4 = (group_tile(rows) for rows in (1, 2, 3, 4))
_f1, _f2, _f3, _f4 = (float_tile(rows, 1) for rows in (1, 2, 3, 4))
WIDE = LANES // 4
_f4w = float_tile(4, WIDE)


@compiled
def row_of(frame: Any, place: int, width: int, row: int) -> int:
    return frame.scratch + 4 * (frame.rows * place + width * row)


@compiled
def target_of(p: Any, frame: Any, row: int) -> int:
    """What a program puts out does not lie among its own numbers."""
    if p.target < 0:
        return frame.out + 4 * p.target_width * row
    return row_of(frame, p.target, p.target_width, row)


@compiled
def blocks_of(p: Any) -> int:
    size = BLOCK if p.scales else CHUNK
    return (p.outputs + size - 1) // size


@compiled
def finish(p: Any, found: int, y: Any, first: int, width: int) -> None:
    """What is done to outputs beside the product. What an activation would make of NaN stays NaN."""
    room, bias = floats(found), floats(p.bias + 4 * first)
    if p.bias:
        for i in range(width):
            room[i] += bias[i]
    if p.activation:
        odd = not_finite(found, width)
        activate(room, width, p.activation, p.number)
        if odd:
            room[0] = nan()
    if p.adds:
        for i in range(width):
            y[i] += room[i]
    else:
        for i in range(width):
            y[i] = room[i]


@compiled
def int8_outputs(p: Any, frame: Any, block: int, room: int) -> None:
    groups = (p.inputs + GROUP - 1) // GROUP
    first = block * BLOCK
    w, scales = p.weight + first * groups * GROUP, p.scales + 2 * first * groups
    for row in range(0, frame.rows, MOST_ROWS):
        done = row * groups
        q, qs, less = frame.bytes + done * GROUP * INPUT, frame.scales + 4 * done, frame.less + 4 * done
        rows = min(MOST_ROWS, frame.rows - row)
        if rows == 4:
            _i4(q, qs, less, w, scales, room, groups, 4 * BLOCK)
        elif rows == 3:
            _i3(q, qs, less, w, scales, room, groups, 4 * BLOCK)
        elif rows == 2:
            _i2(q, qs, less, w, scales, room, groups, 4 * BLOCK)
        else:
            _i1(q, qs, less, w, scales, room, groups, 4 * BLOCK)
        for r in range(rows):
            y = floats(target_of(p, frame, row + r) + 4 * first)
            finish(p, room + 4 * r * BLOCK, y, first, min(BLOCK, p.outputs - first))


@compiled
def parts_weights(frame: Any) -> bool:
    return not VNNI and frame.rows >= FEW


@compiled
def group_of(frame: Any, row: int, group: int, groups: int) -> int:
    """Where a group of inputs of a row lies: those of a row together, or those of all rows."""
    return group * frame.rows + row if parts_weights(frame) else row * groups + group


@compiled
def int8_outputs_of_many(p: Any, frame: Any, block: int, room: int) -> None:
    """Weights are parted once for many rows, a group at a time, and never leave the nearest cache meanwhile."""
    groups = (p.inputs + GROUP - 1) // GROUP
    first = block * BLOCK
    w, scales = p.weight + first * groups * GROUP, p.scales + 2 * first * groups
    found, parted = floats(room), room + 4 * CROWD * BLOCK
    for begin in range(0, frame.rows, CROWD):
        rows = min(CROWD, frame.rows - begin)
        for i in range(rows * BLOCK):
            found[i] = 0
        for group in range(groups):
            part_group(w + group * GROUP * BLOCK, parted)
            ws = scales + 2 * group * BLOCK
            for row in range(0, rows, MOST_ROWS):
                done, left, y = group * frame.rows + begin + row, rows - row, room + 4 * row * BLOCK
                q, qs, less = frame.bytes + done * GROUP * INPUT, frame.scales + 4 * done, frame.less + 4 * done
                if left >= 4:
                    _g4(q, qs, less, parted, ws, y, 4 * BLOCK)
                elif left == 3:
                    _g3(q, qs, less, parted, ws, y, 4 * BLOCK)
                elif left == 2:
                    _g2(q, qs, less, parted, ws, y, 4 * BLOCK)
                else:
                    _g1(q, qs, less, parted, ws, y, 4 * BLOCK)
        for r in range(rows):
            y = floats(target_of(p, frame, begin + r) + 4 * first)
            finish(p, room + 4 * r * BLOCK, y, first, min(BLOCK, p.outputs - first))


@compiled
def float_outputs_of_many(p: Any, frame: Any, chunk: int, room: int) -> None:
    """Weights are turned once for all rows, so that no sum goes across a register; panels are as wide as a tile."""
    first, inputs, across = chunk * CHUNK, p.inputs, 4 * p.source_width
    width = min(CHUNK, p.outputs - first)
    columns = whole(width)
    panels = room + 4 * CROWD * CHUNK
    lay_out(p.weight + 4 * first * inputs, panels, width, columns, inputs, panels + 4 * inputs * columns)
    for begin in range(0, frame.rows, CROWD):
        end = min(begin + CROWD, frame.rows)
        for n in range(0, columns, PANEL):
            for row in range(begin, end, PANEL_ROWS):
                x, rows = row_of(frame, p.source, p.source_width, row), min(PANEL_ROWS, end - row)
                y = room + 4 * ((row - begin) * CHUNK + n)
                product(x, panels + 4 * n * inputs, y, rows, inputs, min(PANEL, columns - n), across, 4 * CHUNK)
        for row in range(begin, end):
            y = floats(target_of(p, frame, row) + 4 * first)
            finish(p, room + 4 * (row - begin) * CHUNK, y, first, width)


@compiled
def lay_out(weight: int, panels: int, width: int, columns: int, inputs: int, order: int) -> None:
    """(width, inputs) becomes (inputs, PANEL), once for each panel; the last may be narrower."""
    w = floats(weight)
    for i in range(LANES):
        int32s(order)[i] = i
    i_whole = inputs // LANES * LANES
    for begin in range(0, columns, PANEL):
        wide, panel = min(PANEL, columns - begin), panels + 4 * begin * inputs
        n_whole, y = max(0, min(wide, (width - begin) // LANES * LANES)), floats(panel)
        for n in range(0, n_whole, LANES):
            for i in range(0, i_whole, LANES):
                source = weight + 4 * ((begin + n) * inputs + i)
                turned(source, order, panel + 4 * (i * wide + n), 4 * inputs, 4 * wide)
        for i in range(inputs):
            for n in range(n_whole if i < i_whole else 0, wide):
                y[i * wide + n] = w[(begin + n) * inputs + i] if begin + n < width else 0


def room_for_weights(inputs: int) -> int:
    """Numbers that a core needs to turn a chunk of weights."""
    return (inputs + CROWD) * CHUNK + LANES


@compiled
def float_outputs(p: Any, frame: Any, chunk: int, room: int) -> None:
    first = chunk * CHUNK
    width, inputs, across = min(CHUNK, p.outputs - first), p.inputs, 4 * p.source_width
    for row in range(0, frame.rows, MOST_ROWS):
        x = row_of(frame, p.source, p.source_width, row)
        rows, n = min(MOST_ROWS, frame.rows - row), 0
        while frame.rows > MOST_ROWS and rows == 4 and n + WIDE <= width:
            _f4w(x, p.weight + 4 * (first + n) * inputs, room + 4 * n, inputs, across, 4 * inputs, 4 * CHUNK)
            n += WIDE
        while n < width:
            w, y = p.weight + 4 * (first + n) * inputs, room + 4 * n
            if rows == 4:
                _f4(x, w, y, inputs, across, 4 * inputs, 4 * CHUNK)
            elif rows == 3:
                _f3(x, w, y, inputs, across, 4 * inputs, 4 * CHUNK)
            elif rows == 2:
                _f2(x, w, y, inputs, across, 4 * inputs, 4 * CHUNK)
            else:
                _f1(x, w, y, inputs, across, 4 * inputs, 4 * CHUNK)
            n += 1
        for r in range(rows):
            found = room + 4 * r * CHUNK
            if inputs % LANES:
                left_over(floats(x + r * across), floats(p.weight + 4 * first * inputs), floats(found), inputs, width)
            finish(p, found, floats(target_of(p, frame, row + r) + 4 * first), first, width)


@compiled
def left_over(x: Any, w: Any, y: Any, inputs: int, width: int) -> None:
    """The inputs that do not fill a register."""
    for n in range(width):
        for i in range(inputs // LANES * LANES, inputs):
            y[n] += x[i] * w[n * inputs + i]
