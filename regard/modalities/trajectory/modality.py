"""Trajectories: videos, and episodes of observations, actions and rewards."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from regard.data.episodes import EpisodeRow, episode_row, observed
from regard.data.lines import BadRow, Note
from regard.data.rows import Row
from regard.data.splits import DataOptions, Rows
from regard.modalities.protocols import FitOptions, Modality, ReadOptions, Target, stored_value
from regard.modalities.synthetic import bouncing_balls, cart
from regard.modalities.trajectory.episode_files import EPISODE_FORMATS, read_episodes
from regard.modalities.trajectory.preprocessor import DemonstrationOptions, FrameOptions, TrajectoryPreprocessor

VIDEOS = {"train": 1500, "valid": 100, "test": 200}  # synthetic videos of bouncing balls


class TrajectoryModality(Modality):
    name = "trajectory"
    unit = "episodes"
    file = "observation_norm in task.json"
    size_names = ("observation_dim", "observation_tokens", "num_actions")
    formats = {
        Target.NEXT: ".npz or .jsonl of videos or episodes",
        Target.ACTION: ".npz or .jsonl of episodes: observations, actions, rewards",
    }
    synthetic_data = {
        Target.NEXT: "videos of three bouncing balls",
        Target.ACTION: "CartPole, played by policies of different skill",
    }
    default_models = {"dynamics": "world_model"}
    unused_options = frozenset({"fields"})
    file_formats = EPISODE_FORMATS

    def option_groups(self, target: Target) -> tuple[type, ...]:
        return (FrameOptions, DemonstrationOptions) if target is Target.ACTION else (FrameOptions,)

    def is_inline(self, raw: str) -> bool:
        """One episode as JSON."""
        return raw.lstrip().startswith("{")

    def read(self, paths: Sequence[str], how: ReadOptions) -> Iterator[EpisodeRow | BadRow | Note]:
        return top_episodes(read_episodes(paths, how.dialect), how.groups[DemonstrationOptions].top_fraction)

    def synthetic(self, target: Target) -> Mapping[str, Iterable[EpisodeRow]]:
        """Videos, each set with its own seed; or recorded episodes."""
        if target is Target.ACTION:
            return {name: demonstrations(name) for name in VIDEOS}
        sets: dict[str, list[EpisodeRow]] = {}
        for seed, (name, count) in enumerate(VIDEOS.items()):
            videos = bouncing_balls.balls(count, seed=seed).frames
            sets[name] = [episode_row(observed(frames), f"ball {name}", i) for i, frames in enumerate(videos, 1)]
        return sets

    def training_sets(self, files: DataOptions, how: ReadOptions) -> Mapping[str, Rows]:
        fraction = how.groups[DemonstrationOptions].top_fraction
        if files.data:
            return super().training_sets(files, how)
        return {name: top_episodes(rows, fraction) for name, rows in self.synthetic(how.target).items()}

    def fit(self, rows: Sequence[EpisodeRow], how: FitOptions) -> TrajectoryPreprocessor:
        for row in rows:
            if how.target is Target.ACTION and row.input.actions is None:
                raise ValueError(f"{row.location}the next action needs episodes with actions, and this is a video")
        patch_size, top_fraction = how.groups[FrameOptions].patch_size, how.groups[DemonstrationOptions].top_fraction
        scales = TrajectoryPreprocessor.scales(rows, patch_size)
        return TrajectoryPreprocessor(**scales, patch_size=patch_size, top_fraction=top_fraction)

    def load(self, folder: Path, stored: Mapping[str, object]) -> TrajectoryPreprocessor | None:
        patch_size: int | None = stored_value(folder, stored, "patch_size", int | None, None)
        top_fraction = stored_value(folder, stored, "top_fraction", float, 1.0)
        return TrajectoryPreprocessor.from_stored(folder, stored, patch_size=patch_size, top_fraction=top_fraction)


def demonstrations(name: str, count: int = 600) -> list[EpisodeRow]:
    """The synthetic episodes of one set."""
    episodes = enumerate(cart.carts(count))
    return [episode_row(episode, "cart", i + 1) for i, episode in episodes if cart.split(i) == name]


def top_episodes(items: Iterable[EpisodeRow | BadRow | Note], fraction: float) -> Iterator[EpisodeRow | BadRow | Note]:
    """The episodes with the highest returns, in their order; of equal ones the first. Bad rows are passed on."""
    rows = list(items)
    returns = {i: row.input.total_reward for i, row in enumerate(rows) if isinstance(row, Row)}
    ranked = sorted(returns, key=lambda i: -returns[i])
    top = {*ranked[: math.ceil(fraction * len(returns))]}
    return (row for i, row in enumerate(rows) if i in top or i not in returns)
