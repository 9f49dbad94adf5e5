"""Inputs of observations over time, normalised; what trajectories and number series share."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
import torch

from regard.data.batches import Ints, padding_mask
from regard.data.episode_windows import EpisodeWindows, WindowBatch
from regard.data.episodes import Episode, EpisodeRow, Rollout
from regard.data.observation_norm import ObservationNorm, Reals, nonzero_std
from regard.data.rows import Row
from regard.modalities.protocols import Inputs, Preprocessor, Target, stored_value
from regard.validate import check_fields


@dataclass
class StepPreprocessor(Preprocessor):
    num_actions: int  # 0 if there are none
    norm: ObservationNorm
    reward: tuple[float, float]  # mean and standard deviation
    baseline_description: ClassVar[str] = "copying the last observation"
    baseline_name: ClassVar[str | None] = None  # of its errors at several horizons; None: they are not reported

    def __post_init__(self) -> None:
        has_scale = len(self.reward) == 2 and self.reward[1] > 0
        check_fields(self, num_actions=(self.num_actions >= 0, "0 or more"))
        check_fields(self, reward=(has_scale, "mean and standard deviation"))

    @classmethod
    def scales(cls, rows: Sequence[EpisodeRow], patch_size: int | None = None) -> dict[str, Any]:
        """The fields that these rows determine."""
        episodes = [row.input for row in rows]
        largest = max((int(episode.actions.max()) for episode in episodes if episode.actions is not None), default=-1)
        rewards = np.concatenate([episode.rewards for episode in episodes]).astype(np.float64)
        reward = (float(rewards.mean()), float(nonzero_std(rewards.std())))
        return {"num_actions": 1 + largest, "norm": ObservationNorm.fit(episodes, patch_size), "reward": reward}

    def encode(self, rows: Sequence[Row[Episode, object]], context: int, whole: bool = False) -> EpisodeWindows:
        for row in rows:
            self.require_fit(row)
        tokens = self.norm.num_patches + (self.num_actions > 0)
        return EpisodeWindows([row.input for row in rows], context, tokens)

    def collate(self, inputs: EpisodeWindows, rows: Ints, training: bool) -> Inputs:
        return self.window_inputs(inputs.take(rows))

    def window_inputs(self, window: WindowBatch) -> Inputs:
        T = window.rewards.shape[1]
        x = self.norm.normalize(torch.from_numpy(window.observations)[:, :-1])
        return Inputs(x, None if window.lengths.min() == T else padding_mask(window.lengths, T))

    def sizes(self) -> dict[str, int]:
        return {**self.norm.sizes, "num_actions": self.num_actions}

    def require_fit(self, row: Row[Episode, object]) -> None:
        """Raise ValueError for an episode of another shape, or with other actions, than those of the training data."""
        episode, shape = row.input, list(row.input.observations.shape[1:])
        if shape != (expected := self.norm.shape):
            raise ValueError(f"{row.location}observations of shape {shape}, but the training data have {expected}")
        if (episode.actions is None) != (self.num_actions == 0):
            has, trained = ("no actions", "actions") if episode.actions is None else ("actions", "no actions")
            raise ValueError(f"{row.location}the episode has {has}, but the training data have {trained}")
        if episode.actions is not None and episode.actions.max(initial=0) >= self.num_actions:
            largest = self.num_actions - 1
            raise ValueError(f"{row.location}action {episode.actions.max()}, but the training data have 0 to {largest}")

    @abstractmethod
    def parse_all(self, raw: str) -> list[EpisodeRow]:
        """All episodes of a request; it may name a file of several."""

    def parse(self, raw: str, target: Target) -> EpisodeRow:
        row, *rest = self.parse_all(raw)
        if rest:
            raise ValueError(f"{raw[:80]}: {len(rest) + 1} episodes, but one is needed: add :1 for the first")
        return row

    @abstractmethod
    def save_rollouts(self, file: str, rollouts: Sequence[Rollout]) -> None:
        """Draw or write predicted observations, in the format of the file's suffix."""

    def rollout_windows(self, rows: Sequence[EpisodeRow], context: int, horizon: int) -> tuple[int, list[Episode]]:
        """Episodes on which rollouts are scored, and the step at which these start: once, when the context is full."""
        return context, [row.input for row in rows if row.input.steps >= context]

    def baseline(self, episode: Episode, start: int, horizon: int) -> Reals:
        """The trivial prediction of the observations from `start` on: the last one before them."""
        return np.repeat(episode.as_float(start - 1, start).astype(np.float64), horizon, 0)

    def save(self, folder: Path) -> dict[str, object]:
        return {"num_actions": self.num_actions, "observation_norm": asdict(self.norm), "reward": list(self.reward)}

    @classmethod
    def from_stored(cls, folder: Path, stored: Mapping[str, object], **extra: Any) -> Self | None:
        """From task.json; None if it does not describe observations."""
        if "observation_norm" not in stored:
            return None
        num_actions, norm = stored_value(folder, stored, "num_actions", int, -1), stored["observation_norm"]
        reward = stored_value(folder, stored, "reward", list[float], [0.0, 1.0])
        try:
            mean, std = reward
            if not isinstance(norm, dict) or {*norm} != {field.name for field in fields(ObservationNorm)}:
                raise ValueError("the fields of observation_norm")
            return cls(num_actions, ObservationNorm(**norm), (mean, std), **extra)
        except (ValueError, TypeError) as error:
            raise ValueError(f"{folder / 'task.json'}: {error}: restore it, or train again") from None
