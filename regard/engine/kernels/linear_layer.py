"""Linear layers: a block of outputs for all rows, then the epilogue.

y = activation(x Wᵀ + b),   or y += activation(x Wᵀ + b)
"""

from __future__ import annotations

from typing import Any

from regard.engine.kernels.elementwise import activate
from regard.engine.kernels.gemm_fp32 import fp32_tile
from regard.engine.kernels.gemm_int8 import INPUT_BYTES, TILE_ROWS, group_tile, int8_tile, unpack_group
from regard.engine.kernels.llvm import LANES, VNNI, any_nonfinite, dispatch, floats, int32s, jit, llvm_intrinsic, nan
from regard.engine.kernels.packed_gemm import PANEL_ROWS, PANEL_WIDTH, packed_matmul, round_up_to_lanes, transpose_fp32
from regard.engine.quantize import BLOCK, GROUP

CACHED_ROWS = 96  # rows whose outputs stay in the L1/L2 cache while the weights of a block stream past
UNPACK_MIN_ROWS = 8  # rows from which int8 weights are unpacked (without VNNI)
# Floats per thread: the sums of a tile; or those of CACHED_ROWS, and an unpacked group
TILE_WORKSPACE = max(TILE_ROWS, 0 if VNNI else CACHED_ROWS + GROUP // 2) * BLOCK
FP32_CHUNK = 64  # outputs of a work item in fp32
PACK_MIN_ROWS = 32  # rows from which fp32 weights are packed into panels

# One variant for each number of rows, the first argument
_int8_rows = dispatch({rows: int8_tile(rows) for rows in range(1, TILE_ROWS + 1)})
_group_rows = dispatch({rows: group_tile(rows) for rows in range(1, TILE_ROWS + 1)})
_fp32_rows = dispatch({rows: fp32_tile(rows, 1) for rows in range(1, TILE_ROWS + 1)})
WIDE_OUTPUTS = LANES // TILE_ROWS
_fp32_wide = llvm_intrinsic(fp32_tile(TILE_ROWS, WIDE_OUTPUTS))


@jit
def scratch_row(frame: Any, offset: int, width: int, row: int) -> int:
    return frame.scratch + 4 * (frame.rows * offset + width * row)


@jit
def target_row(p: Any, frame: Any, row: int) -> int:
    """Address of a row of the target: a scratch buffer, or the output of the program."""
    if p.target < 0:
        return frame.out + 4 * p.target_width * row
    return scratch_row(frame, p.target, p.target_width, row)


@jit
def num_rows(p: Any, frame: Any) -> int:
    """Rows that a layer computes: all of them, or the first ones for the output of the program."""
    return frame.out_rows if p.target < 0 else frame.rows


@jit
def output_blocks(p: Any) -> int:
    size = BLOCK if p.scales else FP32_CHUNK
    return (p.outputs + size - 1) // size


@jit
def epilogue(p: Any, address: int, y: Any, first: int, width: int) -> None:
    """Bias, activation, then store or accumulate the sums at `address`. NaN stays NaN through the activation."""
    sums, bias = floats(address), floats(p.bias + 4 * first)
    if p.bias:
        for i in range(width):
            sums[i] += bias[i]
    if p.activation:
        nonfinite = any_nonfinite(address, width)
        activate(sums, width, p.activation, p.scalar)
        if nonfinite:
            sums[0] = nan()
    if p.accumulate:
        for i in range(width):
            y[i] += sums[i]
    else:
        for i in range(width):
            y[i] = sums[i]


@jit
def quantized_inputs(frame: Any, group: int) -> tuple[int, int, int]:
    return (  # addresses of a group, its scale and its zero-point term
        frame.quantized + group * GROUP * INPUT_BYTES,
        frame.scales + 4 * group,
        frame.zero_point_term + 4 * group,
    )


@jit
def int8_linear(p: Any, frame: Any, block: int, workspace: int) -> None:
    groups = (p.inputs + GROUP - 1) // GROUP
    first = block * BLOCK
    w, scales = p.weight + first * groups * GROUP, p.scales + 2 * first * groups
    count = num_rows(p, frame)
    for row in range(0, count, TILE_ROWS):
        q, qs, zp = quantized_inputs(frame, row * groups)
        rows = min(TILE_ROWS, count - row)
        _int8_rows(rows, q, qs, zp, w, scales, workspace, groups, 4 * BLOCK)
        for r in range(rows):
            y = floats(target_row(p, frame, row + r) + 4 * first)
            epilogue(p, workspace + 4 * r * BLOCK, y, first, min(BLOCK, p.outputs - first))


@jit
def unpacks_weights(frame: Any) -> bool:
    return not VNNI and frame.rows >= UNPACK_MIN_ROWS


@jit
def group_index(frame: Any, row: int, group: int, groups: int) -> int:
    """Index of a group of quantized inputs: row-major, or group-major where weights are unpacked."""
    return group * frame.rows + row if unpacks_weights(frame) else row * groups + group


@jit
def int8_linear_unpacked(p: Any, frame: Any, block: int, workspace: int) -> None:
    """Each group of weights is unpacked once for many rows, and stays in the L1 cache meanwhile."""
    groups = (p.inputs + GROUP - 1) // GROUP
    first = block * BLOCK
    w, scales = p.weight + first * groups * GROUP, p.scales + 2 * first * groups
    sums, unpacked = floats(workspace), workspace + 4 * CACHED_ROWS * BLOCK
    count = num_rows(p, frame)
    for begin in range(0, count, CACHED_ROWS):
        rows = min(CACHED_ROWS, count - begin)
        for i in range(rows * BLOCK):
            sums[i] = 0
        for group in range(groups):
            unpack_group(w + group * GROUP * BLOCK, unpacked)
            ws = scales + 2 * group * BLOCK
            for row in range(0, rows, TILE_ROWS):
                q, qs, zp = quantized_inputs(frame, group * frame.rows + begin + row)
                y = workspace + 4 * row * BLOCK
                _group_rows(min(TILE_ROWS, rows - row), q, qs, zp, unpacked, ws, y, 4 * BLOCK)
        for r in range(rows):
            y = floats(target_row(p, frame, begin + r) + 4 * first)
            epilogue(p, workspace + 4 * r * BLOCK, y, first, min(BLOCK, p.outputs - first))


@jit
def fp32_linear_packed(p: Any, frame: Any, chunk: int, workspace: int) -> None:
    """Weights are packed into panels of a tile's width once for all rows, so that no horizontal sums are needed."""
    first, inputs = chunk * FP32_CHUNK, p.inputs
    width = min(FP32_CHUNK, p.outputs - first)
    columns = round_up_to_lanes(width)
    panels = workspace + 4 * CACHED_ROWS * FP32_CHUNK
    pack_panels(p.weight + 4 * first * inputs, panels, width, columns, inputs, panels + 4 * inputs * columns)
    multiply_panels(p, frame, first, width, columns, panels, workspace)


@jit
def fp32_linear_panels(p: Any, frame: Any, chunk: int, workspace: int) -> None:
    """Weights that were packed when the program was compiled."""
    first = chunk * FP32_CHUNK
    width = min(FP32_CHUNK, p.outputs - first)
    columns = (width + PANEL_WIDTH - 1) // PANEL_WIDTH * PANEL_WIDTH
    multiply_panels(p, frame, first, width, columns, p.weight + 4 * first * p.inputs, workspace)


@jit
def multiply_panels(p: Any, frame: Any, first: int, width: int, columns: int, panels: int, workspace: int) -> None:
    """A chunk of outputs of all rows, which starts at output `first`. Every sum runs over the inputs in their order,
    whatever the number of rows."""
    inputs, x_stride, count = p.inputs, 4 * p.source_width, num_rows(p, frame)
    for begin in range(0, count, CACHED_ROWS):
        end = min(begin + CACHED_ROWS, count)
        for n in range(0, columns, PANEL_WIDTH):
            for row in range(begin, end, PANEL_ROWS):
                x, rows = scratch_row(frame, p.source, p.source_width, row), min(PANEL_ROWS, end - row)
                y = workspace + 4 * ((row - begin) * FP32_CHUNK + n)
                packed_matmul(
                    x, panels + 4 * n * inputs, y, rows, inputs, min(PANEL_WIDTH, columns - n), x_stride, 4 * FP32_CHUNK
                )
        for row in range(begin, end):
            y = floats(target_row(p, frame, row) + 4 * first)
            epilogue(p, workspace + 4 * (row - begin) * FP32_CHUNK, y, first, width)


@jit
def pack_panels(weight: int, panels: int, width: int, columns: int, inputs: int, order: int) -> None:
    """(width, inputs) -> panels of (inputs, PANEL_WIDTH); the last may be narrower."""
    w = floats(weight)
    for i in range(LANES):
        int32s(order)[i] = i
    full_inputs = inputs // LANES * LANES
    for begin in range(0, columns, PANEL_WIDTH):
        panel_width, panel = min(PANEL_WIDTH, columns - begin), panels + 4 * begin * inputs
        full_outputs, y = max(0, min(panel_width, (width - begin) // LANES * LANES)), floats(panel)
        for n in range(0, full_outputs, LANES):
            for i in range(0, full_inputs, LANES):
                source = weight + 4 * ((begin + n) * inputs + i)
                transpose_fp32(source, order, panel + 4 * (i * panel_width + n), 4 * inputs, 4 * panel_width)
        for i in range(inputs):
            for n in range(full_outputs if i < full_inputs else 0, panel_width):
                y[i * panel_width + n] = w[(begin + n) * inputs + i] if begin + n < width else 0


PANEL_WORKSPACE = CACHED_ROWS * FP32_CHUNK  # floats per thread to multiply with packed weights


def packing_workspace(inputs: int) -> int:
    """Floats per thread to pack a chunk of weights."""
    return (inputs + CACHED_ROWS) * FP32_CHUNK + LANES


@jit
def fp32_linear(p: Any, frame: Any, chunk: int, workspace: int) -> None:
    first = chunk * FP32_CHUNK
    width, inputs, x_stride = min(FP32_CHUNK, p.outputs - first), p.inputs, 4 * p.source_width
    count = num_rows(p, frame)
    for row in range(0, count, TILE_ROWS):
        x = scratch_row(frame, p.source, p.source_width, row)
        rows, n = min(TILE_ROWS, count - row), 0
        while count > TILE_ROWS and rows == TILE_ROWS and n + WIDE_OUTPUTS <= width:
            _fp32_wide(
                x, p.weight + 4 * (first + n) * inputs, workspace + 4 * n, inputs, x_stride, 4 * inputs, 4 * FP32_CHUNK
            )
            n += WIDE_OUTPUTS
        while n < width:
            w, y = p.weight + 4 * (first + n) * inputs, workspace + 4 * n
            _fp32_rows(rows, x, w, y, inputs, x_stride, 4 * inputs, 4 * FP32_CHUNK)
            n += 1
        for r in range(rows):
            sums = workspace + 4 * r * FP32_CHUNK
            if inputs % LANES:
                add_remainder(
                    floats(x + r * x_stride), floats(p.weight + 4 * first * inputs), floats(sums), inputs, width
                )
            epilogue(p, sums, floats(target_row(p, frame, row + r) + 4 * first), first, width)


@jit
def add_remainder(x: Any, w: Any, y: Any, inputs: int, width: int) -> None:
    """Add the products of the last inputs, which do not fill a register."""
    for n in range(width):
        for i in range(inputs // LANES * LANES, inputs):
            y[n] += x[i] * w[n * inputs + i]
