"""Shapes: small pictures of coloured shapes, each with a caption that says all there is to see, drawn on demand.

    "a small red circle above a large blue square"  ->  32 x 32 pixels, label "square"

A scene has one main thing, perhaps with one or two small ones beside it. The caption tells size, colour, shape and
place of everything; the exact spot, size, tilt and shade are left to chance, and so is the background. No two captions
fit one scene and no two scenes share a caption, so that each can be found by the other.
"""

import math
import random
from collections.abc import Iterator
from hashlib import blake2b
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw

SIDE = 32  # pixels
FINER = 4  # drawn so many times larger, then shrunk, which smooths the edges
COLOURS = {
    "red": (215, 35, 35),
    "orange": (245, 135, 20),
    "yellow": (245, 220, 45),
    "green": (40, 160, 60),
    "turquoise": (40, 205, 200),
    "blue": (45, 75, 215),
    "purple": (125, 45, 170),
    "pink": (250, 120, 180),
}
SHAPES = ("circle", "ring", "square", "diamond", "triangle", "cross", "star", "heart")
SIZES = {"small": (3.6, 4.4), "large": (7.0, 8.2)}  # least and greatest radius
PLACES = {
    "in the middle": (0, 0),
    "at the top left": (-1, -1),
    "at the top right": (1, -1),
    "at the bottom left": (-1, 1),
    "at the bottom right": (1, 1),
}
SIDES = {"left of": (-1, 0), "right of": (1, 0), "above": (0, -1), "below": (0, 1)}
CORNERS = [(x, y) for x in ("left of", "right of") for y in ("above", "below")]
ASIDE = {"left of": "on its left", "right of": "on its right"}
BACKGROUNDS = (  # pale, grey or dark, so that every colour stands out
    *((235, 235, 230), (205, 215, 225), (225, 210, 190), (150, 155, 150)),
    *((75, 80, 85), (35, 35, 45), (55, 45, 40)),
)
PATIENCE = 20_000  # draws without a new caption, after which all count as found

Pixels = NDArray[np.uint8]
Point = tuple[float, float]


class Thing(NamedTuple):
    size: str
    colour: str
    shape: str
    x: float  # of its middle, in pixels from the left
    y: float  # from the top
    radius: float

    def __str__(self) -> str:
        return f"a {self.size} {self.colour} {self.shape}"


class Scene(NamedTuple):
    pixels: Pixels  # (32, 32, 3): row, column, red-green-blue
    caption: str
    label: str  # the shape of the main thing, which is the largest
    things: tuple[Thing, ...]  # the main one first


def shapes(count: int = 6_000, seed: int = 0) -> list[Scene]:
    """`count` scenes, no two with the same caption, the same for the same seed."""
    rng = random.Random(seed)
    noise = np.random.RandomState(rng.getrandbits(32))
    found: dict[str, Scene] = {}
    idle = 0
    while len(found) < count and idle < PATIENCE:
        caption, things = draw(rng)
        idle += 1
        if caption not in found:
            found[caption] = Scene(painted(things, rng, noise), caption, things[0].shape, things)
            idle = 0
    if len(found) < count:
        raise ValueError(f"{count:,} different scenes were asked for, but only {len(found):,} were found")
    return list(found.values())


def split(scene: Scene) -> str:
    """'train', 'valid' or 'test', decided by the caption alone: what is tested is a new combination of known words."""
    share = int.from_bytes(blake2b(scene.caption.encode(), digest_size=4).digest(), "big") % 100
    return "valid" if share < 6 else "test" if share < 12 else "train"


def draw(rng: random.Random) -> tuple[str, tuple[Thing, ...]]:
    """A caption and the things it tells of."""
    kind = rng.random()
    if kind < 0.1:
        place = rng.choice(list(PLACES))
        right, down = PLACES[place]
        size = rng.choice(list(SIZES))
        away = 9 if size == "small" else 6
        alone = thing(rng, size, SIDE / 2 + away * right, SIDE / 2 + away * down)
        return f"{alone} {place}", (alone,)
    sides = (rng.choice(list(SIDES)),) if kind < 0.6 else rng.choice(CORNERS)
    right, down = (sum(axis) for axis in zip(*(SIDES[side] for side in sides), strict=True))
    main = thing(rng, "large", SIDE / 2 - 5.5 * right, SIDE / 2 - 5.5 * down)
    others = tuple(beside(rng, main, side) for side in sides)
    if len(others) == 1:
        return f"{others[0]} {sides[0]} {main}", (main, *others)
    told = [f"{other} {ASIDE.get(side, side)}" for other, side in zip(others, sides, strict=True)]
    return f"{main} with {told[0]} and {told[1]}", (main, *others)


