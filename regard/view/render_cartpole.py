"""CartPole as text and as an animation: x is the cart's distance from the centre, the angle that of the pole."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

from PIL import Image, ImageDraw

from regard.data.episodes import Floats

TRACK_END = 2.4  # x where the track ends
ROWS, COLUMNS = 6, 61  # of the text; a character is twice as high as wide
WIDTH, HEIGHT, GROUND, POLE = 480, 160, 130, 95  # of the image, in pixels
MAX_FRAMES = 250  # of an animation


def as_text(state: Floats) -> list[str]:
    """Lines of text: the pole, and under it the cart on its track."""
    x, angle = float(state[0]), float(state[2])
    pole = [[" "] * COLUMNS for _ in range(ROWS)]
    middle = (x / TRACK_END + 1) / 2 * (COLUMNS - 1)
    for row in range(ROWS):
        column = round(middle + 2 * (row + 0.5) * math.tan(max(-1.2, min(1.2, angle))))
        if 0 <= column < COLUMNS:
            pole[ROWS - 1 - row][column] = "|" if abs(angle) < 0.05 else "/" if angle > 0 else "\\"
    cart = [" "] * COLUMNS
    for column in range(round(middle) - 2, round(middle) + 3):
        if 0 <= column < COLUMNS:
            cart[column] = "#"
    return ["".join(line) for line in (*pole, cart)] + ["=" * COLUMNS]


def as_image(state: Floats) -> Image.Image:
    x, angle = float(state[0]), float(state[2])
    image = Image.new("L", (WIDTH, HEIGHT), 255)
    draw = ImageDraw.Draw(image)
    middle = WIDTH / 2 + x / TRACK_END * (WIDTH / 2 - 10)
    draw.line((10, GROUND, WIDTH - 10, GROUND), fill=160, width=2)
    draw.rectangle((middle - 24, GROUND - 18, middle + 24, GROUND + 6), fill=60)
    top = middle + POLE * math.sin(angle), GROUND - 12 - POLE * math.cos(angle)
    draw.line((middle, GROUND - 12, *top), fill=120, width=7)
    return image


def animate(states: Sequence[Floats], file: str | Path) -> None:
    """Write an animated GIF of an episode; a long one is subsampled to MAX_FRAMES."""
    stride = max(1, math.ceil(len(states) / MAX_FRAMES))
    first, *rest = [as_image(state) for state in states[::stride]]
    first.save(file, save_all=True, append_images=rest, duration=20 * stride, loop=0)
