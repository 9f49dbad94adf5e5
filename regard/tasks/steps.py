"""Episodes as one decides by them: those an input names, the best of them, the return that is still to come.

return to go at step t = what the whole episode comes to - Σ of the rewards before t
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


def the_best(items: Rows, share: float) -> Iterator[Any]:
    """The episodes with the highest returns, as they came; of those that are alike the first. What is bad stays bad."""
    if not 0 < share <= 1:
        raise ValueError(f"best must be above 0 and at most 1, not {share:g}")
    rows = list(items)
    whole = [i for i, row in enumerate(rows) if isinstance(row, Episode)]
    ranked = sorted(whole, key=lambda i: -float(rows[i].rewards.sum()))
    kept = {*ranked[: math.ceil(share * len(whole))]}
    return (row for i, row in enumerate(rows) if i in kept or not isinstance(row, Episode))


def to_go(rewards: Floats, total: float) -> npt.NDArray[np.float64]:
    """(L+1,2): the return to go at each step of an episode that comes to `total`, and how many steps were done."""
    got = np.append(0.0, rewards.cumsum(dtype=np.float64))
    return np.stack((total - got, np.arange(len(got))), 1)


def must_act(row: Episode) -> None:
    if row.actions is None:
        raise ValueError(f"{row.file}:{row.line}: nobody acts here; decide learns from episodes that have actions")


def episodes_in(text: str, number: int) -> list[Episode]:
    """What an input holds: one episode so far as JSON, or the episodes of the file that it names."""
    if text.lstrip().startswith("{"):
        return [so_far(text, number)]
    if not text.strip():
        raise ValueError(f"input:{number}: give a file of episodes, or one episode so far as JSON")
    return episodes_of(text)


def episodes_of(name: str) -> list[Episode]:
    """Those of a file, or one of them: videos.npz:3."""
    file, _, number = name.rpartition(":")
    file = file if file and number.isdecimal() else name
    rows: list[Episode] = lint({file: read_episodes([file])})[0][file]
    if file != name and not (rows := [row for row in rows if row.line == int(number)]):
        raise ValueError(f"{file}: there is no episode {number}")
    return rows


def so_far(text: str, number: int) -> Episode:
    """{"observations": [...], "actions": [...], "rewards": [...]}, with one action and one reward less."""
    where = f"input:{number}"
    try:
        told = json.loads(text)
        seen = np.array(told["observations"], np.float32)
        done = np.array(told.get("actions", []), np.float64)
        rewards = np.array(told.get("rewards", [0.0] * len(done)), np.float32)
    except (ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError) as error:
        raise ValueError(f"{where}: no episode so far: {type(error).__name__}, {str(error)[:100]}") from None
    seen = seen[:, None] if seen.ndim == 1 else seen
    if seen.ndim < 2 or done.shape != (len(seen) - 1,) or rewards.shape != done.shape:
        found = f"{seen.shape}, {done.shape} and {rewards.shape}"
        raise ValueError(f"{where}: L + 1 observations go with L actions and L rewards, but these are {found}")
    if not all(np.isfinite(array).all() for array in (seen, done, rewards)):
        raise ValueError(f"{where}: NaN or an infinite number")
    if (done != done.astype(np.int64)).any() or (done < 0).any():
        raise ValueError(f"{where}: an action is a whole number from 0 on, not {done.tolist()}")
    return Episode(seen, done.astype(np.int64), rewards, False, "input", number)
