"""The ball: videos of three balls that bounce off the walls of a box and off each other (Sutskever & Hinton 2007).

    brightness of a pixel = Σ_balls exp(- (d² / r²)⁴), at most 1          d: from the centre of the ball

A box of 10 x 10, radius 1.2, equal masses, no friction. The velocities of all balls together are a vector of length
0.5 a frame, which is two half steps. With these numbers, to say that the next frame is the last one costs a squared
error of 11.86 a frame (Mittelman et al. 2014), and figures of others can be compared.
"""

from __future__ import annotations

from itertools import combinations, permutations
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

BOX, RADIUS, BALLS, SPEED = 10.0, 1.2, 3, 0.5
SIDE = 30  # pixels
FRAMES = 100
HALVES = 2  # steps of a frame
TOGETHER = 4  # videos painted at once: more do not fit the processor's cache
FINE = 0.5  # pixels between the places where a ball is looked for

Floats = npt.NDArray[np.float32]
Reals = npt.NDArray[np.float64]
Pixels = npt.NDArray[np.uint8]


class Videos(NamedTuple):
    frames: Pixels  # (videos, frames, 30, 30), 255 = 1
    centres: Reals  # (videos, frames, balls, 2), in pixels: row and column


def balls(count: int, frames: int = FRAMES, seed: int = 0, many: int = BALLS, speed: float = SPEED) -> Videos:
    """Videos of so many balls, the same for the same seed."""
    places = bounced(count, frames, np.random.default_rng(seed), many, speed)
    painted = np.empty((count, frames, SIDE, SIDE), np.uint8)
    for i in range(0, count, TOGETHER):
        painted[i : i + TOGETHER] = (paint(places[i : i + TOGETHER]) * 255).round()
    return Videos(painted, in_pixels(places))


def bounced(count: int, frames: int, draw: np.random.Generator, many: int = BALLS, speed: float = SPEED) -> Reals:
    """Where the balls are, (videos, frames, balls, 2)."""
    x = scattered(count, draw, many)
    v = draw.normal(size=(count, many, 2))
    v *= speed / np.sqrt((v**2).sum((1, 2), keepdims=True))
    seen = np.empty((count, frames, many, 2))
    for frame in range(frames):
        seen[:, frame] = x
        for _ in range(HALVES):
            x = x + v / HALVES
            bounce(x, v)
    return seen


def scattered(count: int, draw: np.random.Generator, many: int) -> Reals:
    """Balls in the box that do not touch each other."""
    x = np.empty((0, many, 2))
    while len(x) < count:
        some = draw.uniform(RADIUS, BOX - RADIUS, (2 * count + 8, many, 2))
        apart = np.ones(len(some), bool)
        for i, j in combinations(range(many), 2):
            apart &= np.hypot(*(some[:, i] - some[:, j]).T) > 2 * RADIUS
        x = np.concatenate((x, some[apart]))
    return x[:count]


def bounce(x: Reals, v: Reals) -> None:
    """Walls turn a velocity round; of two balls that meet, each takes what the other has towards it. In place."""
    np.copyto(v, np.abs(v), where=x < RADIUS)
    np.copyto(v, -np.abs(v), where=x > BOX - RADIUS)
    for i, j in combinations(range(x.shape[1]), 2):
        between = x[:, i] - x[:, j]
        far = np.sqrt((between**2).sum(1, keepdims=True))
        towards = between / far
        nearing = ((v[:, i] - v[:, j]) * towards).sum(1, keepdims=True)
        passed = np.where((far < 2 * RADIUS) & (nearing < 0), nearing, 0) * towards
        v[:, i] -= passed
        v[:, j] += passed


def paint(places: Reals) -> Floats:
    """(..., balls, 2) -> (..., 30, 30)"""
    pixels = ((np.arange(SIDE, dtype=np.float32) + 0.5) * (BOX / SIDE)).astype(np.float32)
    apart = (places.astype(np.float32)[..., None] - pixels) ** 2 / np.float32(RADIUS**2)  # (..., balls, 2, 30)
    far = apart[..., 0, :, None] + apart[..., 1, None, :]  # (..., balls, 30, 30)
    far *= far
    far *= far
    np.negative(far, out=far)
    return np.minimum(np.exp(far, out=far).sum(-3), 1)


def in_pixels(places: Reals) -> Reals:
    """A ball whose centre is that of the first pixel is at 0."""
    return places * (SIDE / BOX) - 0.5


def locate_balls(frames: Floats) -> Reals:
    """Where the balls of each frame are, (N, 30, 30) -> (N, balls, 2) in pixels: the places where a painted ball fits
    best, one after the other, each in what the ones before it leave over."""
    grid = np.arange(RADIUS * SIDE / BOX - 0.5, (BOX - RADIUS) * SIDE / BOX - 0.5 + FINE, FINE)
    rows, columns = (axis.ravel() for axis in np.meshgrid(grid, grid, indexing="ij"))
    places = np.stack((rows, columns), -1)  # (P, 2)
    shown = paint((places[:, None] + 0.5) * (BOX / SIDE)).reshape(len(places), -1)  # (P, 900)
    left, found = frames.reshape(len(frames), -1).copy(), []
    for _ in range(BALLS):
        fits = left @ shown.T - 0.5 * (shown**2).sum(1)  # (N, P)
        best = fits.argmax(1)
        found.append(places[best] + refined(fits.reshape(-1, len(grid), len(grid)), best))
        left = left - shown[best]
    return np.stack(found, 1)


def refined(fits: Floats, best: npt.NDArray[np.int64]) -> Reals:
    """How far from the best place of a grid the top of the parabola through its neighbours lies, (N, 2)."""
    at = np.stack(np.unravel_index(best, fits.shape[1:]), -1).clip(1, fits.shape[1] - 2)
    number, moved = np.arange(len(at)), np.zeros((len(at), 2))
    for axis, (down, right) in enumerate(((1, 0), (0, 1))):
        below, here, above = (fits[number, at[:, 0] + k * down, at[:, 1] + k * right] for k in (-1, 0, 1))
        bend = np.minimum(below - 2 * here + above, -1e-6)
        moved[:, axis] = (FINE * (below - above) / (2 * bend)).clip(-FINE, FINE)
    return moved


def localization_error(found: Reals, true: Reals) -> Reals:
    """How far the balls are from where they should be in pixels, (N, balls, 2) twice -> (N,): the mean of those pairs
    that are nearest to each other."""
    orders = [
        np.sqrt(((found[:, order] - true) ** 2).sum(-1)).mean(-1) for order in map(list, permutations(range(BALLS)))
    ]
    return np.min(orders, 0)
