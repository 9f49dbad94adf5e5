"""Tiles of a matrix product in fp32, written as LLVM code: a few rows by a few outputs, held in registers while all
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
    across,
    across_each,
    at,
    chosen,
    emitted,
    fixed,
    fused,
    load,
    many,
    spread,
    zeros,
)


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
