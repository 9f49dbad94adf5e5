"""Episodes as one long row of steps, learnt from in stretches: a few steps of one episode, known by one number.

Where an episode is cut follows from (seed, epoch): in an epoch every step is learnt from exactly once, and in another
one with other steps before it.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from regard.data.batches import Ints


class EpisodeChunks:
    """`arrays` have all steps of all episodes along their first axis; a step counts as `tokens`."""

    def __init__(self, steps: Ints, arrays: tuple[npt.NDArray[Any], ...], longest: int, tokens: int = 1):
        self.arrays, self.longest, self.tokens = arrays, longest, tokens
        self.ends: Ints = steps.cumsum()
        self.begins: Ints = self.ends - steps
        self.units = int(steps.sum())

    def epoch(self, budget: int, seed: int, epoch: int) -> list[Ints]:
        draw = np.random.default_rng([seed, epoch])
        found = draw.permutation(self.cut(draw.integers(1, self.longest, len(self.begins), endpoint=True)))
        size = max(1, budget // (self.longest * self.tokens))
        return [found[i : i + size] for i in range(0, len(found), size)]

    def sequential_chunks(self) -> Ints:
        return self.cut(np.full(len(self.begins), self.longest))

    def cut(self, first: Ints) -> Ints:
        """The numbers of all stretches; that of the first one in each episode is `first` steps long, if there are."""
        found = []
        for begin, end, steps in zip(self.begins.tolist(), self.ends.tolist(), first.tolist(), strict=True):
            starts = [begin, *range(begin + steps, end, self.longest)]
            for start, stop in zip(starts, [*starts[1:], end], strict=True):
                found.append(start * self.longest + stop - start - 1)
        return np.array(found, np.int64)

    def locate(self, number: int) -> tuple[int, int, int]:
        """Which episode a stretch is of, counted from 0, its first step there, and how many steps it has."""
        start, steps = number // self.longest, number % self.longest + 1
        episode = int(np.searchsorted(self.ends, start, "right"))
        return episode, start - int(self.begins[episode]), steps

    def padded(self, numbers: Ints, fill: tuple[Any, ...]) -> list[npt.NDArray[Any]]:
        """(B,T,...) of each array; behind the last step of a stretch stands what `fill` says."""
        starts, steps = numbers // self.longest, numbers % self.longest + 1
        made = []
        for array, value in zip(self.arrays, fill, strict=True):
            table = np.full((len(numbers), int(steps.max()), *array.shape[1:]), value, array.dtype)
            for row, start, count in zip(table, starts.tolist(), steps.tolist(), strict=True):
                row[:count] = array[start : start + count]
            made.append(table)
        return made
