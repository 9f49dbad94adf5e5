"""Attention tiles in LLVM IR over a paged KV cache in fp32 or fp16: scores, weighted sums and transposed keys.

scores[s] = q · k_s          y = Σ_s weights[s] v_s          s: the slots of a row of the block table
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


def load_kv(b: Any, fp16: bool, address: Any, offset: Any) -> Any:
    """A register of keys or values, in fp32."""
    return (
        b.fpext(load(b, vector(F16), address, offset), vector(F32)) if fp16 else load(b, vector(F32), address, offset)
    )


def transpose_tile(fp16: bool) -> Callable[..., Any]:
    """Transpose LANES keys x LANES inputs in registers: pairs of registers swap halves, then quarters ..."""

    def tile(typing: Any, keys: Any, slots: Any, y: Any, stride: Any, y_stride: Any) -> Any:
        def emit(context: Any, b: Any, signature: Any, args: Any) -> Any:
            keys, slots, y, stride, y_stride = args
            offsets = [b.mul(b.sext(load(b, I32, slots, i64(4 * i)), I64), stride) for i in range(LANES)]
            rows = [load_kv(b, fp16, keys, offset) for offset in offsets]
            size = LANES // 2
            while size:
                low = [i if not i & size else LANES + i - size for i in range(LANES)]
                high = [i + size if not i & size else LANES + i for i in range(LANES)]
                for i in (i for i in range(LANES) if not i & size):
                    x, z = rows[i], rows[i + size]
                    rows[i], rows[i + size] = shuffle(b, x, z, low), shuffle(b, x, z, high)
                size //= 2
            for i, row in enumerate(rows):
                b.store(row, pointer_at(b, y, b.mul(y_stride, i64(i))), align=1)
            return context.get_dummy_value()

        return types.void(*[types.int64] * 5), emit

    return tile


def scores_tile(registers: int, fp16: bool) -> Callable[..., Any]:
    """Scores of one query and the keys in `count` slots; a head is `registers` registers wide."""
    step = (2 if fp16 else 4) * LANES

    def tile(typing: Any, q: Any, keys: Any, slots: Any, scores: Any, count: Any, stride: Any) -> Any:
        def emit(context: Any, b: Any, signature: Any, args: Any) -> Any:
            q, keys, slots, scores, count, stride = args
            query = [load(b, vector(F32), q, i64(4 * LANES * i)) for i in range(registers)]
            with cgutils.for_range(b, count) as loop:
                index_offset = b.mul(loop.index, i64(4))
                offset = b.mul(b.sext(load(b, I32, slots, index_offset), I64), stride)
                total = b.fmul(query[0], load_kv(b, fp16, keys, offset))
                for i in range(1, registers):
                    total = fma(b, query[i], load_kv(b, fp16, keys, b.add(offset, i64(step * i))), total)
                b.store(reduce_add(b, total), pointer_at(b, scores, index_offset), align=4)
            return context.get_dummy_value()

        return types.void(*[types.int64] * 6), emit

    return tile


def weighted_sum_tile(registers: int, fp16: bool) -> Callable[..., Any]:
    """Weighted sum of the values in `count` slots."""
    step = (2 if fp16 else 4) * LANES

    def tile(typing: Any, y: Any, values: Any, slots: Any, weights: Any, count: Any, stride: Any) -> Any:
        def emit(context: Any, b: Any, signature: Any, args: Any) -> Any:
            y, values, slots, weights, count, stride = args
            [total] = zero_accumulators(b, 1, registers)
            with cgutils.for_range(b, count) as loop:
                index_offset = b.mul(loop.index, i64(4))
                offset = b.mul(b.sext(load(b, I32, slots, index_offset), I64), stride)
                weight = splat(b, load(b, F32, weights, index_offset))
                for i in range(registers):
                    v = load_kv(b, fp16, values, b.add(offset, i64(step * i)))
                    b.store(fma(b, weight, v, b.load(total[i])), total[i])
            for i in range(registers):
                b.store(b.load(total[i]), pointer_at(b, y, i64(4 * LANES * i)), align=1)
            return context.get_dummy_value()

        return types.void(*[types.int64] * 6), emit

    return tile
