"""Tiles of an fp32 matrix product in LLVM IR: a few rows by a few outputs, whose sums stay in registers while all
inputs stream past once.

    y[r, n] = Σ_k x[r, k] · w[n, k]
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from numba import types
from numba.core import cgutils

from regard.engine.kernels.llvm import (
    F32,
    LANES,
    fma,
    i64,
    load,
    pointer_at,
    reduce_add,
    shuffle,
    splat,
    vector,
    zero_accumulators,
)


def reduce_add_each(b: Any, registers: list[Any]) -> Any:
    """Horizontal sums of LANES registers, in one register: a tree of shuffles and additions, halves first."""
    size = LANES // 2
    while len(registers) > 1:
        even, odd = ([i for i in range(2 * LANES) if i // size % 2 == half] for half in (0, 1))
        pairs = zip(registers[::2], registers[1::2], strict=True)
        registers = [b.fadd(shuffle(b, x, y, even), shuffle(b, x, y, odd)) for x, y in pairs]
        size //= 2
    return registers[0]


def fp32_tile(rows: int, columns: int) -> Callable[..., Any]:
    """`rows` by `columns` outputs, of weights (outputs, inputs) as in PyTorch. The last inputs % LANES are left out."""

    def tile(typing: Any, x: Any, w: Any, y: Any, inputs: Any, x_stride: Any, w_stride: Any, y_stride: Any) -> Any:
        def emit(context: Any, b: Any, signature: Any, args: Any) -> Any:
            x, w, y, inputs, x_stride, w_stride, y_stride = args
            total = zero_accumulators(b, rows, columns)
            with cgutils.for_range(b, b.udiv(inputs, i64(LANES))) as loop:
                offset = b.mul(loop.index, i64(4 * LANES))
                ws = [load(b, vector(F32), w, b.add(offset, b.mul(w_stride, i64(c)))) for c in range(columns)]
                for r in range(rows):
                    x_lanes = load(b, vector(F32), x, b.add(offset, b.mul(x_stride, i64(r))))
                    for c in range(columns):
                        b.store(fma(b, x_lanes, ws[c], b.load(total[r][c])), total[r][c])
            sums = [b.load(accumulator) for row in total for accumulator in row]
            if len(sums) == LANES:
                totals = reduce_add_each(b, sums)
                for r in range(rows):
                    row_totals = shuffle(b, totals, totals, [*range(columns * r, columns * (r + 1))])
                    b.store(row_totals, pointer_at(b, y, b.mul(y_stride, i64(r))), align=4)
            else:
                for i, lanes in enumerate(sums):
                    target = b.add(b.mul(y_stride, i64(i // columns)), i64(4 * (i % columns)))
                    b.store(reduce_add(b, lanes), pointer_at(b, y, target), align=4)
            return context.get_dummy_value()

        return types.void(*[types.int64] * 7), emit

    return tile


def panel_tile(rows: int, registers: int) -> Callable[..., Any]:
    """`rows` rows by `registers` registers of outputs, of packed weights (inputs, outputs)."""

    def tile(typing: Any, x: Any, w: Any, y: Any, inputs: Any, x_stride: Any, w_stride: Any, y_stride: Any) -> Any:
        def emit(context: Any, b: Any, signature: Any, args: Any) -> Any:
            x, w, y, inputs, x_stride, w_stride, y_stride = args
            total = zero_accumulators(b, rows, registers)
            with cgutils.for_range(b, inputs) as loop:
                w_offset, x_offset = b.mul(loop.index, w_stride), b.mul(loop.index, i64(4))
                ws = [load(b, vector(F32), w, b.add(w_offset, i64(4 * LANES * i))) for i in range(registers)]
                for r in range(rows):
                    x_splat = splat(b, load(b, F32, x, b.add(x_offset, b.mul(x_stride, i64(r)))))
                    for i in range(registers):
                        b.store(fma(b, x_splat, ws[i], b.load(total[r][i])), total[r][i])
            for r in range(rows):
                for i in range(registers):
                    b.store(
                        b.load(total[r][i]),
                        pointer_at(b, y, b.add(b.mul(y_stride, i64(r)), i64(4 * LANES * i))),
                        align=1,
                    )
            return context.get_dummy_value()

        return types.void(*[types.int64] * 7), emit

    return tile
