"""Trajectories as model inputs: videos, and episodes of observations and actions."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from regard.data.episodes import Episode, EpisodeRow, Rollout, episode_row, observed
from regard.data.lint import lint
from regard.data.rows import Row
from regard.modalities.protocols import Target
from regard.modalities.step_preprocessor import StepPreprocessor
from regard.modalities.trajectory.episode_files import read_episodes
from regard.modalities.trajectory.rollout_video import save_rollouts
from regard.options import OptionGroups
from regard.validate import check_fields

PROBE_STEPS = 12  # of a probe


@dataclass(frozen=True)
class FrameOptions:
    """The patches of a frame."""

    patch_size: int | None = None  # height and width of an image patch in pixels; default: the divisor nearest to 10

    def __post_init__(self) -> None:
        check_fields(self, patch_size=(self.patch_size is None or self.patch_size >= 1, "at least 1"))


@dataclass(frozen=True)
class DemonstrationOptions:
    """Which episodes are imitated."""

    top_fraction: float = 1.0  # train on this fraction of the episodes, those with the highest returns

    def __post_init__(self) -> None:
        check_fields(self, top_fraction=(0 < self.top_fraction <= 1, "above 0 and at most 1"))


@dataclass
class TrajectoryPreprocessor(StepPreprocessor):
    patch_size: int | None = None  # of --patch-size
    top_fraction: float = 1.0  # of --top-fraction

    modality = "trajectory"

    @property
    def example(self) -> str:  # type: ignore[override]
        return "episodes.jsonl" if self.num_actions else "videos.npz"

    def options(self) -> OptionGroups:
        return OptionGroups(DemonstrationOptions(self.top_fraction))

    def parse_all(self, raw: str) -> list[EpisodeRow]:
        """One unfinished episode as JSON, or the episodes of the file that it names: all, or one: videos.npz:3."""
        if raw.lstrip().startswith("{"):
            return [parse_unfinished(raw)]
        if not raw.strip():
            raise ValueError("give a file of episodes, or one unfinished episode as JSON")
        file, _, number = raw.rpartition(":")
        file = file if file and number.isdecimal() else raw
        rows: list[EpisodeRow] = lint({file: read_episodes([file])})[0][file]
        if file != raw and not (rows := [row for row in rows if row.line == int(number)]):
            raise ValueError(f"{file} has no episode {number}")
        return rows

    def probes(self, count: int, target: Target) -> list[Row[Episode, object]]:
        """Random walks, of different lengths."""
        rng = np.random.default_rng(0)
        rows = []
        for i in range(count):
            steps = PROBE_STEPS - i % 3
            walk = rng.normal(size=(steps + 1, *self.norm.shape)).cumsum(0).clip(self.norm.low, self.norm.high)
            episode = observed((walk if self.norm.is_frames else walk * self.norm.std).astype(np.float32))
            if self.num_actions:
                actions = rng.integers(0, self.num_actions, steps)
                episode = episode._replace(actions=actions, rewards=episode.rewards + 1)
            rows.append(episode_row(episode, "", i + 1))
        return [*rows]

    def save_rollouts(self, file: str, rollouts: Sequence[Rollout]) -> None:
        save_rollouts(file, rollouts, self.norm.low, self.norm.high)

    def save(self, folder: Path) -> dict[str, object]:
        return {**super().save(folder), "patch_size": self.patch_size, "top_fraction": self.top_fraction}


def parse_unfinished(raw: str) -> EpisodeRow:
    """{"observations": [...], "actions": [...], "rewards": [...]}, with one action and one reward less."""
    try:
        fields = json.loads(raw)
        observations = np.array(fields["observations"], np.float32)
        actions = np.array(fields.get("actions", []), np.float64)
        rewards = np.array(fields.get("rewards", [0.0] * len(actions)), np.float32)
    except (ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError) as error:
        raise ValueError(f"not an episode: {type(error).__name__}, {str(error)[:100]}") from None
    observations = observations[:, None] if observations.ndim == 1 else observations
    if observations.ndim < 2 or actions.shape != (len(observations) - 1,) or rewards.shape != actions.shape:
        shapes = f"{observations.shape}, {actions.shape} and {rewards.shape}"
        raise ValueError(f"L + 1 observations go with L actions and L rewards, but these are {shapes}")
    if not all(np.isfinite(array).all() for array in (observations, actions, rewards)):
        raise ValueError("the episode contains NaN or infinity")
    if (actions != actions.astype(np.int64)).any() or (actions < 0).any():
        raise ValueError(f"an action must be an integer of at least 0, not {actions.tolist()}")
    return episode_row(Episode(observations, actions.astype(np.int64), rewards), "", 1)
