"""Moments: windows cut out of episodes, so many steps each, to learn what follows each step.

A window never leaves its episode; what is shorter is filled up. Every epoch cuts elsewhere, and each episode once more
at its end: there lies what is rare.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from regard.data.batches import Ints
from regard.data.episodes import Episode, Floats


class WindowBatch(NamedTuple):
    observations: Floats  # (B, T+1, ...) as they were observed
    actions: Ints | None  # (B,T)
    rewards: Floats  # (B,T)
    ends: Floats  # (B,T) 1 where the world ended the episode
    lengths: Ints  # (B,) real steps


class EpisodeWindows:
    """`tokens` is how many vectors a step becomes. A row is the number of a window's first step among all steps."""

    def __init__(self, episodes: Sequence[Episode], context: int, tokens: int):
        self.episodes, self.tokens = episodes, tokens
        self.steps = np.array([one.steps for one in episodes])
        self.context = min(context, int(self.steps.max()))
        self.begins = np.concatenate(([0], self.steps.cumsum()))
        self.units = int(np.minimum(self.context, self.steps_left(self.cut(None))).sum())

    def cut(self, draw: np.random.Generator | None) -> Ints:
        """Where windows begin."""
        found = []
        for begin, steps in zip(self.begins.tolist(), self.steps.tolist(), strict=False):
            last = max(0, steps - self.context)
            first = int(draw.integers(min(self.context, last + 1))) if draw else 0
            found.append(begin + np.append(np.arange(first, last, self.context), last))
        return np.concatenate(found)

    def all_starts(self) -> Ints:
        """All windows there are: each step is the last of one that is full, or stands in the first of its episode."""
        spans = zip(self.begins.tolist(), self.steps.tolist(), strict=False)
        return np.concatenate([begin + np.arange(max(1, steps - self.context + 1)) for begin, steps in spans])

    def epoch(self, budget: int, seed: int, epoch: int) -> list[Ints]:
        draw = np.random.default_rng([seed, epoch])
        starts, windows_per_batch = draw.permutation(self.cut(draw)), self.windows_per_batch(budget)
        return [starts[i : i + windows_per_batch] for i in range(0, len(starts), windows_per_batch)]

    def windows_per_batch(self, budget: int) -> int:
        """Windows of so many tokens together."""
        return max(1, budget // (self.context * self.tokens))

    def locate(self, starts: Ints) -> tuple[Ints, Ints]:
        """Of which episode each window is, and with which of its steps it begins."""
        number = np.searchsorted(self.begins, starts, "right") - 1
        return number, starts - self.begins[number]

    def steps_left(self, starts: Ints) -> Ints:
        number, step = self.locate(starts)
        return self.steps[number] - step

    def take(self, starts: Ints) -> WindowBatch:
        lengths = np.minimum(self.context, self.steps_left(starts))
        B, T = len(starts), int(lengths.max())
        first = self.episodes[0]
        seen = np.zeros((B, T + 1, *first.observations.shape[1:]), np.float32)
        actions = None if first.actions is None else np.zeros((B, T), np.int64)
        rewards, ends = np.zeros((B, T), np.float32), np.zeros((B, T), np.float32)
        for i, (number, a, length) in enumerate(zip(*self.locate(starts), lengths, strict=True)):
            one = self.episodes[number]
            seen[i, : length + 1] = one.as_float(a, a + length + 1)
            rewards[i, :length] = one.rewards[a : a + length]
            ends[i, length - 1] = one.terminated and a + length == one.steps
            if actions is not None and one.actions is not None:
                actions[i, :length] = one.actions[a : a + length]
        return WindowBatch(seen, actions, rewards, ends, lengths)
