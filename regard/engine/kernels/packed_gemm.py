"""Small fp32 matrix products with a packed right side: outputs are contiguous, so no horizontal sums are needed.

y = x w          x (rows, inputs), w (inputs, columns)          panels as in GotoBLAS (Goto & van de Geijn 2008)
"""

from __future__ import annotations

from regard.engine.kernels.attention_tiles import transpose_tile
from regard.engine.kernels.gemm_fp32 import panel_tile
from regard.engine.kernels.llvm import LANES, REGISTERS, dispatch, jit, llvm_intrinsic

TILE_REGISTERS = REGISTERS // 8  # registers of outputs of a full tile
PANEL_WIDTH = TILE_REGISTERS * LANES
PANEL_ROWS = 4 if TILE_REGISTERS == 4 else 6  # of a tile: the sums leave registers for the operands
# One variant for each number of registers, the first argument
_full_tile = dispatch({registers: panel_tile(PANEL_ROWS, registers) for registers in {TILE_REGISTERS, 2, 1}})
_single_row = dispatch({registers: panel_tile(1, registers) for registers in (4, 2, 1)})
transpose_fp32, transpose_fp16 = (llvm_intrinsic(transpose_tile(fp16)) for fp16 in (False, True))


@jit
def round_up_to_lanes(count: int) -> int:
    """Rounded up to full registers."""
    return (count + LANES - 1) // LANES * LANES


@jit
def packed_matmul(x: int, w: int, y: int, rows: int, inputs: int, columns: int, x_stride: int, y_stride: int) -> None:
    """y = x w for up to PANEL_ROWS rows. Strides of x and y are in bytes; w is contiguous."""
    n, max_registers = 0, TILE_REGISTERS if rows == PANEL_ROWS else 4
    while n < columns:
        registers_left = (columns - n) // LANES
        registers = max_registers if registers_left >= max_registers else 2 if registers_left >= 2 else 1
        w_panel, y_panel = w + 4 * n, y + 4 * n
        if rows == PANEL_ROWS:
            _full_tile(registers, x, w_panel, y_panel, inputs, x_stride, 4 * columns, y_stride)
        else:
            for r in range(rows):
                x_row, y_row = x + r * x_stride, y_panel + r * y_stride
                _single_row(registers, x_row, w_panel, y_row, inputs, x_stride, 4 * columns, y_stride)
        n += LANES * registers
