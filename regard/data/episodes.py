"""Episodes: what was observed step by step, and what was done between. A video is one in which nobody acts.

    .npz      observations, all episodes one after the other; actions, rewards; steps and ended, one of each an episode
              videos alone: (number, frames, height, width), or with colours at the end
    .jsonl    {"observations": [...], "actions": [...], "rewards": [...], "ended": true}, one episode a line
              {"observations": [...]} alone: nobody acts

L actions lie between L + 1 observations: the last one is what the last action led to. `ended` tells whether the world
ended it, as a pole that falls does, or somebody stopped looking. Every episode gives one `Episode` or one `Bad`, whose
line is the episode's number in its file.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from hashlib import blake2b
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from regard.data.arrays import read_arrays
from regard.data.lines import UTF8, Bad, Dialect, Lines, Note
from regard.data.tables import quoted
from regard.data.text import kinds_of, objects
from regard.validate import MAX_FLOAT

Floats = npt.NDArray[np.float32]
Ints = npt.NDArray[np.int64]
Raw = npt.NDArray[Any]

ACTED = ("observations", "actions", "rewards", "ended")
KINDS = 1000  # of actions: a larger number is no choice among a few
SHAPES = {2: "numbers", 3: "frames (height, width)", 4: "frames (height, width, colours)"}


class Episode(NamedTuple):
    observations: Floats  # (L+1, numbers) or (L+1, height, width, perhaps colours); a video of bytes stays one
    actions: Ints | None  # (L,) which of a few; None if nobody acts
    rewards: Floats  # (L,) zeros if nobody acts
    ended: bool  # by the world; False: it was cut off
    file: str
    line: int  # its number in the file

    @property
    def steps(self) -> int:
        return len(self.rewards)

    @property
    def asked(self) -> str:
        return digest(self.observations)

    @property
    def said(self) -> str:
        done = () if self.actions is None else (self.actions, self.rewards)
        return digest(self.observations, *done) + str(self.ended)

    def seen(self, start: int = 0, end: int | None = None) -> Floats:
        """Some of the observations as numbers; a byte of 255 is 1."""
        some = self.observations[start:end]
        return some / np.float32(255) if some.dtype == np.uint8 else some


def digest(*arrays: Raw) -> str:
    found = blake2b(digest_size=16)
    for array in arrays:
        found.update(f"{array.shape}{array.dtype}".encode() + np.ascontiguousarray(array).tobytes())
    return found.hexdigest()


def video(frames: Raw, file: str, line: int) -> Episode:
    return Episode(frames, None, np.zeros(len(frames) - 1, np.float32), False, file, line)


def read_episodes(paths: Sequence[str | Path], dialect: Dialect = UTF8) -> Iterator[Episode | Bad | Note]:
    """All episodes of one file or several. They are alike: observations of one shape, and all with actions or none."""
    first: Episode | None = None
    for path, kind in zip(paths, kinds_of(paths, dialect), strict=True):
        if kind not in (".npz", ".jsonl", ".json"):
            raise ValueError(
                f"{path}: episodes come from .npz or .jsonl files, not from {kind or 'one without ending'!r}"
            )
        for one in from_arrays(Path(path)) if kind == ".npz" else from_lines(Lines(path, dialect.encoding)):
            if isinstance(one, Episode):
                first = first or one
                yield unlike(one, first) or one
            else:
                yield one


def unlike(one: Episode, first: Episode) -> Bad | None:
    where = f"those of {first.file}:{first.line}"
    shape, usual = one.observations.shape[1:], first.observations.shape[1:]
    if shape != usual:
        return Bad(one.file, one.line, "unequal counts", f"observations of shape {shape}, {where} have {usual}")
    if (one.actions is None) != (first.actions is None):
        has, had = ("no actions", "some") if one.actions is None else ("actions", "none")
        return Bad(one.file, one.line, "missing field", f"it has {has}, {where} have {had}")
    return None


def from_lines(lines: Lines) -> Iterator[Episode | Bad | Note]:
    for item in objects(lines):
        if isinstance(item, Bad):
            yield item
            continue
        number, row = item
        needed = ACTED if {*ACTED[1:]} & {*row} else ACTED[:1]
        if lacking := [name for name in needed if name not in row]:
            detail = f"no field {lacking[0]!r}; the line has {quoted(row) or 'nothing'}"
            yield Bad(lines.file, number, "missing field", detail)
            continue
        try:
            arrays = {name: array_of(name, row[name]) for name in needed[:3]}
        except ValueError as error:
            yield Bad(lines.file, number, "unequal counts", str(error))
            continue
        yield checked(arrays, row.get("ended", False), lines.file, number)
    yield from lines.notes()


def array_of(name: str, values: Any) -> Raw:
    try:
        return np.array(values)
    except (ValueError, OverflowError):
        raise ValueError(f"the {name} are not all of one shape") from None


def from_arrays(file: Path) -> Iterator[Episode | Bad]:
    arrays = read_arrays(file)
    if "videos" in arrays:
        videos = arrays["videos"]
        if videos.ndim not in (4, 5):
            raise ValueError(
                f"{file}: videos must be (number, frames, height, width, perhaps colours), not {videos.shape}"
            )
        for number, frames in enumerate(videos, 1):
            yield checked({"observations": frames}, False, str(file), number)
        return
    needed = ("observations", "steps", *(ACTED[1:] if {*ACTED[1:]} & {*arrays} else ()))
    if lacking := [name for name in needed if name not in arrays]:
        has = ", ".join(f"{name} {array.shape}" for name, array in arrays.items()) or "no arrays"
        raise ValueError(f"{file}: no array {lacking[0]!r}, or videos alone; the file has {has}")
    steps = arrays["steps"]
    if steps.ndim != 1 or steps.dtype.kind not in "iu" or (steps < 0).any():
        raise ValueError(f"{file}: steps must be whole numbers, one for each episode, not {steps.dtype} {steps.shape}")
    total, count = int(steps.sum()), len(steps)
    for name, wanted in zip(ACTED, (total + count, total, total, count), strict=True):
        found = arrays[name].shape if name in arrays else (wanted,)
        if (found if name == "ended" else found[:1]) != (wanted,):
            raise ValueError(f"{file}: {count} episodes with {total} steps need {wanted} {name}, but there are {found}")
    ended = arrays.get("ended", np.zeros(count, bool))
    begins = np.concatenate(([0], steps.cumsum()))
    for number, (a, b) in enumerate(zip(begins.tolist(), begins[1:].tolist(), strict=False), 1):
        part = {"observations": arrays["observations"][a + number - 1 : b + number]}
        part |= {name: arrays[name][a:b] for name in ("actions", "rewards") if name in arrays}
        yield checked(part, ended[number - 1].item(), str(file), number)


def checked(arrays: dict[str, Raw], ended: Any, file: str, number: int) -> Episode | Bad:
    """The episode, or the first thing that is wrong with it."""
    seen = arrays["observations"]
    seen = seen[:, None] if seen.ndim == 1 else seen
    for name, array in arrays.items():
        if array.dtype.kind not in "iuf":
            return Bad(file, number, "wrong type", f"the {name} are not numbers")
        if not (np.abs(array) < MAX_FLOAT).all():  # nor is NaN
            return Bad(file, number, "not a number", f"the {name} hold NaN, or a number beyond ±{MAX_FLOAT:g}")
    if seen.ndim not in SHAPES or 0 in seen.shape[1:]:
        detail = f"an observation is {' or '.join(SHAPES.values())}, not of shape {seen.shape[1:]}"
        return Bad(file, number, "wrong type", detail)
    if len(seen) < 2:
        return Bad(file, number, "empty", f"{len(seen)} observations: an episode without a step")
    if not isinstance(ended, bool):
        return Bad(file, number, "wrong type", f"ended must be true or false, not {ended!r:.80}")
    numbers = seen if seen.dtype == np.uint8 and seen.ndim > 2 else seen.astype(np.float32)
    if "actions" not in arrays:
        return video(numbers, file, number)
    actions, rewards = arrays["actions"], arrays["rewards"]
    for name, array in (("actions", actions), ("rewards", rewards)):
        if array.shape != (len(seen) - 1,):
            detail = f"{len(seen)} observations need {len(seen) - 1} {name}, but there are {array.shape}"
            return Bad(file, number, "unequal counts", detail)
    if odd := [one for one in actions.tolist() if one != int(one) or not 0 <= one < KINDS]:
        detail = f"an action is a whole number from 0 on and below {KINDS}, not {odd[0]}"
        return Bad(file, number, "wrong type", detail)
    return Episode(numbers, actions.astype(np.int64), rewards.astype(np.float32), ended, file, number)


def write_episodes(file: str | Path, episodes: Iterable[Episode]) -> None:
    """As .npz or .jsonl, by the ending of the name; `read_episodes` reads it back."""
    rows, kind = list(episodes), Path(file).suffix.lower()
    if not rows:
        raise ValueError(f"{file}: there are no episodes to write")
    if kind == ".npz":
        arrays = {"observations": np.concatenate([one.observations for one in rows])}
        arrays["steps"] = np.array([one.steps for one in rows])
        if rows[0].actions is not None:
            arrays["actions"] = np.concatenate([one.actions for one in rows if one.actions is not None])
            arrays["rewards"] = np.concatenate([one.rewards for one in rows])
            arrays["ended"] = np.array([one.ended for one in rows])
        np.savez_compressed(file, **arrays)  # type: ignore[arg-type]
    elif kind == ".jsonl":
        with open(file, "w", encoding="utf-8") as out:
            out.writelines(json.dumps(as_object(one)) + "\n" for one in rows)
    else:
        raise ValueError(f"{file}: episodes are written as .npz or .jsonl, not as {kind or 'one without ending'!r}")


def as_object(one: Episode) -> dict[str, Any]:
    seen = {"observations": one.seen().tolist()}
    if one.actions is None:
        return seen
    return {**seen, "actions": one.actions.tolist(), "rewards": one.rewards.tolist(), "ended": one.ended}
