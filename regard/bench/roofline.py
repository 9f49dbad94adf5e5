"""The roofline of this machine: memory bandwidth and peak FLOP/s.           Williams et al. 2009

time of a token >= bytes of weights / bandwidth          each decoding step reads every weight once
time of a batch >= 2 · weights · tokens / peak           one multiplication and one addition for each weight
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import NamedTuple

import torch

from regard.engine.arena import array_empty

ARRAY_BYTES = 2**28  # more than any processor cache
SIDE = 1024  # of the matrices
REPEATS = 5


class Roofline(NamedTuple):
    bandwidth: float  # bytes per second
    peak: float  # operations per second


def measure_roofline(threads: int, size: int = ARRAY_BYTES, side: int = SIDE) -> Roofline:
    """The best of several repeats."""
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        return Roofline(bandwidth(size), peak(side))
    finally:
        torch.set_num_threads(before)


def bandwidth(size: int) -> float:
    """Bytes per second, by the faster of two reductions of an array."""
    array = array_empty((size // 4,), torch.float32).fill_(1)  # in huge pages, as weights are
    return size / min(fastest(array.sum), fastest(lambda: torch.dot(array, array)))


def peak(side: int) -> float:
    a, b = torch.randn(2, side, side)
    out = torch.empty(side, side)
    return 2 * side**3 / fastest(lambda: torch.mm(a, b, out=out))


def fastest(call: Callable[[], object]) -> float:
    """Seconds of the fastest call."""
    times = []
    for _ in range(REPEATS + 1):  # the first warms up
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return min(times[1:])
