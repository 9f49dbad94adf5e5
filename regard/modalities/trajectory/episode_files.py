"""Reads and writes files of episodes and videos.

    .npz      observations of all episodes, concatenated; actions, rewards; steps and terminated, one value per episode
              or only videos: (number, frames, height, width), or with channels at the end
    .jsonl    {"observations": [...], "actions": [...], "rewards": [...], "terminated": true}, one episode per line
              {"observations": [...]} alone: no actions

Each episode gives one row or one `BadRow`, whose line is the episode's number in its file.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from regard.data.arrays import read_arrays
from regard.data.episodes import Episode, EpisodeRow, episode_row, observed
from regard.data.fields import OBJECT_SUFFIXES, file_suffixes, read_objects
from regard.data.lines import UTF8, BadRow, Dialect, Lines, Note
from regard.data.rows import Row
from regard.data.tables import quote_names
from regard.validate import MAX_FLOAT

EPISODE_FORMATS = (".npz", *OBJECT_SUFFIXES)
FIELDS = ("observations", "actions", "rewards", "terminated")
Arrays = dict[str, npt.NDArray[Any]]
MAX_ACTIONS = 1000  # discrete actions are numbered below this
SHAPES = {2: "a vector", 3: "a frame (height, width)", 4: "a frame (height, width, channels)"}


def read_episodes(paths: Sequence[str | Path], dialect: Dialect = UTF8) -> Iterator[EpisodeRow | BadRow | Note]:
    """The episodes of all files. All observations must have the same shape, and all episodes actions, or none."""
    first: EpisodeRow | None = None
    for path, kind in zip(paths, file_suffixes(paths, dialect), strict=True):
        if kind not in EPISODE_FORMATS:
            name = kind or "a name without suffix"
            raise ValueError(f"{path}: episodes come from .npz, .jsonl or .parquet files, not from {name!r}")
        for item in read_npz_episodes(Path(path)) if kind == ".npz" else read_rows(Lines(path, dialect.encoding)):
            if isinstance(item, Row):
                first = first or item
                yield find_inconsistency(item, first) or item
            else:
                yield item


def find_inconsistency(row: EpisodeRow, first: EpisodeRow) -> BadRow | None:
    where = f"those of {first.file}:{first.line} have"
    episode, reference = row.input, first.input
    shape, first_shape = episode.observations.shape[1:], reference.observations.shape[1:]
    if shape != first_shape:
        return BadRow(row.file, row.line, "unequal counts", f"observations of shape {shape}, {where} {first_shape}")
    if (episode.actions is None) != (reference.actions is None):
        detail = f"no actions, {where} some" if episode.actions is None else f"actions, {where} none"
        return BadRow(row.file, row.line, "missing field", f"it has {detail}")
    return None


def read_rows(lines: Lines) -> Iterator[EpisodeRow | BadRow | Note]:
    for item in read_objects(lines, lambda columns: [name for name in FIELDS if name in columns] or FIELDS[:1]):
        if isinstance(item, BadRow):
            yield item
            continue
        number, row = item
        required = FIELDS if {*FIELDS[1:]} & {*row} else FIELDS[:1]
        if missing := [name for name in required if name not in row]:
            detail = f"no field {missing[0]!r}; the line has {quote_names(row) or 'nothing'}"
            yield BadRow(lines.file, number, "missing field", detail)
            continue
        try:
            arrays = {name: to_array(name, row[name]) for name in required[:3]}
        except ValueError as error:
            yield BadRow(lines.file, number, "unequal counts", str(error))
            continue
        yield make_episode(arrays, row.get("terminated", False), lines.file, number)
    yield from lines.notes()


def to_array(name: str, values: object) -> npt.NDArray[Any]:
    try:
        return np.array(values)
    except (ValueError, OverflowError):
        raise ValueError(f"the {name} are not all of one shape") from None


def read_npz_episodes(file: Path) -> Iterator[EpisodeRow | BadRow]:
    arrays = read_arrays(file)
    if "videos" in arrays:
        videos = arrays["videos"]
        if videos.ndim not in (4, 5):
            raise ValueError(f"{file}: videos must be (number, frames, height, width[, channels]), not {videos.shape}")
        for number, frames in enumerate(videos, 1):
            yield make_episode({"observations": frames}, False, str(file), number)
        return
    required = ("observations", "steps", *(FIELDS[1:] if {*FIELDS[1:]} & {*arrays} else ()))
    if missing := [name for name in required if name not in arrays]:
        content = ", ".join(f"{name} {array.shape}" for name, array in arrays.items()) or "no arrays"
        raise ValueError(f"{file}: no array {missing[0]!r}, and no array 'videos'; the file has {content}")
    steps = arrays["steps"]
    if steps.ndim != 1 or steps.dtype.kind not in "iu" or (steps < 0).any():
        raise ValueError(f"{file}: steps must be whole numbers, one per episode, not {steps.dtype} {steps.shape}")
    total, count = int(steps.sum()), len(steps)
    for name, size in zip(FIELDS, (total + count, total, total, count), strict=True):
        shape = arrays[name].shape if name in arrays else (size,)
        if (shape if name == "terminated" else shape[:1]) != (size,):
            raise ValueError(f"{file}: {count} episodes with {total} steps need {size} {name}, but there are {shape}")
    terminated = arrays.get("terminated", np.zeros(count, bool))
    starts = np.concatenate(([0], steps.cumsum()))
    for number, (start, end) in enumerate(zip(starts.tolist(), starts[1:].tolist(), strict=False), 1):
        part = {"observations": arrays["observations"][start + number - 1 : end + number]}
        part |= {name: arrays[name][start:end] for name in ("actions", "rewards") if name in arrays}
        yield make_episode(part, terminated[number - 1].item(), str(file), number)


def make_episode(arrays: Arrays, terminated: object, file: str, number: int) -> EpisodeRow | BadRow:
    """The episode, or the first error in it."""
    observations = arrays["observations"]
    observations = observations[:, None] if observations.ndim == 1 else observations
    for name, array in arrays.items():
        if array.dtype.kind not in "iuf":
            return BadRow(file, number, "wrong type", f"the {name} are not numbers")
        if not (np.abs(array) < MAX_FLOAT).all():  # also refuses NaN
            return BadRow(file, number, "not a number", f"the {name} contain NaN, or a number beyond ±{MAX_FLOAT:g}")
    if observations.ndim not in SHAPES or 0 in observations.shape[1:]:
        detail = f"an observation is {' or '.join(SHAPES.values())}, not of shape {observations.shape[1:]}"
        return BadRow(file, number, "wrong type", detail)
    if (steps := len(observations) - 1) < 1:
        return BadRow(file, number, "empty", f"{len(observations)} observations: an episode without a step")
    if not isinstance(terminated, bool):
        return BadRow(file, number, "wrong type", f"terminated must be true or false, not {terminated!r:.80}")
    if observations.dtype != np.uint8 or observations.ndim == 2:
        observations = observations.astype(np.float32)
    if "actions" not in arrays:
        return episode_row(observed(observations), file, number)
    actions, rewards = arrays["actions"], arrays["rewards"]
    for name, array in (("actions", actions), ("rewards", rewards)):
        if array.shape != (steps,):
            detail = f"{steps + 1} observations need {steps} {name}, but there are {array.shape}"
            return BadRow(file, number, "unequal counts", detail)
    if invalid := [action for action in actions.tolist() if action != int(action) or not 0 <= action < MAX_ACTIONS]:
        detail = f"an action is a whole number from 0 to {MAX_ACTIONS - 1}, not {invalid[0]}"
        return BadRow(file, number, "wrong type", detail)
    episode = Episode(observations, actions.astype(np.int64), rewards.astype(np.float32), terminated)
    return episode_row(episode, file, number)


def write_episodes(file: str | Path, episodes: Iterable[Episode]) -> None:
    """As .npz or .jsonl, by the suffix of the name; `read_episodes` reads it back."""
    rows, kind = list(episodes), Path(file).suffix.lower()
    if not rows:
        raise ValueError(f"{file}: there are no episodes to write")
    if kind == ".npz":
        arrays = {"observations": np.concatenate([row.observations for row in rows])}
        arrays["steps"] = np.array([row.steps for row in rows])
        if rows[0].actions is not None:
            arrays["actions"] = np.concatenate([row.actions for row in rows if row.actions is not None])
            arrays["rewards"] = np.concatenate([row.rewards for row in rows])
            arrays["terminated"] = np.array([row.terminated for row in rows])
        np.savez_compressed(file, **arrays)  # type: ignore[arg-type]
    elif kind == ".jsonl":
        with open(file, "w", encoding="utf-8") as out:
            out.writelines(json.dumps(to_json(row)) + "\n" for row in rows)
    else:
        raise ValueError(f"{file}: episodes are written as .npz or .jsonl, not as {kind or 'a name without suffix'!r}")


def to_json(episode: Episode) -> dict[str, object]:
    observations, actions = episode.as_float().tolist(), episode.actions
    if actions is None:
        return {"observations": observations}
    outcome = {"rewards": episode.rewards.tolist(), "terminated": episode.terminated}
    return {"observations": observations, "actions": actions.tolist(), **outcome}
