"""Films: what was foreseen, beside what came. A .gif moves, a .png is a strip of some frames; .npz and .jsonl hold the
numbers, as `read_episodes` reads them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from PIL import Image, ImageDraw, ImageFont

from regard.data.episodes import Episode, Floats, video, write_episodes
from regard.validate import check_choice

Pixels = npt.NDArray[np.uint8]
Cell = tuple[Pixels, tuple[int, int, int]]  # a frame, and the colour of the line around it

KINDS = (".gif", ".png", ".npz", ".jsonl")
LARGE = 150  # pixels of the longer edge of a frame, about
TOGETHER = 3  # films in one picture
COLUMNS = 10  # frames of a strip
PAUSE = 120  # milliseconds of a frame
GAP, HEAD, SIDE = 6, 18, 56  # pixels between frames, above them, and left of a strip
PAPER, INK, GIVEN, TOLD = (255, 255, 255), (60, 60, 60), (190, 190, 190), (220, 110, 30)


class Rollout(NamedTuple):
    row: Episode
    known: int  # observations that were given
    told: Floats  # (horizon, ...) what was foreseen; less where somebody acts and the episode is over before
    true: Floats  # what came; as many as are known


def save_told(file: str, found: Sequence[Rollout], low: float, high: float) -> None:
    """Under a name that tells how. Frames are painted from `low`, black, to `high`, white."""
    kind = Path(file).suffix.lower()
    check_choice("kind of film", kind, KINDS)
    if kind in (".npz", ".jsonl"):
        return write_episodes(file, [told_as_episode(one) for one in found])
    if found[0].told.ndim < 3:
        raise ValueError(f"{file}: only frames can be seen; numbers are kept in a .npz or .jsonl file")
    some = found[:TOGETHER]
    if kind == ".png":
        return strip(some, low, high).save(file)
    frames = film(some, low, high)
    return frames[0].save(file, save_all=True, append_images=frames[1:], duration=PAUSE, loop=0)


def told_as_episode(one: Rollout) -> Episode:
    """The last that was seen, and all that was foreseen after it."""
    seen = np.concatenate((one.row.seen(one.known - 1, one.known), one.told))
    if one.row.actions is None:
        return video(seen, one.row.file, one.row.line)
    done = slice(one.known - 1, one.known - 1 + len(one.told))
    return one.row._replace(observations=seen, actions=one.row.actions[done], rewards=one.row.rewards[done])


def film(found: Sequence[Rollout], low: float, high: float) -> list[Image.Image]:
    """Truth on the left, what is told on the right: the two are one until the model is on its own."""
    before, after = min(5, *(one.known for one in found)) if found else 0, max(len(one.told) for one in found)
    return [still(found, step, low, high) for step in range(-before, after)]


def still(found: Sequence[Rollout], step: int, low: float, high: float) -> Image.Image:
    colour = TOLD if step >= 0 else GIVEN
    cells = [
        [(shown(one, step, False, low, high), GIVEN), (shown(one, step, True, low, high), colour)] for one in found
    ]
    return sheet(["truth", f"{step + 1} ahead" if step >= 0 else "given"], [""] * len(found), cells, LARGE)


def strip(found: Sequence[Rollout], low: float, high: float) -> Image.Image:
    """Time goes to the right: above what came, below what was told."""
    after = min(len(one.told) for one in found)
    steps = [-1, *np.unique(np.linspace(0, after - 1, min(COLUMNS, after)).round().astype(int)).tolist()]
    heads = ["given" if step < 0 else f"{step + 1} ahead" for step in steps]
    cells = [
        [(shown(one, step, told, low, high), TOLD if told and step >= 0 else GIVEN) for step in steps]
        for one in found
        for told in (False, True)
    ]
    return sheet(heads, ["truth", "foreseen"] * len(found), cells, LARGE // 2)


def shown(one: Rollout, step: int, told: bool, low: float, high: float) -> Pixels:
    """A frame in colours; grey where nobody knows it."""
    if step < 0:
        frame = one.row.seen(one.known + step, one.known + step + 1)[0]
    else:
        kept = one.told if told else one.true
        frame = kept[step] if step < len(kept) else np.full(one.told.shape[1:], (low + high) / 2, np.float32)
    grey = (255 * (frame - low) / max(high - low, 1e-8)).round().clip(0, 255).astype(np.uint8)
    return grey if grey.ndim == 3 and grey.shape[2] == 3 else np.repeat(grey.reshape(*grey.shape[:2], 1), 3, 2)


def sheet(heads: Sequence[str], sides: Sequence[str], cells: Sequence[Sequence[Cell]], large: int) -> Image.Image:
    """Frames in a table, each with a line of its colour around it."""
    high, wide = cells[0][0][0].shape[:2]
    times = max(1, large // max(high, wide))
    high, wide = high * times, wide * times
    left = SIDE if any(sides) else GAP
    canvas = Image.new("RGB", (left + len(heads) * (wide + GAP), HEAD + len(cells) * (high + GAP)), PAPER)
    brush, font = ImageDraw.Draw(canvas), ImageFont.load_default()
    for column, text in enumerate(heads):
        brush.text((left + column * (wide + GAP), 3), text, INK, font)
    for number, (side, row) in enumerate(zip(sides, cells, strict=True)):
        y = HEAD + number * (high + GAP)
        brush.text((3, y + high // 2 - 6), side, INK, font)
        for column, (pixels, colour) in enumerate(row):
            x = left + column * (wide + GAP)
            brush.rectangle((x - 2, y - 2, x + wide + 1, y + high + 1), colour)
            canvas.paste(Image.fromarray(pixels).resize((wide, high), Image.Resampling.NEAREST), (x, y))
    return canvas
