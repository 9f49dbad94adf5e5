"""Tiles of an int8 matrix product in LLVM IR, which a plain Numba loop would not compile to.

    y[r, n] = sum over groups g of  a[r, g] * s[g, n] * (sum over k in g of  q[r, k] * w[n, k])

    a, q: scales and int8 values of the inputs      s, w: scales and int8 values of the weights      g: 32 inputs

One tile and one group g, with AVX2: 4 rows x 2 registers x 8 lanes.

                      outputs n of a block of 64, `columns` registers of LANES outputs at a time
                    +-------- register 0 ---------+   +-------- register 1 ---------+
    weights quad 0  | k0..3   k0..3  ...  k0..3   |   | k0..3   k0..3  ...  k0..3   |   a lane: 4 bytes, 4 inputs of
            quad 1  | k4..7   k4..7  ...  k4..7   |   | k4..7   k4..7  ...  k4..7   |   one output, each w + 128
              :     |                             |   |                             |   a group: 8 quads x 64 outputs
            quad 7  | k28..31 k28..31 ... k28..31 |   | k28..31 k28..31 ... k28..31 |   x 4 bytes = 2 KB
                    +--------------+--------------+   +--------------+--------------+
    inputs q[r], one quad: splat to every lane, multiply, add the 4 products of a lane
                                   v                                 v
            row 0   | sums[0][0]: LANES x int32   |   | sums[0][1]                  |   accumulators: in registers for
            row 1   | sums[1][0]                  |   | sums[1][1]                  |   8 quads, starting at zp[r, g] =
            row 2   | sums[2][0]                  |   | sums[2][1]                  |   -128 * (sum over k of q[r, k]),
            row 3   | sums[3][0]                  |   | sums[3][1]                  |   which cancels the 128 of w
                                   |    after the group, in fp32     |
                                   v                                 v
                      y[r, n] += a[r, g] * s[g, n] * sums[r][n]                         y: in memory

    rows of a tile                   1   2   3   4      accumulators take at most half of the registers
    columns, AVX2 (16 registers)     8   4   2   2      LANES = 8
    columns, AVX-512 (32 registers)  4   4   4   4      LANES = 16

Loops, from the outside: groups, tiles of `columns` registers, quads, rows, registers. With VNNI one instruction
(vpdpbusd) takes the 4 products of a lane and their sum. Without it, the even and the odd bytes of a register become
pairs of 16 bits (`unpack_pairs`), and AVX2's vpmaddwd takes 2 products and their sum; no sum can overflow, so the
results are the same. For many rows, `unpack_group` unpacks a group once, and `group_tile` reads its result.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import reduce
from typing import Any, NamedTuple

from llvmlite import ir
from numba import types
from numba.core import cgutils

from regard.engine.kernels.llvm import (
    F16,
    F32,
    I8,
    I16,
    I32,
    LANES,
    REGISTERS,
    VNNI,
    call,
    fma,
    i64,
    lanewise,
    llvm_intrinsic,
    load,
    opaque,
    pointer_at,
    shuffle,
    splat,
    vector,
)
from regard.engine.quantize import BLOCK, GROUP

TILE_ROWS = 4  # of the largest tile
INPUT_BYTES = 1 if VNNI else 2  # bytes of a quantized input
I16_PAIRS = vector(I16, 2 * LANES)
UNPACKED_COLUMNS = 2  # registers of outputs of a tile with unpacked weights


def unpack_pairs(b: Any, w: Any) -> list[Any]:
    """Four bytes of each lane -> the even bytes, and the odd bytes, as pairs of 16 bits."""
    w = b.bitcast(w, I16_PAIRS)
    return [b.and_(w, ir.Constant(I16_PAIRS, [255] * 2 * LANES)), b.lshr(w, ir.Constant(I16_PAIRS, [8] * 2 * LANES))]


def dot_accumulate(b: Any, sums: Any, w: Any, q: Any, vnni: bool) -> Any:
    """sums + dot products per lane: four unsigned by signed bytes (vpdpbusd), or two pairs of 16 bits (vpmaddwd)."""
    if vnni:
        w, q = b.bitcast(w, vector(I8, 4 * LANES)), b.bitcast(q, vector(I8, 4 * LANES))
        return call(b, "llvm.x86.avx512.vpdpbusd.512", vector(I32), sums, w, q)
    wide = vector(I32, 2 * LANES)
    products = b.mul(b.sext(w, wide), b.sext(b.bitcast(q, I16_PAIRS), wide))
    even, odd = (shuffle(b, products, products, [2 * i + k for i in range(LANES)]) for k in (0, 1))
    return b.add(sums, b.add(even, odd))


def accumulate_group(
    b: Any, q: list[Any], a: list[Any], zp: list[Any], weights: Any, ws: Any, y: list[Any], vnni: bool
) -> None:
    """Add the products of one group of inputs to the outputs y of a tile. q, a (scales), zp and y are addresses, one
    per row; ws is the address of the weight scales."""
    size, columns = 1 if vnni else 2, weights.columns
    initial = [splat(b, load(b, I32, address, i64(0))) for address in zp]
    sums = [[cgutils.alloca_once_value(b, value) for _ in range(columns)] for value in initial]
    with cgutils.for_range(b, opaque(b, i64(GROUP // 4))) as quad:
        for i, w in enumerate(weights.load_quad(b, quad.index)):
            q_offset = b.add(b.mul(quad.index, i64(4 * size)), i64(4 * i))
            for r, row in enumerate(sums):
                x = splat(b, load(b, I32, q[r], q_offset))
                for c, accumulator in enumerate(row):
                    b.store(dot_accumulate(b, b.load(accumulator), w[c], x, vnni), accumulator)
    for c in range(columns):
        scale = b.fpext(load(b, vector(F16), ws, i64(2 * LANES * c)), vector(F32))
        for r, row in enumerate(sums):
            scales = b.fmul(scale, splat(b, load(b, F32, a[r], i64(0))))
            total = b.sitofp(b.load(row[c]), vector(F32))
            offset = i64(4 * LANES * c)
            b.store(fma(b, total, scales, load(b, vector(F32), y[r], offset)), pointer_at(b, y[r], offset), align=4)


class PackedWeights(NamedTuple):
    """Weights of a group in the order of pack_int8, at `address`."""

    address: Any
    columns: int
    vnni: bool

    def load_quad(self, b: Any, quad: Any) -> list[Any]:
        start = b.add(self.address, b.mul(quad, i64(4 * BLOCK)))
        quads = [load(b, vector(I32), start, i64(4 * LANES * c)) for c in range(self.columns)]
        return [quads] if self.vnni else [*zip(*(unpack_pairs(b, w) for w in quads), strict=True)]


class UnpackedWeights(NamedTuple):
    """Weights of a group as written by unpack_group."""

    address: Any
    columns: int

    def load_quad(self, b: Any, quad: Any) -> list[Any]:
        start = b.add(self.address, b.mul(quad, i64(8 * LANES * self.columns)))
        offsets = [[i64(4 * LANES * (self.columns * i + c)) for c in range(self.columns)] for i in (0, 1)]
        return [[load(b, I16_PAIRS, start, offset) for offset in half] for half in offsets]


def int8_tile(rows: int, vnni: bool = VNNI) -> Callable[..., Any]:
    """`rows` rows by one block of outputs, over all groups. Weights are stored as q + 128; zp cancels the 128."""
    columns = min(BLOCK // LANES, 2 ** int(math.log2(REGISTERS // 2 // rows)))  # registers of outputs
    size = 1 if vnni else 2

    def tile(typing: Any, q: Any, scales: Any, zp: Any, w: Any, ws: Any, y: Any, groups: Any, stride: Any) -> Any:
        """All addresses; rows of y are `stride` bytes apart, rows of q contiguous."""

        def emit(context: Any, b: Any, signature: Any, args: Any) -> Any:
            q, scales, zp, w, ws, y, groups, stride = args
            y_rows = [b.add(y, b.mul(stride, i64(r))) for r in range(rows)]
            for row in y_rows:
                for i in range(0, BLOCK, LANES):
                    b.store(ir.Constant(vector(F32), [0.0] * LANES), pointer_at(b, row, i64(4 * i)), align=4)
            with (
                cgutils.for_range(b, groups) as group,
                cgutils.for_range(b, i64(BLOCK // LANES // columns)) as column_tile,
            ):
                group_ids = [b.add(b.mul(groups, i64(r)), group.index) for r in range(rows)]
                q_at, scales_at, zp_at = (
                    [b.add(x, b.mul(index, i64(step))) for index in group_ids]
                    for x, step in ((q, size * GROUP), (scales, 4), (zp, 4))
                )
                first = b.mul(column_tile.index, i64(columns * LANES))
                lanes = b.add(b.mul(group.index, i64(BLOCK)), first)
                begin = b.add(b.mul(group.index, i64(GROUP * BLOCK)), b.mul(first, i64(4)))
                weights, ws_at = PackedWeights(b.add(w, begin), columns, vnni), b.add(ws, b.mul(lanes, i64(2)))
                y_at = [b.add(row, b.mul(first, i64(4))) for row in y_rows]
                accumulate_group(b, q_at, scales_at, zp_at, weights, ws_at, y_at, vnni)
            return context.get_dummy_value()

        return types.void(*[types.int64] * 8), emit

    return tile


def group_tile(rows: int) -> Callable[..., Any]:
    """`rows` rows by one block of outputs, for one group of unpacked weights."""

    def tile(typing: Any, q: Any, scales: Any, zp: Any, w: Any, ws: Any, y: Any, stride: Any) -> Any:
        """All addresses, of the group; rows of y are `stride` bytes apart, rows of q contiguous."""

        def emit(context: Any, b: Any, signature: Any, args: Any) -> Any:
            q, scales, zp, w, ws, y, stride = args
            q_at, scales_at, zp_at = (
                [b.add(x, i64(step * r)) for r in range(rows)] for x, step in ((q, 2 * GROUP), (scales, 4), (zp, 4))
            )
            with cgutils.for_range(b, i64(BLOCK // LANES // UNPACKED_COLUMNS)) as column_tile:
                first = b.mul(column_tile.index, i64(UNPACKED_COLUMNS * LANES))
                y_at = [b.add(b.add(y, b.mul(stride, i64(r))), b.mul(first, i64(4))) for r in range(rows)]
                weights = UnpackedWeights(b.add(w, b.mul(first, i64(2 * GROUP))), UNPACKED_COLUMNS)
                accumulate_group(b, q_at, scales_at, zp_at, weights, b.add(ws, b.mul(first, i64(2))), y_at, False)
            return context.get_dummy_value()

        return types.void(*[types.int64] * 7), emit

    return tile


@llvm_intrinsic
def unpack_group(typing: Any, w: Any, y: Any) -> Any:
    """Unpack a group of weights to pairs of 16 bits, in the order in which group_tile reads them."""

    def emit(context: Any, b: Any, signature: Any, args: Any) -> Any:
        w, y = args
        width = UNPACKED_COLUMNS * LANES
        with (
            cgutils.for_range(b, i64(BLOCK // width)) as column_tile,
            cgutils.for_range(b, i64(GROUP // 4)) as quad,
        ):
            source = b.add(b.mul(column_tile.index, i64(4 * width)), b.mul(quad.index, i64(4 * BLOCK)))
            target = b.add(b.mul(column_tile.index, i64(2 * GROUP * width)), b.mul(quad.index, i64(8 * width)))
            for c in range(UNPACKED_COLUMNS):
                parts = unpack_pairs(b, load(b, vector(I32), w, b.add(source, i64(4 * LANES * c))))
                for i, part in enumerate(parts):
                    b.store(part, pointer_at(b, y, b.add(target, i64(4 * LANES * (UNPACKED_COLUMNS * i + c)))), align=4)
        return context.get_dummy_value()

    return types.void(types.int64, types.int64), emit


def make_quantize_group(vnni: bool = VNNI) -> Callable[..., None]:
    """Quantize a group of inputs to int8, with scale = max |x| / 127 and zero-point term zp = -128 · Σ q."""

    @llvm_intrinsic
    def quantize_group(typing: Any, x: Any, q: Any, scale: Any, zp: Any) -> Any:
        def emit(context: Any, b: Any, signature: Any, args: Any) -> Any:
            x, q, scale, zp = args
            parts = [load(b, vector(F32), x, i64(4 * i)) for i in range(0, GROUP, LANES)]
            # |x| orders the same as integers as it does as floats, and NaN is the largest: it becomes the scale.
            magnitudes = [
                b.and_(b.bitcast(part, vector(I32)), ir.Constant(vector(I32), [2**31 - 1] * LANES)) for part in parts
            ]
            maxima = reduce(lambda m, n: call(b, f"llvm.smax.v{LANES}i32", vector(I32), m, n), magnitudes)
            largest = b.bitcast(call(b, f"llvm.vector.reduce.smax.v{LANES}i32", I32, maxima), F32)
            nonzero = b.fcmp_ordered(">", largest, ir.Constant(F32, 2.0**-100))
            inverse_scale = b.select(nonzero, b.fdiv(ir.Constant(F32, 127.0), largest), ir.Constant(F32, 0.0))
            half, total = splat(b, ir.Constant(F32, 0.5)), None
            for i, part in enumerate(parts):
                nearest = lanewise(b, "floor", fma(b, part, splat(b, inverse_scale), half))
                integers = b.fptosi(nearest, vector(I32))
                if vnni:
                    b.store(b.trunc(integers, vector(I8)), pointer_at(b, q, i64(LANES * i)), align=1)
                else:
                    order = [
                        j + k for j in range(0, LANES, 4) for k in (0, 2, 1, 3)
                    ]  # even bytes first, as unpack_pairs
                    b.store(
                        b.trunc(shuffle(b, integers, integers, order), vector(I16)),
                        pointer_at(b, q, i64(2 * LANES * i)),
                        align=1,
                    )
                total = integers if total is None else b.add(total, integers)
            b.store(b.fdiv(largest, ir.Constant(F32, 127.0)), pointer_at(b, scale, i64(0)), align=4)
            group_sum = call(b, f"llvm.vector.reduce.add.v{LANES}i32", I32, total)
            b.store(b.mul(group_sum, ir.Constant(I32, -128)), pointer_at(b, zp, i64(0)), align=4)
            return context.get_dummy_value()

        return types.void(*[types.int64] * 4), emit

    return quantize_group


quantize_group = make_quantize_group()
