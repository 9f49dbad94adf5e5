"""Trains on windows of episodes: fixed numbers of consecutive steps, from which a model predicts the next one.

A window never crosses the end of its episode; a shorter episode is padded. Each epoch cuts at other positions, and adds
one window at the end of each episode, so that terminations are not rare.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from regard.data.batches import Ints
from regard.data.episodes import Episode, Floats


class WindowBatch(NamedTuple):
    observations: Floats  # (B, T+1, ...) as observed
    actions: Ints | None  # (B,T)
    rewards: Floats  # (B,T)
    ends: Floats  # (B,T) 1 where the environment terminated the episode
    lengths: Ints  # (B,) steps without padding


class EpisodeWindows:
    """A row is the index of a window's first step among all steps. A step counts as `tokens` tokens."""

    def __init__(self, episodes: Sequence[Episode], context: int, tokens: int):
        self.episodes, self.tokens = episodes, tokens
        self.steps = np.array([episode.steps for episode in episodes])
        self.context = min(context, int(self.steps.max()))
        self.begins = np.concatenate(([0], self.steps.cumsum()))
        self.units = int(np.minimum(self.context, self.steps_left(self.cut(None))).sum())

    def cut(self, rng: np.random.Generator | None) -> Ints:
        """The starts of all windows of an epoch; without `rng` the cuts begin at the first step of each episode."""
        return np.concatenate([begin + starts for begin, starts in self.cut_episodes(self.context, rng)])

    def overlapping(self, stride: int) -> tuple[Ints, Ints]:
        """The starts of windows `stride` steps apart, and how many steps at the end of each are in no earlier one."""
        episodes = [*self.cut_episodes(stride, None)]
        fresh = [np.diff(starts, prepend=-self.context) for _, starts in episodes]
        return np.concatenate([begin + starts for begin, starts in episodes]), np.concatenate(fresh)

    def cut_episodes(self, stride: int, rng: np.random.Generator | None) -> Iterator[tuple[int, Ints]]:
        """The first step of each episode, and the starts of its windows relative to it."""
        for begin, steps in zip(self.begins.tolist(), self.steps.tolist(), strict=False):
            last = max(0, steps - self.context)
            first = int(rng.integers(min(self.context, last + 1))) if rng else 0
            yield begin, np.append(np.arange(first, last, stride), last)

    def epoch(self, budget: int, seed: int, epoch: int) -> list[Ints]:
        rng = np.random.default_rng([seed, epoch])
        starts, count = rng.permutation(self.cut(rng)), self.windows_per_batch(budget)
        return [starts[i : i + count] for i in range(0, len(starts), count)]

    def sequential(self) -> Ints:
        return self.cut(None)

    def windows_per_batch(self, budget: int) -> int:
        """As many windows as `budget` tokens hold."""
        return max(1, budget // (self.context * self.tokens))

    def locate(self, starts: Ints) -> tuple[Ints, Ints]:
        """The episode of each window, and its first step in that episode."""
        number = np.searchsorted(self.begins, starts, "right") - 1
        return number, starts - self.begins[number]

    def steps_left(self, starts: Ints) -> Ints:
        number, step = self.locate(starts)
        return self.steps[number] - step

    def take(self, starts: Ints) -> WindowBatch:
        lengths = np.minimum(self.context, self.steps_left(starts))
        B, T = len(starts), int(lengths.max())
        first = self.episodes[0]
        observations = np.zeros((B, T + 1, *first.observations.shape[1:]), np.float32)
        actions = None if first.actions is None else np.zeros((B, T), np.int64)
        rewards, ends = np.zeros((B, T), np.float32), np.zeros((B, T), np.float32)
        for i, (number, start, length) in enumerate(zip(*self.locate(starts), lengths, strict=True)):
            episode, end = self.episodes[number], start + length
            observations[i, : length + 1] = episode.as_float(start, end + 1)
            rewards[i, :length] = episode.rewards[start:end]
            ends[i, length - 1] = episode.terminated and end == episode.steps
            if actions is not None and episode.actions is not None:
                actions[i, :length] = episode.actions[start:end]
        return WindowBatch(observations, actions, rewards, ends, lengths)
