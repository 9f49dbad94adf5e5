"""A permutation of the numbers below N that is computed, not stored: any place of it costs the same and no memory.

    l += F(r) mod a,  r += F(l) mod b, ...        six Feistel rounds over l < a, r < b with a · b ≥ N, a ≈ b ≈ √N
    x -> the first of π(x), π(π(x)), ... below N        cycle walking (Black and Rogaway 2002)

The rounds are a bijection of the a · b numbers whatever F is; following its cycles restricts it to those below N. Four
rounds would hide the order from few looks (Luby and Rackoff 1988), but leave neighbours side by side twice as often as
chance does; six do not (tests/data/test_permutation.py).
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]
Words = npt.NDArray[np.uint64]
ROUNDS = 6


class Permutation:
    """The numbers below `size` in an order that follows from `key`."""

    def __init__(self, size: int, *key: int):
        self.size = size
        self.left = max(1, math.isqrt(max(size - 1, 0)) + 1)
        self.right = max(1, -(-size // self.left))  # left · right exceeds size by less than left
        seeds = np.random.SeedSequence([*key]).generate_state(ROUNDS, np.uint64)
        self.keys = [int(seed) for seed in seeds]

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, places: Ints) -> Ints:
        """The numbers at `places`."""
        numbers = self.permute(places)
        outside = np.flatnonzero(numbers >= self.size)
        while len(outside):
            numbers[outside] = self.permute(numbers[outside])
            outside = outside[numbers[outside] >= self.size]
        return numbers

    def permute(self, numbers: Ints) -> Ints:
        """The bijection of the numbers below left · right."""
        right, left = np.divmod(np.asarray(numbers, np.int64).astype(np.uint64), np.uint64(self.left))
        for i, key in enumerate(self.keys):
            if i % 2 == 0:
                left = (left + mix(right, key)) % np.uint64(self.left)
            else:
                right = (right + mix(left, key)) % np.uint64(self.right)
        return (right * np.uint64(self.left) + left).astype(np.int64)


def mix(values: Words, key: int) -> Words:
    """A hash of each value, below 2^62 so that a sum does not overflow: the finaliser of SplitMix64 (Steele 2014)."""
    x = values * np.uint64(0x9E3779B97F4A7C15) + np.uint64(key)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return (x ^ (x >> np.uint64(31))) >> np.uint64(2)
