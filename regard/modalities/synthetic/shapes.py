"""Generates small images of coloured shapes with captions that describe them completely.

    "a small red circle above a large blue square"  ->  32 x 32 pixels, label "square"

A scene has one main object, and up to two small ones beside it. The caption gives size, colour, shape and place of each
object; exact position, size, tilt and shade are random, as is the background. Captions and scenes correspond one to
one, so that each can be retrieved by the other.
"""

import math
import random
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw

from regard.modalities.synthetic.distinct import MAX_REPEATS, split_by_hash

SIDE = 32  # pixels
SUPERSAMPLING = 4  # drawn so many times larger, then downscaled, to smooth the edges
COLOURS = {
    **{"red": (215, 35, 35), "orange": (245, 135, 20), "yellow": (245, 220, 45), "green": (40, 160, 60)},
    **{"turquoise": (40, 205, 200), "blue": (45, 75, 215), "purple": (125, 45, 170), "pink": (250, 120, 180)},
}
SHAPES = ("circle", "ring", "square", "diamond", "triangle", "cross", "star", "heart")
SIZES = {"small": (3.6, 4.4), "large": (7.0, 8.2)}  # minimal and maximal radius
PLACES = {
    "in the middle": (0, 0),
    "at the top left": (-1, -1),
    "at the top right": (1, -1),
    "at the bottom left": (-1, 1),
    "at the bottom right": (1, 1),
}
SIDES = {"left of": (-1, 0), "right of": (1, 0), "above": (0, -1), "below": (0, 1)}
CORNERS = [(x, y) for x in ("left of", "right of") for y in ("above", "below")]
SIDE_PHRASES = {"left of": "on its left", "right of": "on its right"}
BACKGROUNDS = (  # pale, grey or dark, so that every colour contrasts
    *((235, 235, 230), (205, 215, 225), (225, 210, 190), (150, 155, 150)),
    *((75, 80, 85), (35, 35, 45), (55, 45, 40)),
)

Pixels = NDArray[np.uint8]
Point = tuple[float, float]


class SceneObject(NamedTuple):
    size: str
    colour: str
    shape: str
    x: float  # of the centre, in pixels from the left
    y: float  # from the top
    radius: float

    def __str__(self) -> str:
        return f"a {self.size} {self.colour} {self.shape}"


class Scene(NamedTuple):
    pixels: Pixels  # (32, 32, 3), RGB
    caption: str
    label: str  # the shape of the main object
    objects: tuple[SceneObject, ...]  # the main object first


def shapes(count: int = 6_000, seed: int = 0) -> list[Scene]:
    """`count` scenes with distinct captions; the same seed gives the same scenes."""
    rng = random.Random(seed)
    noise = np.random.RandomState(rng.getrandbits(32))
    distinct: dict[str, Scene] = {}
    repeats = 0
    while len(distinct) < count and repeats < MAX_REPEATS:
        caption, objects = draw_scene(rng)
        repeats += 1
        if caption not in distinct:
            distinct[caption] = Scene(render(objects, rng, noise), caption, objects[0].shape, objects)
            repeats = 0
    if len(distinct) < count:
        raise ValueError(f"{count:,} different scenes were requested, but only {len(distinct):,} exist")
    return list(distinct.values())


def split(scene: Scene) -> str:
    """'train', 'valid' or 'test', by a hash of the caption: test captions are new combinations of training words."""
    return split_by_hash(scene.caption, 6)


def draw_scene(rng: random.Random) -> tuple[str, tuple[SceneObject, ...]]:
    """A caption and its objects."""
    kind = rng.random()
    if kind < 0.1:
        place = rng.choice(list(PLACES))
        right, down = PLACES[place]
        size = rng.choice(list(SIZES))
        distance = 9 if size == "small" else 6
        item = draw_object(rng, size, SIDE / 2 + distance * right, SIDE / 2 + distance * down)
        return f"{item} {place}", (item,)
    sides = (rng.choice(list(SIDES)),) if kind < 0.6 else rng.choice(CORNERS)
    right, down = (sum(axis) for axis in zip(*(SIDES[side] for side in sides), strict=True))
    main = draw_object(rng, "large", SIDE / 2 - 5.5 * right, SIDE / 2 - 5.5 * down)
    neighbours = tuple(draw_neighbour(rng, main, side) for side in sides)
    if len(neighbours) == 1:
        return f"{neighbours[0]} {sides[0]} {main}", (main, *neighbours)
    phrases = [f"{neighbour} {SIDE_PHRASES.get(side, side)}" for neighbour, side in zip(neighbours, sides, strict=True)]
    return f"{main} with {phrases[0]} and {phrases[1]}", (main, *neighbours)


