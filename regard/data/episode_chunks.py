"""Trains on chunks of episodes: consecutive steps of one episode, identified by one integer.

The chunk boundaries follow from (seed, epoch): each epoch contains every step exactly once, with other boundaries.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from regard.data.batches import Ints


class EpisodeChunks:
    """`arrays` contain the steps of all episodes along their first axis. A step counts as `tokens` tokens."""

    def __init__(self, steps: Ints, arrays: tuple[npt.NDArray[np.generic], ...], max_steps: int, tokens: int = 1):
        self.arrays, self.max_steps, self.tokens = arrays, max_steps, tokens
        self.ends: Ints = steps.cumsum()
        self.begins: Ints = self.ends - steps
        self.units = int(steps.sum())

    def epoch(self, budget: int, seed: int, epoch: int) -> list[Ints]:
        rng = np.random.default_rng([seed, epoch])
        chunks = rng.permutation(self.cut(rng.integers(1, self.max_steps, len(self.begins), endpoint=True)))
        size = max(1, budget // (self.max_steps * self.tokens))
        return [chunks[i : i + size] for i in range(0, len(chunks), size)]

    def sequential(self) -> Ints:
        return self.cut(np.full(len(self.begins), self.max_steps))

    def cut(self, first: Ints) -> Ints:
        """The ids of all chunks. The first chunk of episode i has at most first[i] steps, all others max_steps."""
        ids = []
        for begin, end, steps in zip(self.begins.tolist(), self.ends.tolist(), first.tolist(), strict=True):
            starts = [begin, *range(begin + steps, end, self.max_steps)]
            for start, stop in zip(starts, [*starts[1:], end], strict=True):
                ids.append(start * self.max_steps + stop - start - 1)
        return np.array(ids, np.int64)

    def locate(self, chunk: int) -> tuple[int, int, int]:
        """The episode of a chunk, its first step in that episode, and its number of steps; all indices from 0."""
        start, steps = chunk // self.max_steps, chunk % self.max_steps + 1
        episode = int(np.searchsorted(self.ends, start, "right"))
        return episode, start - int(self.begins[episode]), steps

    def padded(self, chunks: Ints, fill: tuple[float, ...]) -> list[npt.NDArray[np.generic]]:
        """(B,T,...) of each array, padded with its value of `fill`."""
        starts, steps = chunks // self.max_steps, chunks % self.max_steps + 1
        batches = []
        for array, value in zip(self.arrays, fill, strict=True):
            batch = np.full((len(chunks), int(steps.max()), *array.shape[1:]), value, array.dtype)
            for row, start, count in zip(batch, starts.tolist(), steps.tolist(), strict=True):
                row[:count] = array[start : start + count]
            batches.append(batch)
        return batches
