"""Tiles of attention, written as LLVM code: keys and values in slots, which may be kept in half precision.

scores[s] = q · k_s          y = Σ_s weights[s] v_s          keys turned, with slots side by side
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from numba import types
from numba.core import cgutils

from regard.engine.kernels.llvm import (
    F16,
    F32,
    I32,
    I64,
    LANES,
    across,
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


def remembered(b: Any, half: bool, address: Any, offset: Any) -> Any:
    """A register full of keys or values, which may be kept in half precision."""
    return b.fpext(load(b, many(F16), address, offset), many(F32)) if half else load(b, many(F32), address, offset)


def transpose_tile(half: bool) -> Callable[..., None]:
    """A square of inputs and slots, with slots side by side: pairs of registers swap halves, then quarters ..."""

    @emitted
    def tile(typing: Any, keys: Any, slots: Any, y: Any, stride: Any, y_stride: Any) -> Any:
        def emit(context: Any, b: Any, signature: Any, args: Any) -> Any:
            keys, slots, y, stride, y_stride = args
            begin = [b.mul(b.sext(load(b, I32, slots, fixed(4 * i)), I64), stride) for i in range(LANES)]
            rows = [remembered(b, half, keys, offset) for offset in begin]
            size = LANES // 2
            while size:
                one = [i if not i & size else LANES + i - size for i in range(LANES)]
                other = [i + size if not i & size else LANES + i for i in range(LANES)]
                for i in (i for i in range(LANES) if not i & size):
                    x, z = rows[i], rows[i + size]
                    rows[i], rows[i + size] = chosen(b, x, z, one), chosen(b, x, z, other)
                size //= 2
            for i, row in enumerate(rows):
                b.store(row, at(b, y, b.mul(y_stride, fixed(i))), align=1)
            return context.get_dummy_value()

        return types.void(*[types.int64] * 5), emit

    return tile


def scores_tile(registers: int, half: bool) -> Callable[..., None]:
    """Products of one query with the keys in `count` slots; a head is so many registers wide."""
    step = (2 if half else 4) * LANES

    @emitted
    def tile(typing: Any, q: Any, keys: Any, slots: Any, scores: Any, count: Any, stride: Any) -> Any:
        def emit(context: Any, b: Any, signature: Any, args: Any) -> Any:
            q, keys, slots, scores, count, stride = args
            asked = [load(b, many(F32), q, fixed(4 * LANES * i)) for i in range(registers)]
            with cgutils.for_range(b, count) as loop:
                place = b.mul(loop.index, fixed(4))
                begin = b.mul(b.sext(load(b, I32, slots, place), I64), stride)
                total = b.fmul(asked[0], remembered(b, half, keys, begin))
                for i in range(1, registers):
                    total = fused(b, asked[i], remembered(b, half, keys, b.add(begin, fixed(step * i))), total)
                b.store(across(b, total), at(b, scores, place), align=4)
            return context.get_dummy_value()

        return types.void(*[types.int64] * 6), emit

    return tile


def mix_tile(registers: int, half: bool) -> Callable[..., None]:
    """The sum of the values in `count` slots, each times its weight."""
    step = (2 if half else 4) * LANES

    @emitted
    def tile(typing: Any, y: Any, values: Any, slots: Any, weights: Any, count: Any, stride: Any) -> Any:
        def emit(context: Any, b: Any, signature: Any, args: Any) -> Any:
            y, values, slots, weights, count, stride = args
            [total] = zeros(b, 1, registers)
            with cgutils.for_range(b, count) as loop:
                place = b.mul(loop.index, fixed(4))
                begin = b.mul(b.sext(load(b, I32, slots, place), I64), stride)
                weight = spread(b, load(b, F32, weights, place))
                for i in range(registers):
                    v = remembered(b, half, values, b.add(begin, fixed(step * i)))
                    b.store(fused(b, weight, v, b.load(total[i])), total[i])
            for i in range(registers):
                b.store(b.load(total[i]), at(b, y, fixed(4 * LANES * i)), align=1)
            return context.get_dummy_value()

        return types.void(*[types.int64] * 6), emit

    return tile
