"""The candidates of a step of beam search, as `regard.beams.expand` finds them, in one pass over the logits.

joint(beam, token) = log P(beam) + x[token] - max x - log Σ exp(x - max x)
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from torch import Tensor

from regard.beams import Candidates, find_candidates
from regard.engine.kernels.elementwise import exp
from regard.engine.kernels.llvm import jit
from regard.sampling import CANNOT_END, MUST_END, Endings, Floats

BLOCK = 64  # logits of which the largest is looked for first
INFINITY, SIGN = np.int32(0x7F800000), np.int32(0x7FFFFFFF)
MINUS_INFINITY = np.int32(-0x800000)  # the bits of -inf as an integer


@jit
def insert(values: Any, ids: Any, value: Any, index: int) -> None:
    """Insert into a list in descending order, whose last entry drops out; equal values stay in order."""
    at = len(values) - 1
    while at > 0 and values[at - 1] < value:
        values[at], ids[at] = values[at - 1], ids[at - 1]
        at -= 1
    values[at], ids[at] = value, index


@jit
def is_invalid(bits: Any) -> bool:
    """Whether a float of these bits is NaN or +inf. The optimiser may assume that no float is NaN."""
    invalid = False
    for i in range(len(bits)):
        invalid |= (bits[i] & SIGN) >= INFINITY and bits[i] != MINUS_INFINITY
    return invalid


@jit
def block_maxima(x: Any, maxima: Any) -> Any:
    """The largest value of every block, and of all."""
    for block in range(len(maxima)):
        largest = x[block * BLOCK]
        for i in range(block * BLOCK, min(len(x), (block + 1) * BLOCK)):
            largest = max(largest, x[i])
        maxima[block] = largest
    return maxima.max()


@jit
def log_sum_exp(x: Any, largest: Any) -> Any:
    """log Σ exp(x - largest)"""
    total = np.float32(0.0)
    for i in range(len(x)):
        total += exp(x[i] - largest)
    return np.float32(math.log(total))


@jit
def best_tokens(x: Any, maxima: Any, skipped: int, values: Any, ids: Any) -> None:
    """The largest values and their columns, in descending order, without column `skipped`. They lie in the blocks with
    the largest maxima, whose bound is looked for first."""
    for block in range(len(maxima)):
        if maxima[block] > values[-1] and not block * BLOCK <= skipped < (block + 1) * BLOCK:
            insert(values, ids, maxima[block], block)
    bound = values[-1]
    values[:] = -np.inf
    for block in range(len(maxima)):
        if maxima[block] >= bound and maxima[block] > values[-1]:
            for i in range(block * BLOCK, min(len(x), (block + 1) * BLOCK)):
                if x[i] > values[-1] and i != skipped:
                    insert(values, ids, x[i], i)


@jit
def search_rows(
    x: Any, bits: Any, joint: Any, endings: Any, end: int, values: Any, ids: Any, best: Any, where: Any
) -> bool:
    """Returns False for a row with a number that is NaN or +inf, or with -inf only."""
    B, K = joint.shape
    maxima = np.empty(-(-x.shape[1] // BLOCK), np.float32)
    for row in range(B * K):
        if is_invalid(bits[row]):
            return False
        largest = block_maxima(x[row], maxima)
        if largest == -np.inf:
            return False
        log_total = log_sum_exp(x[row], largest)
        if endings[row] == MUST_END:
            ids[row, 0] = end
            values[row, 0] = x[row, end] - largest - log_total if x[row, end] > -np.inf else np.float32(0.0)
        else:
            best_tokens(x[row], maxima, end if endings[row] == CANNOT_END else -1, values[row], ids[row])
            for i in range(values.shape[1]):
                values[row, i] = values[row, i] - largest - log_total
    count = values.shape[1]
    for b in range(B):
        for k in range(K):
            for i in range(count):
                value = joint[b, k] + values[b * K + k, i]
                if value > best[b, -1]:
                    insert(best[b], where[b], value, k * count + i)
    return True


def compiled_candidates(logits: Tensor, logp: Floats, end: int, endings: Endings) -> Candidates:
    """As `regard.beams.find_candidates`, which says what is wrong if a logit is NaN or infinite."""
    (B, K), count = logp.shape, min(2 * logp.shape[1], logits.size(1))
    values, ids = np.full((B * K, count), -math.inf, np.float32), np.zeros((B * K, count), np.int64)
    width = min(2 * K, K * count)
    best, where = np.full((B, width), -math.inf, np.float32), np.zeros((B, width), np.int64)
    x = logits.contiguous()
    bits = x.view(torch.int32).numpy()
    if not search_rows(x.numpy(), bits, logp, endings, end, values, ids, best, where):
        return find_candidates(logits, logp, end, endings)
    return Candidates(best, where // count, np.take_along_axis(ids.reshape(B, -1), where, 1))
