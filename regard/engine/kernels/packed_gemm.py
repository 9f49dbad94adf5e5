"""Products of small matrices in fp32, whose right side has been laid out with outputs side by side.

y = x w          x (rows, inputs), w (inputs, columns): no sums across a register, so every instruction multiplies
"""

from __future__ import annotations

from regard.engine.kernels.attention_tiles import transpose_tile
from regard.engine.kernels.gemm_fp32 import panel_tile
from regard.engine.kernels.llvm import LANES, REGISTERS, compiled

WIDEST = REGISTERS // 8  # registers of outputs that a tile has
PANEL = WIDEST * LANES
PANEL_ROWS = 4 if WIDEST == 4 else 6  # of a tile: as many as leave registers for what is multiplied
_widest, _two, _one = (panel_tile(PANEL_ROWS, registers) for registers in (WIDEST, 2, 1))
_row4, _row2, _row1 = (panel_tile(1, registers) for registers in (4, 2, 1))
turned, half_turned = (transpose_tile(half) for half in (False, True))


@compiled
def whole(count: int) -> int:
    """Rounded up to whole registers."""
    return (count + LANES - 1) // LANES * LANES


@compiled
def product(x: int, w: int, y: int, rows: int, inputs: int, columns: int, across: int, down: int) -> None:
    """y = x w for up to PANEL_ROWS rows. Those of x are `across` bytes apart, those of y `down`; w has no gaps."""
    n, most = 0, WIDEST if rows == PANEL_ROWS else 4
    while n < columns:
        left = (columns - n) // LANES
        registers = most if left >= most else 2 if left >= 2 else 1
        here, there = w + 4 * n, y + 4 * n
        if rows == PANEL_ROWS and registers == WIDEST:
            _widest(x, here, there, inputs, across, 4 * columns, down)
        elif rows == PANEL_ROWS and registers == 2:
            _two(x, here, there, inputs, across, 4 * columns, down)
        elif rows == PANEL_ROWS:
            _one(x, here, there, inputs, across, 4 * columns, down)
        else:
            for r in range(rows):
                if registers == 4:
                    _row4(x + r * across, here, there + r * down, inputs, across, 4 * columns, down)
                elif registers == 2:
                    _row2(x + r * across, here, there + r * down, inputs, across, 4 * columns, down)
                else:
                    _row1(x + r * across, here, there + r * down, inputs, across, 4 * columns, down)
        n += LANES * registers
