"""Episodes: observations over time, and the actions and rewards between them. A video or a series has no actions.

L actions lie between L + 1 observations: the last observation is the result of the last action. `terminated` is true if
the environment ended the episode, as a falling pole does, and false if it was truncated.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from regard.data.rows import Row

Floats = npt.NDArray[np.float32]
Ints = npt.NDArray[np.int64]


class Episode(NamedTuple):
    observations: Floats  # (L+1, numbers) or (L+1, height, width[, channels]); uint8 frames stay uint8
    actions: Ints | None  # (L,) discrete actions; None if there are none
    rewards: Floats  # (L,) zeros without actions
    terminated: bool = False  # by the environment; False: truncated

    @property
    def steps(self) -> int:
        return len(self.rewards)

    @property
    def total_reward(self) -> float:
        return float(self.rewards.sum())

    def as_float(self, start: int = 0, end: int | None = None) -> Floats:
        """The observations from `start` to `end` as float32; uint8 is divided by 255."""
        observations = self.observations[start:end]
        return observations / np.float32(255) if observations.dtype == np.uint8 else observations


EpisodeRow = Row[Episode, None]


class Rollout(NamedTuple):
    """Predicted observations beside the true ones."""

    episode: Episode
    num_observed: int  # observations that the model was given
    prediction: Floats  # (horizon, ...); fewer if the episode has actions and ends before
    target: Floats  # the true observations, as far as the episode has them


def observed(observations: npt.NDArray[Any]) -> Episode:
    """Observations without actions: a video or a series."""
    return Episode(observations, None, np.zeros(len(observations) - 1, np.float32))


def episode_row(episode: Episode, file: str, line: int) -> EpisodeRow:
    """`line` is the number of the episode in its file. Episodes with equal observations stay in one split."""
    outcome = () if episode.actions is None else (episode.actions, episode.rewards)
    key = digest(episode.observations, *outcome) + str(episode.terminated)
    return Row(episode, None, file, line, key, digest(episode.observations))


def digest(*arrays: npt.NDArray[np.generic]) -> str:
    hasher = blake2b(digest_size=16)
    for array in arrays:
        hasher.update(f"{array.shape}{array.dtype}".encode() + np.ascontiguousarray(array).tobytes())
    return hasher.hexdigest()
