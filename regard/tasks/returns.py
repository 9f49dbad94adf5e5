"""Episodes as data of offline reinforcement learning: parsing of inputs, the top episodes, returns-to-go.

return-to-go at step t = return of the episode - Σ of the rewards before t
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from regard.data.episodes import Episode, Floats, read_episodes
from regard.data.lint import lint
from regard.data.splits import Rows


def top_episodes(items: Rows, fraction: float) -> Iterator[Any]:
    """The episodes with the highest returns, in their order; of equal ones the first. Bad rows are passed on."""
    if not 0 < fraction <= 1:
        raise ValueError(f"top-fraction must be above 0 and at most 1, not {fraction:g}")
    rows = list(items)
    episodes = [i for i, row in enumerate(rows) if isinstance(row, Episode)]
    ranked = sorted(episodes, key=lambda i: -float(rows[i].rewards.sum()))
    top = {*ranked[: math.ceil(fraction * len(episodes))]}
    return (row for i, row in enumerate(rows) if i in top or not isinstance(row, Episode))


def compute_returns_to_go(rewards: Floats, total: float) -> npt.NDArray[np.float64]:
    """(L+1,2): the return-to-go at each step of an episode with the return `total`, and the number of the step."""
    obtained = np.append(0.0, rewards.cumsum(dtype=np.float64))
    return np.stack((total - obtained, np.arange(len(obtained))), 1)


def require_actions(row: Episode) -> None:
    if row.actions is None:
        raise ValueError(f"{row.file}:{row.line}: decide needs episodes with actions, and this is a video")


def parse_episodes(text: str, number: int) -> list[Episode]:
    """The episodes of an input: one unfinished episode as JSON, or the episodes of the file that it names."""
    if text.lstrip().startswith("{"):
        return [parse_unfinished(text, number)]
    if not text.strip():
        raise ValueError(f"input:{number}: give a file of episodes, or one unfinished episode as JSON")
    return read_named_episodes(text)


def read_named_episodes(name: str) -> list[Episode]:
    """All episodes of a file, or one of them: videos.npz:3."""
    file, _, number = name.rpartition(":")
    file = file if file and number.isdecimal() else name
    rows: list[Episode] = lint({file: read_episodes([file])})[0][file]
    if file != name and not (rows := [row for row in rows if row.line == int(number)]):
        raise ValueError(f"{file} has no episode {number}")
    return rows


def parse_unfinished(text: str, number: int) -> Episode:
    """{"observations": [...], "actions": [...], "rewards": [...]}, with one action and one reward less."""
    location = f"input:{number}"
    try:
        fields = json.loads(text)
        observations = np.array(fields["observations"], np.float32)
        actions = np.array(fields.get("actions", []), np.float64)
        rewards = np.array(fields.get("rewards", [0.0] * len(actions)), np.float32)
    except (ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError) as error:
        raise ValueError(f"{location}: not an episode: {type(error).__name__}, {str(error)[:100]}") from None
    observations = observations[:, None] if observations.ndim == 1 else observations
    if observations.ndim < 2 or actions.shape != (len(observations) - 1,) or rewards.shape != actions.shape:
        shapes = f"{observations.shape}, {actions.shape} and {rewards.shape}"
        raise ValueError(f"{location}: L + 1 observations go with L actions and L rewards, but these are {shapes}")
    if not all(np.isfinite(array).all() for array in (observations, actions, rewards)):
        raise ValueError(f"{location}: the episode contains NaN or infinity")
    if (actions != actions.astype(np.int64)).any() or (actions < 0).any():
        raise ValueError(f"{location}: an action must be an integer of at least 0, not {actions.tolist()}")
    return Episode(observations, actions.astype(np.int64), rewards, False, "input", number)