def thing(rng: random.Random, size: str, x: float, y: float) -> Thing:
    x, y = x + rng.uniform(-1, 1), y + rng.uniform(-1, 1)
    return Thing(size, rng.choice(list(COLOURS)), rng.choice(SHAPES), x, y, rng.uniform(*SIZES[size]))


def beside(rng: random.Random, main: Thing, side: str) -> Thing:
    """A small thing that touches neither the main one nor the edge."""
    right, down = SIDES[side]
    radius = SIZES["small"][1]
    away, slide = main.radius + radius + rng.uniform(2.5, 3.5), rng.uniform(-4, 4)
    small = thing(rng, "small", main.x + away * right + slide * abs(down), main.y + away * down + slide * abs(right))
    inside = [min(max(at, radius + 1), SIDE - radius - 1) for at in (small.x, small.y)]
    return small._replace(x=inside[0], y=inside[1])


def painted(things: tuple[Thing, ...], rng: random.Random, noise: np.random.RandomState) -> Pixels:
    """(32, 32, 3)"""
    slope = rng.uniform(-25, 25) * np.linspace(-0.5, 0.5, SIDE)
    light = slope[:, None] if rng.random() < 0.5 else slope[None, :]  # (32, 1) or (1, 32)
    field = np.array(rng.choice(BACKGROUNDS)) + rng.uniform(-12, 12) + light[..., None] + np.zeros((SIDE, SIDE, 1))
    for one in things:
        shade = [part + rng.uniform(-14, 14) for part in COLOURS[one.colour]]
        cover = covered(one, tilt=rng.uniform(-0.15, 0.15))[..., None]  # (32, 32, 1)
        field = field + cover * (shade - field)
    return (field + noise.normal(0, 3, field.shape)).round().clip(0, 255).astype(np.uint8)


def covered(one: Thing, tilt: float) -> NDArray[np.float64]:
    """How much of each pixel a thing covers, from 0 to 1, (32, 32)."""
    canvas = Image.new("L", (SIDE * FINER, SIDE * FINER))
    brush = ImageDraw.Draw(canvas)
    x, y, radius = (FINER * part for part in (one.x, one.y, one.radius))
    if one.shape in ROUND:
        for part, fill in zip(ROUND[one.shape], (255, 0), strict=False):
            brush.ellipse((x - part * radius, y - part * radius, x + part * radius, y + part * radius), fill)
    else:
        cos, sin = radius * math.cos(tilt), radius * math.sin(tilt)
        brush.polygon([(x + cos * a - sin * b, y + sin * a + cos * b) for a, b in OUTLINES[one.shape]], 255)
    return np.asarray(canvas.reduce(FINER)) / 255


def corners(count: int, start: float, *radii: float) -> list[Point]:
    """Points on a circle, evenly spread; `radii` take turns."""
    angles = [math.tau * (start + i / count) for i in range(count)]
    return [(radii[i % len(radii)] * math.cos(a), radii[i % len(radii)] * math.sin(a)) for i, a in enumerate(angles)]


def heart() -> Iterator[Point]:
    for i in range(40):
        a = math.tau * i / 40
        across = 16 * math.sin(a) ** 3
        up = 13 * math.cos(a) - 5 * math.cos(2 * a) - 2 * math.cos(3 * a) - math.cos(4 * a)
        yield across / 17, -(up + 2.5) / 17


ROUND = {"circle": (0.9,), "ring": (0.95, 0.55)}  # radius, and that of the hole
OUTLINES = {  # within a circle of radius 1.2
    "square": corners(4, 1 / 8, 1.15),
    "diamond": corners(4, 0, 1.0),
    "triangle": [(0, -1), (0.92, 0.75), (-0.92, 0.75)],
    "star": corners(10, -1 / 4, 1.1, 0.45),
    "cross": [
        *((-0.3, -1), (0.3, -1), (0.3, -0.3), (1, -0.3), (1, 0.3), (0.3, 0.3)),
        *((0.3, 1), (-0.3, 1), (-0.3, 0.3), (-1, 0.3), (-1, -0.3), (-0.3, -0.3)),
    ],
    "heart": list(heart()),
}