def draw_object(rng: random.Random, size: str, x: float, y: float) -> SceneObject:
    x, y = x + rng.uniform(-1, 1), y + rng.uniform(-1, 1)
    return SceneObject(size, rng.choice(list(COLOURS)), rng.choice(SHAPES), x, y, rng.uniform(*SIZES[size]))


def draw_neighbour(rng: random.Random, main: SceneObject, side: str) -> SceneObject:
    """A small object that touches neither the main one nor the edge."""
    right, down = SIDES[side]
    radius = SIZES["small"][1]
    distance, offset = main.radius + radius + rng.uniform(2.5, 3.5), rng.uniform(-4, 4)
    x, y = main.x + distance * right + offset * abs(down), main.y + distance * down + offset * abs(right)
    small = draw_object(rng, "small", x, y)
    position = [min(max(coordinate, radius + 1), SIDE - radius - 1) for coordinate in (small.x, small.y)]
    return small._replace(x=position[0], y=position[1])


def render(objects: tuple[SceneObject, ...], rng: random.Random, noise: np.random.RandomState) -> Pixels:
    """(32, 32, 3)"""
    slope = rng.uniform(-25, 25) * np.linspace(-0.5, 0.5, SIDE)
    light = slope[:, None] if rng.random() < 0.5 else slope[None, :]  # (32, 1) or (1, 32)
    image = np.array(rng.choice(BACKGROUNDS)) + rng.uniform(-12, 12) + light[..., None] + np.zeros((SIDE, SIDE, 1))
    for item in objects:
        shade = [value + rng.uniform(-14, 14) for value in COLOURS[item.colour]]
        cover = coverage(item, tilt=rng.uniform(-0.15, 0.15))[..., None]  # (32, 32, 1)
        image = image + cover * (shade - image)
    return (image + noise.normal(0, 3, image.shape)).round().clip(0, 255).astype(np.uint8)


def coverage(item: SceneObject, tilt: float) -> NDArray[np.float64]:
    """The share of each pixel that an object covers, (32, 32)."""
    canvas = Image.new("L", (SIDE * SUPERSAMPLING, SIDE * SUPERSAMPLING))
    brush = ImageDraw.Draw(canvas)
    x, y, radius = (SUPERSAMPLING * value for value in (item.x, item.y, item.radius))
    if item.shape in ROUND:
        for scale, fill in zip(ROUND[item.shape], (255, 0), strict=False):
            brush.ellipse((x - scale * radius, y - scale * radius, x + scale * radius, y + scale * radius), fill)
    else:
        cos, sin = radius * math.cos(tilt), radius * math.sin(tilt)
        brush.polygon([(x + cos * a - sin * b, y + sin * a + cos * b) for a, b in OUTLINES[item.shape]], 255)
    return np.asarray(canvas.reduce(SUPERSAMPLING)) / 255


def polygon(count: int, start: float, *radii: float) -> list[Point]:
    """Evenly spaced points around the origin, with alternating radii."""
    angles = [math.tau * (start + i / count) for i in range(count)]
    return [(radii[i % len(radii)] * math.cos(a), radii[i % len(radii)] * math.sin(a)) for i, a in enumerate(angles)]


def heart() -> Iterator[Point]:
    for i in range(40):
        a = math.tau * i / 40
        x = 16 * math.sin(a) ** 3
        y = 13 * math.cos(a) - 5 * math.cos(2 * a) - 2 * math.cos(3 * a) - math.cos(4 * a)
        yield x / 17, -(y + 2.5) / 17


ROUND = {"circle": (0.9,), "ring": (0.95, 0.55)}  # outer and inner radius
OUTLINES = {  # within a circle of radius 1.2
    "square": polygon(4, 1 / 8, 1.15),
    "diamond": polygon(4, 0, 1.0),
    "triangle": [(0, -1), (0.92, 0.75), (-0.92, 0.75)],
    "star": polygon(10, -1 / 4, 1.1, 0.45),
    "cross": [
        *((-0.3, -1), (0.3, -1), (0.3, -0.3), (1, -0.3), (1, 0.3), (0.3, 0.3)),
        *((0.3, 1), (-0.3, 1), (-0.3, 0.3), (-1, 0.3), (-1, -0.3), (-0.3, -0.3)),
    ],
    "heart": list(heart()),
}
