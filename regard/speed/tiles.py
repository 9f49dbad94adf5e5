"""Tiles of a matrix product, written as LLVM code: what a plain Numba loop does not become by itself.

    y[r, n] = Σ_g  a[r, g] · s[g, n] · Σ_k q[r, k] · w[n, k]          g: a group of 32 inputs, k: its members

A tile is a few rows by a few columns, held in registers while all inputs stream past once. Where the processor has an
instruction for four int8 products and their sum (VNNI), it is used; elsewhere LLVM makes the best of the plain formula.
"""

from __future__ import annotations

from collections.abc import Callable
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
    VNNI,
    across,
    across_each,
    at,
    call,
    chosen,
    emitted,
    fixed,
    fused,
    load,
    many,
    spread,
    zeros,
)

MOST_ROWS = 4  # of a tile


def add_products(b: Any, sums: Any, w: Any, q: Any) -> Any:
    """To each of 16 sums, four products of an unsigned and a signed byte."""
    w, q = b.bitcast(w, many(I8, 64)), b.bitcast(q, many(I8, 64))
    if VNNI:
        return call(b, "llvm.x86.avx512.vpdpbusd.512", many(I32), sums, w, q)
    found = b.mul(b.zext(w, many(I16, 64)), b.sext(q, many(I16, 64)))  # 255 · 128 fits
    found = b.sext(found, many(I32, 64))
    for count in (32, 16):
        nothing = ir.Constant(found.type, ir.Undefined)
        one, other = (ir.Constant(many(I32, count), [2 * i + odd for i in range(count)]) for odd in (0, 1))
        found = b.add(b.shuffle_vector(found, nothing, one), b.shuffle_vector(found, nothing, other))
    return b.add(sums, found)


def int8_tile(rows: int) -> Callable[..., None]:
    """So many rows by one block of outputs. Weights are stored with 128 added, and `less` takes that away again."""
    columns = BLOCK // LANES

    @emitted
    def tile(typing: Any, q: Any, scales: Any, less: Any, w: Any, ws: Any, y: Any, groups: Any, stride: Any) -> Any:
        """Addresses in bytes; rows of y are `stride` bytes apart, those of q lie one after the other."""

        def emit(context: Any, b: Any, signature: Any, args: Any) -> Any:
            q, scales, less, w, ws, y, groups, stride = args
            total = zeros(b, rows, columns)
            with cgutils.for_range(b, groups) as loop:
                place = [b.mul(b.add(b.mul(groups, fixed(r)), loop.index), fixed(4)) for r in range(rows)]
                begin = b.mul(loop.index, fixed(GROUP * BLOCK))
                sums = [[spread(b, load(b, I32, less, place[r]))] * columns for r in range(rows)]
                for k in range(0, GROUP, 4):
                    here = [b.add(begin, fixed(k * BLOCK + 64 * c)) for c in range(columns)]
                    four = [load(b, many(I32), w, offset) for offset in here]
                    for r in range(rows):
                        asked = spread(b, load(b, I32, q, b.add(b.mul(place[r], fixed(GROUP // 4)), fixed(k))))
                        sums[r] = [add_products(b, s, w4, asked) for s, w4 in zip(sums[r], four, strict=True)]
                for c in range(columns):
                    offset = b.add(b.mul(loop.index, fixed(2 * BLOCK)), fixed(2 * LANES * c))
                    scale = b.fpext(load(b, many(F16), ws, offset), many(F32))
                    for r in range(rows):
                        both = b.fmul(scale, spread(b, load(b, F32, scales, place[r])))
                        exact = b.sitofp(sums[r][c], many(F32))
                        b.store(fused(b, exact, both, b.load(total[r][c])), total[r][c])
            for r in range(rows):
                for c in range(columns):
                    b.store(b.load(total[r][c]), at(b, y, b.add(b.mul(stride, fixed(r)), fixed(64 * c))), align=1)
            return context.get_dummy_value()

        return types.void(*[types.int64] * 8), emit

    return tile


@emitted
def rounded_group(typing: Any, x: Any, q: Any, scale: Any, less: Any) -> Any:
    """A whole group of inputs becomes bytes; beside them, their scale, and what takes the 128 of the weights away."""

    def emit(context: Any, b: Any, signature: Any, args: Any) -> Any:
        x, q, scale, less = args
        parts = [load(b, many(F32), x, fixed(4 * i)) for i in range(0, GROUP, LANES)]
        sizes = [call(b, "llvm.fabs.v16f32", many(F32), part) for part in parts]
        most = call(b, "llvm.maxnum.v16f32", many(F32), *sizes)
        largest = call(b, "llvm.vector.reduce.fmax.v16f32", F32, most, fastmath=("nnan",))
        some = b.fcmp_ordered(">", largest, ir.Constant(F32, 2.0**-100))
        fit = b.select(some, b.fdiv(ir.Constant(F32, 127.0), largest), ir.Constant(F32, 0.0))
        half, total = spread(b, ir.Constant(F32, 0.5)), None
        for i, part in enumerate(parts):
            near = call(b, "llvm.floor.v16f32", many(F32), fused(b, part, spread(b, fit), half))
            whole = b.fptosi(near, many(I32))
            b.store(b.trunc(whole, many(I8)), at(b, q, fixed(LANES * i)), align=1)
            total = whole if total is None else b.add(total, whole)
        b.store(b.fdiv(largest, ir.Constant(F32, 127.0)), at(b, scale, fixed(0)), align=4)
        sum_ = call(b, "llvm.vector.reduce.add.v16i32", I32, total)
        b.store(b.mul(sum_, ir.Constant(I32, -128)), at(b, less, fixed(0)), align=4)
        return context.get_dummy_value()

    return types.void(*[types.int64] * 4), emit


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
                ws = [load(b, many(F32), w, b.add(here, fixed(64 * i))) for i in range(registers)]
                for r in range(rows):
                    one = spread(b, load(b, F32, x, b.add(asked, b.mul(x_stride, fixed(r)))))
                    for i in range(registers):
                        b.store(fused(b, one, ws[i], b.load(total[r][i])), total[r][i])
            for r in range(rows):
                for i in range(registers):
                    b.store(b.load(total[r][i]), at(b, y, b.add(b.mul(y_stride, fixed(r)), fixed(64 * i))), align=1)
            return context.get_dummy_value()

        return types.void(*[types.int64] * 7), emit

    return tile
