"""Products of small matrices in fp32, whose right side has been laid out with outputs side by side.

y = x w          x (rows, inputs), w (inputs, columns): no sums across a register, so every instruction multiplies
"""

from __future__ import annotations

from regard.speed.lanes import LANES, compiled
from regard.speed.recall import transpose_tile
from regard.speed.tiles import panel_tile

PANEL_ROWS = 4  # that a tile has
_wide4, _wide2, _wide1 = (panel_tile(PANEL_ROWS, registers) for registers in (4, 2, 1))
_row4, _row2, _row1 = (panel_tile(1, registers) for registers in (4, 2, 1))
turned, half_turned = (transpose_tile(half) for half in (False, True))


@compiled
def whole(count: int) -> int:
    """Rounded up to whole registers."""
    return (count + LANES - 1) // LANES * LANES


@compiled
def product(x: int, w: int, y: int, rows: int, inputs: int, columns: int, across: int, down: int) -> None:
    """y = x w for up to PANEL_ROWS rows. Those of x are `across` bytes apart, those of y `down`; w has no gaps."""
    n = 0
    while n < columns:
        left = columns - n
        width = 4 * LANES if left >= 4 * LANES else 2 * LANES if left >= 2 * LANES else LANES
        here, there = w + 4 * n, y + 4 * n
        if rows == PANEL_ROWS and width == 4 * LANES:
            _wide4(x, here, there, inputs, across, 4 * columns, down)
        elif rows == PANEL_ROWS and width == 2 * LANES:
            _wide2(x, here, there, inputs, across, 4 * columns, down)
        elif rows == PANEL_ROWS:
            _wide1(x, here, there, inputs, across, 4 * columns, down)
        else:
            for r in range(rows):
                if width == 4 * LANES:
                    _row4(x + r * across, here, there + r * down, inputs, across, 4 * columns, down)
                elif width == 2 * LANES:
                    _row2(x + r * across, here, there + r * down, inputs, across, 4 * columns, down)
                else:
                    _row1(x + r * across, here, there + r * down, inputs, across, 4 * columns, down)
        n += width
