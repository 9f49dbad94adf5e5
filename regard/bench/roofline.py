"""What the machine can do at most: bytes read from memory and numbers multiplied in a second.

time of a token >= bytes of weights / bandwidth          each weight is read once for every step
time of a batch >= 2 · weights · tokens / peak           a multiplication and an addition for each
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import NamedTuple

import torch

from regard.speed.room import alone

BYTES = 2**28  # read at once: more than any processor keeps near
SIDE = 1024  # of the matrices
TURNS = 5


class Limits(NamedTuple):
    bandwidth: float  # bytes per second
    peak: float  # operations per second


def limits(threads: int, size: int = BYTES, side: int = SIDE) -> Limits:
    """The best of several turns, with so many threads."""
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        return Limits(bandwidth(size), peak(side))
    finally:
        torch.set_num_threads(before)


def bandwidth(size: int) -> float:
    """By whichever of two ways reads an array faster."""
    numbers = alone((size // 4,), torch.float32).fill_(1)  # in large pages, as weights are
    return size / min(fastest(numbers.sum), fastest(lambda: torch.dot(numbers, numbers)))


def peak(side: int) -> float:
    one, other = torch.randn(2, side, side)
    out = torch.empty(side, side)
    return 2 * side**3 / fastest(lambda: torch.mm(one, other, out=out))


def fastest(act: Callable[[], object]) -> float:
    """Seconds."""
    took = []
    for _ in range(TURNS + 1):  # the first warms up
        began = time.perf_counter()
        act()
        took.append(time.perf_counter() - began)
    return min(took[1:])
