"""The cart with its pole, as text and as a picture: x from the middle of the track, the angle from upright."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

from PIL import Image, ImageDraw

from regard.data.episodes import Floats

EDGE = 2.4  # where the track ends
ROWS, COLUMNS = 6, 61  # of the drawing in text; a letter is twice as high as wide
WIDE, HIGH, GROUND, POLE = 480, 160, 130, 95  # of the picture, in pixels
FRAMES = 250  # most of them in an animation


def as_text(whole: Floats) -> list[str]:
    """Lines of a drawing: the pole, and under it the cart on its track."""
    x, angle = float(whole[0]), float(whole[2])
    page = [[" "] * COLUMNS for _ in range(ROWS)]
    middle = (x / EDGE + 1) / 2 * (COLUMNS - 1)
    for up in range(ROWS):
        at = round(middle + 2 * (up + 0.5) * math.tan(max(-1.2, min(1.2, angle))))
        if 0 <= at < COLUMNS:
            page[ROWS - 1 - up][at] = "|" if abs(angle) < 0.05 else "/" if angle > 0 else "\\"
    cart = [" "] * COLUMNS
    for at in range(round(middle) - 2, round(middle) + 3):
        if 0 <= at < COLUMNS:
            cart[at] = "#"
    return ["".join(row) for row in (*page, cart)] + ["=" * COLUMNS]


def picture(whole: Floats) -> Image.Image:
    x, angle = float(whole[0]), float(whole[2])
    drawn = Image.new("L", (WIDE, HIGH), 255)
    pen = ImageDraw.Draw(drawn)
    middle = WIDE / 2 + x / EDGE * (WIDE / 2 - 10)
    pen.line((10, GROUND, WIDE - 10, GROUND), fill=160, width=2)
    pen.rectangle((middle - 24, GROUND - 18, middle + 24, GROUND + 6), fill=60)
    top = middle + POLE * math.sin(angle), GROUND - 12 - POLE * math.cos(angle)
    pen.line((middle, GROUND - 12, *top), fill=120, width=7)
    return drawn


def animate(states: Sequence[Floats], file: str | Path) -> None:
    """An animated GIF of an episode; of a long one every second, third ... step."""
    every = max(1, math.ceil(len(states) / FRAMES))
    first, *rest = [picture(state) for state in states[::every]]
    first.save(file, save_all=True, append_images=rest, duration=20 * every, loop=0)
