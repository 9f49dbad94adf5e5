"""Tiles of a product of bytes, written as LLVM code: what a plain Numba loop does not become by itself.

    y[r, n] = Σ_g  a[r, g] · s[g, n] · Σ_k q[r, k] · w[n, k]          g: a group of 32 inputs, k: its members

A tile is a few rows by a few registers of outputs, whose sums stay in registers while the inputs stream past. Where the
processor has an instruction for four int8 products and their sum (VNNI), it is used. Elsewhere the even bytes of a
register and the odd ones become pairs of 16 bits, for which most have one that multiplies and adds (AVX2: vpmaddwd).
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
)
from regard.engine.quantize import BLOCK, GROUP

MOST_ROWS = 4  # of a tile
INPUT = 1 if VNNI else 2  # bytes of a rounded input
PAIRS = many(I16, 2 * LANES)
PARTED = 2  # registers of outputs of a tile whose weights are laid out for many rows


def halves(b: Any, w: Any) -> list[Any]:
    """Of four bytes beside each other, the even and the odd ones as pairs of 16 bits."""
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


def add_group(
    b: Any, q: list[Any], a: list[Any], less: list[Any], weights: Any, ws: Any, y: list[Any], vnni: bool
) -> None:
    """What one group of inputs adds to the outputs of a few rows, whose sums stay in registers meanwhile. All but
    `weights` are addresses: of each row, or the same for all."""
    size, columns = 1 if vnni else 2, weights.columns
    start = [spread(b, load(b, I32, one, fixed(0))) for one in less]
    sums = [[cgutils.alloca_once_value(b, one) for _ in range(columns)] for one in start]
    with cgutils.for_range(b, opaque(b, fixed(GROUP // 4))) as quad:
        for i, w in enumerate(weights.of(b, quad.index)):
            asked = b.add(b.mul(quad.index, fixed(4 * size)), fixed(4 * i))
            for r, row in enumerate(sums):
                x = spread(b, load(b, I32, q[r], asked))
                for c, one in enumerate(row):
                    b.store(add_products(b, b.load(one), w[c], x, vnni), one)
    for c in range(columns):
        scale = b.fpext(load(b, many(F16), ws, fixed(2 * LANES * c)), many(F32))
        for r, row in enumerate(sums):
            both = b.fmul(scale, spread(b, load(b, F32, a[r], fixed(0))))
            exact = b.sitofp(b.load(row[c]), many(F32))
            there = fixed(4 * LANES * c)
            b.store(fused(b, exact, both, load(b, many(F32), y[r], there)), at(b, y[r], there), align=4)


class Stored(NamedTuple):
    """Weights of a group as they are stored, from this address on."""

    address: Any
    columns: int
    vnni: bool

    def of(self, b: Any, quad: Any) -> list[Any]:
        here = b.add(self.address, b.mul(quad, fixed(4 * BLOCK)))
        four = [load(b, many(I32), here, fixed(4 * LANES * c)) for c in range(self.columns)]
        return [four] if self.vnni else [*zip(*(halves(b, one) for one in four), strict=True)]


class Parted(NamedTuple):
    """Weights of a group as `part_group` lays them out."""

    address: Any
    columns: int

    def of(self, b: Any, quad: Any) -> list[Any]:
        here = b.add(self.address, b.mul(quad, fixed(8 * LANES * self.columns)))
        places = [[fixed(4 * LANES * (self.columns * i + c)) for c in range(self.columns)] for i in (0, 1)]
        return [[load(b, PAIRS, here, place) for place in half] for half in places]


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
                place = [b.add(b.mul(groups, fixed(r)), group.index) for r in range(rows)]
                of_q, of_a, of_less = (
                    [b.add(x, b.mul(one, fixed(step))) for one in place]
                    for x, step in ((q, size * GROUP), (scales, 4), (less, 4))
                )
                first = b.mul(some.index, fixed(columns * LANES))
                lanes = b.add(b.mul(group.index, fixed(BLOCK)), first)
                begin = b.add(b.mul(group.index, fixed(GROUP * BLOCK)), b.mul(first, fixed(4)))
                add_group(
                    b, of_q, of_a, of_less, Stored(b.add(w, begin), columns, vnni), b.add(ws, b.mul(lanes, fixed(2))),
                    [b.add(row, b.mul(first, fixed(4))) for row in rows_of_y], vnni,
                )  # fmt: skip
            return context.get_dummy_value()

        return types.void(*[types.int64] * 8), emit

    return tile


def group_tile(rows: int) -> Callable[..., None]:
    """What one group of parted weights adds to so many rows of one block of outputs."""

    @emitted
    def tile(typing: Any, q: Any, scales: Any, less: Any, w: Any, ws: Any, y: Any, stride: Any) -> Any:
        """Addresses in bytes, of the group; rows of y are `stride` bytes apart, those of q lie one after the other."""

        def emit(context: Any, b: Any, signature: Any, args: Any) -> Any:
            q, scales, less, w, ws, y, stride = args
            of_q, of_a, of_less = (
                [b.add(x, fixed(step * r)) for r in range(rows)] for x, step in ((q, 2 * GROUP), (scales, 4), (less, 4))
            )
            with cgutils.for_range(b, fixed(BLOCK // LANES // PARTED)) as some:
                first = b.mul(some.index, fixed(PARTED * LANES))
                mine = [b.add(b.add(y, b.mul(stride, fixed(r))), b.mul(first, fixed(4))) for r in range(rows)]
                weights = Parted(b.add(w, b.mul(first, fixed(2 * GROUP))), PARTED)
                add_group(b, of_q, of_a, of_less, weights, b.add(ws, b.mul(first, fixed(2))), mine, False)
            return context.get_dummy_value()

        return types.void(*[types.int64] * 7), emit

    return tile


@emitted
def part_group(typing: Any, w: Any, y: Any) -> Any:
    """A group of weights as pairs of 16 bits, in the order in which tiles of PARTED registers of outputs read them."""

    def emit(context: Any, b: Any, signature: Any, args: Any) -> Any:
        w, y = args
        width = PARTED * LANES
        with (
            cgutils.for_range(b, fixed(BLOCK // width)) as some,
            cgutils.for_range(b, fixed(GROUP // 4)) as quad,
        ):
            here = b.add(b.mul(some.index, fixed(4 * width)), b.mul(quad.index, fixed(4 * BLOCK)))
            there = b.add(b.mul(some.index, fixed(2 * GROUP * width)), b.mul(quad.index, fixed(8 * width)))
            for c in range(PARTED):
                parts = halves(b, load(b, many(I32), w, b.add(here, fixed(4 * LANES * c))))
                for i, part in enumerate(parts):
                    b.store(part, at(b, y, b.add(there, fixed(4 * LANES * (PARTED * i + c)))), align=4)
        return context.get_dummy_value()

    return types.void(types.int64, types.int64), emit


def rounding(vnni: bool = VNNI) -> Callable[..., None]:
    """A whole group of inputs becomes bytes; beside them, their scale, and what takes the 128 of the weights away."""

    @emitted
    def rounded_group(typing: Any, x: Any, q: Any, scale: Any, less: Any) -> Any:
        def emit(context: Any, b: Any, signature: Any, args: Any) -> Any:
            x, q, scale, less = args
            parts = [load(b, many(F32), x, fixed(4 * i)) for i in range(0, GROUP, LANES)]
            # As integers, sizes have the order that they have as floats, and NaN is the largest: it becomes the scale.
            sizes = [b.and_(b.bitcast(part, many(I32)), ir.Constant(many(I32), [2**31 - 1] * LANES)) for part in parts]
            most = reduce(lambda one, other: call(b, f"llvm.smax.v{LANES}i32", many(I32), one, other), sizes)
            largest = b.bitcast(call(b, f"llvm.vector.reduce.smax.v{LANES}i32", I32, most), F32)
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
