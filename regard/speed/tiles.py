"""Tiles of a matrix product, written as LLVM code: what a plain Numba loop does not become by itself.

    y[r, n] = Σ_g  a[r, g] · s[g, n] · Σ_k q[r, k] · w[n, k]          g: a group of 32 inputs, k: its members

A tile is a few rows by a few columns, held in registers while all inputs stream past once. Where the processor has an
instruction for four int8 products and their sum (VNNI), it is used. Elsewhere the even bytes of a register and the odd
ones become pairs of 16 bits, for which most processors have one that multiplies two and adds (of AVX2: vpmaddwd).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import reduce
from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils

from regard.speed.int8 import BLOCK, GROUP
from regard.speed.lanes import (
    F16,
    F32,
    I8,
    I16,
    I32,
    LANES,
    REGISTERS,
    VNNI,
    across,
    across_each,
    at,
    call,
    chosen,
    each,
    emitted,
    fixed,
    fused,
    load,
    many,
    opaque,
    spread,
    zeros,
)

MOST_ROWS = 4  # of a tile
INPUT = 1 if VNNI else 2  # bytes of a rounded input
PAIRS = many(I16, 2 * LANES)


def in_parts(b: Any, w: Any, vnni: bool) -> list[Any]:
    """Four bytes of each output, as they are; or the even and the odd ones as pairs of 16 bits."""
    if vnni:
        return [w]
    w = b.bitcast(w, PAIRS)
    return [b.and_(w, ir.Constant(PAIRS, [255] * 2 * LANES)), b.lshr(w, ir.Constant(PAIRS, [8] * 2 * LANES))]


def add_products(b: Any, sums: Any, w: Any, q: Any, vnni: bool) -> Any:
    """To each sum, four products of an unsigned and a signed byte; or two of such numbers in 16 bits each."""
    if vnni:
        w, q = b.bitcast(w, many(I8, 4 * LANES)), b.bitcast(q, many(I8, 4 * LANES))
        return call(b, "llvm.x86.avx512.vpdpbusd.512", many(I32), sums, w, q)
    wide = many(I32, 2 * LANES)
    found = b.mul(b.sext(w, wide), b.sext(b.bitcast(q, PAIRS), wide))
    one, other = (chosen(b, found, found, [2 * i + odd for i in range(LANES)]) for odd in (0, 1))
    return b.add(sums, b.add(one, other))


def whole_sums(b: Any, q: list[Any], w: Any, start: list[Any], columns: int, vnni: bool) -> list[list[Any]]:
    """Σ_k q[r, k] · w[n, k] of one group, beginning with what is given for each row."""
    sums = [[cgutils.alloca_once_value(b, one) for _ in range(columns)] for one in start]
    size = 1 if vnni else 2
    with cgutils.for_range(b, opaque(b, fixed(GROUP // 4))) as quad:
        before = b.mul(quad.index, fixed(4 * BLOCK))
        here = [b.add(before, fixed(4 * LANES * c)) for c in range(columns)]
        four = [in_parts(b, load(b, many(I32), w, offset), vnni) for offset in here]
        for r, row in enumerate(sums):
            for i in range(size):
                asked = b.add(b.mul(quad.index, fixed(4 * size)), fixed(4 * i))
                x = spread(b, load(b, I32, q[r], asked))
                for c, one in enumerate(row):
                    b.store(add_products(b, b.load(one), four[c][i], x, vnni), one)
    return [[b.load(one) for one in row] for row in sums]


def int8_tile(rows: int, vnni: bool = VNNI) -> Callable[..., None]:
    """So many rows by one block of outputs. Weights are stored with 128 added, and `less` takes that away again."""
    columns = min(BLOCK // LANES, 2 ** int(math.log2(REGISTERS // 2 // rows)))  # whose sums stay in registers
    size = 1 if vnni else 2

    @emitted
    def tile(typing: Any, q: Any, scales: Any, less: Any, w: Any, ws: Any, y: Any, groups: Any, stride: Any) -> Any:
        """Addresses in bytes; rows of y are `stride` bytes apart, those of q lie one after the other."""

        def emit(context: Any, b: Any, signature: Any, args: Any) -> Any:
            q, scales, less, w, ws, y, groups, stride = args
            rows_of_y = [b.add(y, b.mul(stride, fixed(r))) for r in range(rows)]
            for row in rows_of_y:
                for i in range(0, BLOCK, LANES):
                    b.store(ir.Constant(many(F32), [0.0] * LANES), at(b, row, fixed(4 * i)), align=4)
            with (
                cgutils.for_range(b, groups) as group,
                cgutils.for_range(b, fixed(BLOCK // LANES // columns)) as some,
            ):
                place = [b.mul(b.add(b.mul(groups, fixed(r)), group.index), fixed(4)) for r in range(rows)]
                mine = [b.add(q, b.mul(one, fixed(size * GROUP // 4))) for one in place]
                start = [spread(b, load(b, I32, less, one)) for one in place]
                aside = b.mul(some.index, fixed(columns * LANES))
                here = b.add(b.mul(group.index, fixed(GROUP * BLOCK)), b.mul(aside, fixed(4)))
                sums = whole_sums(b, mine, b.add(w, here), start, columns, vnni)
                for c in range(columns):
                    lanes = b.add(aside, fixed(c * LANES))
                    offset = b.mul(b.add(b.mul(group.index, fixed(BLOCK)), lanes), fixed(2))
                    scale = b.fpext(load(b, many(F16), ws, offset), many(F32))
                    for r in range(rows):
                        both = b.fmul(scale, spread(b, load(b, F32, scales, place[r])))
                        there = b.mul(lanes, fixed(4))
                        more = fused(b, b.sitofp(sums[r][c], many(F32)), both, load(b, many(F32), rows_of_y[r], there))
                        b.store(more, at(b, rows_of_y[r], there), align=4)
            return context.get_dummy_value()

        return types.void(*[types.int64] * 8), emit

    return tile


def rounding(vnni: bool = VNNI) -> Callable[..., None]:
    """A whole group of inputs becomes bytes; beside them, their scale, and what takes the 128 of the weights away."""

    @emitted
    def rounded_group(typing: Any, x: Any, q: Any, scale: Any, less: Any) -> Any:
        def emit(context: Any, b: Any, signature: Any, args: Any) -> Any:
            x, q, scale, less = args
            parts = [load(b, many(F32), x, fixed(4 * i)) for i in range(0, GROUP, LANES)]
            sizes = [each(b, "fabs", part) for part in parts]
            most = reduce(lambda one, other: each(b, "maxnum", one, other), sizes)
            largest = call(b, f"llvm.vector.reduce.fmax.v{LANES}f32", F32, most, fastmath=("nnan",))
            some = b.fcmp_ordered(">", largest, ir.Constant(F32, 2.0**-100))
            fit = b.select(some, b.fdiv(ir.Constant(F32, 127.0), largest), ir.Constant(F32, 0.0))
            half, total = spread(b, ir.Constant(F32, 0.5)), None
            for i, part in enumerate(parts):
                near = each(b, "floor", fused(b, part, spread(b, fit), half))
                whole = b.fptosi(near, many(I32))
                if vnni:
                    b.store(b.trunc(whole, many(I8)), at(b, q, fixed(LANES * i)), align=1)
                else:
                    order = [j + k for j in range(0, LANES, 4) for k in (0, 2, 1, 3)]  # even ones first
                    b.store(b.trunc(chosen(b, whole, whole, order), many(I16)), at(b, q, fixed(2 * LANES * i)), align=1)
                total = whole if total is None else b.add(total, whole)
            b.store(b.fdiv(largest, ir.Constant(F32, 127.0)), at(b, scale, fixed(0)), align=4)
            sum_ = call(b, f"llvm.vector.reduce.add.v{LANES}i32", I32, total)
            b.store(b.mul(sum_, ir.Constant(I32, -128)), at(b, less, fixed(0)), align=4)
            return context.get_dummy_value()

        return types.void(*[types.int64] * 4), emit

    return rounded_group


rounded_group = rounding()


def float_tile(rows: int, columns: int) -> Callable[..., None]:
    """So many rows by so many outputs, of weights as PyTorch has them. `inputs` is rounded down to whole registers."""

    @emitted
    def tile(typing: Any, x: Any, w: Any, y: Any, inputs: Any, x_stride: Any, w_stride: Any, y_stride: Any) -> Any:
        def emit(context: Any, b: Any, signature: Any, args: Any) -> Any:
            x, w, y, inputs, x_stride, w_stride, y_stride = args
            total = zeros(b, rows, columns)
            with cgutils.for_range(b, b.udiv(inputs, fixed(LANES))) as loop:
                here = b.mul(loop.index, fixed(4 * LANES))
                ws = [load(b, many(F32), w, b.add(here, b.mul(w_stride, fixed(c)))) for c in range(columns)]
                for r in range(rows):
                    asked = load(b, many(F32), x, b.add(here, b.mul(x_stride, fixed(r))))
                    for c in range(columns):
                        b.store(fused(b, asked, ws[c], b.load(total[r][c])), total[r][c])
            sums = [b.load(one) for row in total for one in row]
            if len(sums) == LANES:
                found = across_each(b, sums)
                for r in range(rows):
                    some = chosen(b, found, found, [*range(columns * r, columns * (r + 1))])
                    b.store(some, at(b, y, b.mul(y_stride, fixed(r))), align=4)
            else:
                for i, lanes in enumerate(sums):
                    place = b.add(b.mul(y_stride, fixed(i // columns)), fixed(4 * (i % columns)))
                    b.store(across(b, lanes), at(b, y, place), align=4)
            return context.get_dummy_value()

        return types.void(*[types.int64] * 7), emit

    return tile


def panel_tile(rows: int, registers: int) -> Callable[..., None]:
    """So many rows by so many registers of outputs that lie side by side; `inputs` of them follow each other in w."""

    @emitted
    def tile(typing: Any, x: Any, w: Any, y: Any, inputs: Any, x_stride: Any, w_stride: Any, y_stride: Any) -> Any:
        def emit(context: Any, b: Any, signature: Any, args: Any) -> Any:
            x, w, y, inputs, x_stride, w_stride, y_stride = args
            total = zeros(b, rows, registers)
            with cgutils.for_range(b, inputs) as loop:
                here, asked = b.mul(loop.index, w_stride), b.mul(loop.index, fixed(4))
                ws = [load(b, many(F32), w, b.add(here, fixed(4 * LANES * i))) for i in range(registers)]
                for r in range(rows):
                    one = spread(b, load(b, F32, x, b.add(asked, b.mul(x_stride, fixed(r)))))
                    for i in range(registers):
                        b.store(fused(b, one, ws[i], b.load(total[r][i])), total[r][i])
            for r in range(rows):
                for i in range(registers):
                    b.store(
                        b.load(total[r][i]), at(b, y, b.add(b.mul(y_stride, fixed(r)), fixed(4 * LANES * i))), align=1
                    )
            return context.get_dummy_value()

        return types.void(*[types.int64] * 7), emit

    return tile
