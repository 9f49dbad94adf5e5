"""Writes rollouts of a world model beside the true observations: an animated .gif, a .png strip of frames, or the
numbers as .npz and .jsonl, which `read_episodes` reads."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
from PIL import Image, ImageDraw, ImageFont

from regard.data.episodes import Episode, Rollout, observed
from regard.modalities.trajectory.episode_files import write_episodes
from regard.validate import check_choice

Pixels = npt.NDArray[np.uint8]
Cell = tuple[Pixels, tuple[int, int, int]]  # a frame and the colour of its border

SUFFIXES = (".gif", ".png", ".npz", ".jsonl")
FRAME_SIZE = 150  # pixels of the longer edge of a frame, about
MAX_ROLLOUTS = 3  # in one image
COLUMNS = 10  # frames of a strip
FRAME_MS = 120  # duration of a frame in milliseconds
GAP, HEADER, MARGIN = 6, 18, 56  # pixels between frames, above them, and left of a strip
WHITE, GREY, TRUE_COLOUR, PREDICTED_COLOUR = (255, 255, 255), (60, 60, 60), (190, 190, 190), (220, 110, 30)


def save_rollouts(file: str, rollouts: Sequence[Rollout], low: float, high: float) -> None:
    """In the format of the file's suffix. Frames are painted from `low`, black, to `high`, white."""
    kind = Path(file).suffix.lower()
    check_choice("rollout format", kind, SUFFIXES)
    if kind in (".npz", ".jsonl"):
        return write_episodes(file, [prediction_as_episode(rollout) for rollout in rollouts])
    if rollouts[0].prediction.ndim < 3:
        raise ValueError(f"{file}: only frames can be drawn; save vectors as .npz or .jsonl")
    rollouts = rollouts[:MAX_ROLLOUTS]
    if kind == ".png":
        return draw_strip(rollouts, low, high).save(file)
    images = draw_animation(rollouts, low, high)
    return images[0].save(file, save_all=True, append_images=images[1:], duration=FRAME_MS, loop=0)


def prediction_as_episode(rollout: Rollout) -> Episode:
    """The last observation that the model was given, and all predictions after it."""
    episode, start = rollout.episode, rollout.num_observed - 1
    observations = np.concatenate((episode.as_float(start, start + 1), rollout.prediction))
    if episode.actions is None:
        return observed(observations)
    steps = slice(start, start + len(rollout.prediction))
    return episode._replace(observations=observations, actions=episode.actions[steps], rewards=episode.rewards[steps])


def draw_animation(rollouts: Sequence[Rollout], low: float, high: float) -> list[Image.Image]:
    """The truth on the left, the prediction on the right; both start with the last frames that the model was given."""
    before, horizon = min(5, *(x.num_observed for x in rollouts)), max(len(x.prediction) for x in rollouts)
    return [draw_step(rollouts, step, low, high) for step in range(-before, horizon)]


def draw_step(rollouts: Sequence[Rollout], step: int, low: float, high: float) -> Image.Image:
    colour = PREDICTED_COLOUR if step >= 0 else TRUE_COLOUR
    cells = [
        [(frame_pixels(x, step, False, low, high), TRUE_COLOUR), (frame_pixels(x, step, True, low, high), colour)]
        for x in rollouts
    ]
    return draw_table(["truth", f"{step + 1} ahead" if step >= 0 else "given"], [""] * len(rollouts), cells, FRAME_SIZE)


def draw_strip(rollouts: Sequence[Rollout], low: float, high: float) -> Image.Image:
    """Time runs to the right; the truth is above, the prediction below."""
    horizon = min(len(rollout.prediction) for rollout in rollouts)
    steps = [-1, *np.unique(np.linspace(0, horizon - 1, min(COLUMNS, horizon)).round().astype(int)).tolist()]
    headers = ["given" if step < 0 else f"{step + 1} ahead" for step in steps]
    cells: list[list[Cell]] = []
    for x in rollouts:
        cells.append([(frame_pixels(x, step, False, low, high), TRUE_COLOUR) for step in steps])
        colours = [PREDICTED_COLOUR if step >= 0 else TRUE_COLOUR for step in steps]
        cells.append([(frame_pixels(x, s, True, low, high), c) for s, c in zip(steps, colours, strict=True)])
    return draw_table(headers, ["truth", "predicted"] * len(rollouts), cells, FRAME_SIZE // 2)


def frame_pixels(rollout: Rollout, step: int, predicted: bool, low: float, high: float) -> Pixels:
    """A frame as RGB; uniformly grey if it is unknown."""
    if step < 0:
        frame = rollout.episode.as_float(rollout.num_observed + step, rollout.num_observed + step + 1)[0]
    else:
        frames, unknown = rollout.prediction if predicted else rollout.target, (low + high) / 2
        frame = frames[step] if step < len(frames) else np.full(rollout.prediction.shape[1:], unknown, np.float32)
    pixels = (255 * (frame - low) / max(high - low, 1e-8)).round().clip(0, 255).astype(np.uint8)
    return pixels if pixels.shape[2:] == (3,) else np.repeat(pixels.reshape(*pixels.shape[:2], 1), 3, 2)


def draw_table(
    headers: Sequence[str], row_labels: Sequence[str], cells: Sequence[Sequence[Cell]], frame_size: int
) -> Image.Image:
    """Frames in a table, each with a border in its colour."""
    height, width = cells[0][0][0].shape[:2]
    factor = max(1, frame_size // max(height, width))
    height, width = height * factor, width * factor
    left = MARGIN if any(row_labels) else GAP
    canvas = Image.new("RGB", (left + len(headers) * (width + GAP), HEADER + len(cells) * (height + GAP)), WHITE)
    draw, font = ImageDraw.Draw(canvas), ImageFont.load_default()
    for column, text in enumerate(headers):
        draw.text((left + column * (width + GAP), 3), text, GREY, font)
    for number, (label, cell_row) in enumerate(zip(row_labels, cells, strict=True)):
        y = HEADER + number * (height + GAP)
        draw.text((3, y + height // 2 - 6), label, GREY, font)
        for column, (pixels, colour) in enumerate(cell_row):
            x = left + column * (width + GAP)
            draw.rectangle((x - 2, y - 2, x + width + 1, y + height + 1), colour)
            canvas.paste(Image.fromarray(pixels).resize((width, height), Image.Resampling.NEAREST), (x, y))
    return canvas
