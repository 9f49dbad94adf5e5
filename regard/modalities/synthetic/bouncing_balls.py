"""Generates videos of three balls that bounce off the walls of a box and off each other (Sutskever & Hinton 2007).

    brightness of a pixel = Σ_balls exp(- (d² / r²)⁴), at most 1          d: distance to its centre, r: radius

A box of 10 x 10, radius 1.2, equal masses, no friction. The velocities of all balls together are a vector of length
0.5 per frame, and a frame is two simulation steps. With these numbers, predicting the last frame has a squared error of
11.86 per frame (Mittelman et al. 2014), so results are comparable with published ones.
"""

from __future__ import annotations

from itertools import combinations
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

BOX, RADIUS, BALLS, SPEED = 10.0, 1.2, 3, 0.5
SIDE = 30  # pixels
FRAMES = 100
SUBSTEPS = 2  # simulation steps per frame
RENDER_BATCH = 4  # videos rendered at once; more do not fit the CPU's cache

Floats = npt.NDArray[np.float32]
Reals = npt.NDArray[np.float64]
Pixels = npt.NDArray[np.uint8]


class Videos(NamedTuple):
    frames: Pixels  # (videos, frames, 30, 30), 255 = 1
    centres: Reals  # (videos, frames, balls, 2), in pixels: row and column


def balls(count: int, frames: int = FRAMES, seed: int = 0, num_balls: int = BALLS, speed: float = SPEED) -> Videos:
    """`count` videos; the same seed gives the same videos."""
    positions = simulate(count, frames, np.random.default_rng(seed), num_balls, speed)
    pixels = np.empty((count, frames, SIDE, SIDE), np.uint8)
    for i in range(0, count, RENDER_BATCH):
        pixels[i : i + RENDER_BATCH] = (paint(positions[i : i + RENDER_BATCH]) * 255).round()
    return Videos(pixels, to_pixels(positions))


def simulate(count: int, frames: int, rng: np.random.Generator, num_balls: int = BALLS, speed: float = SPEED) -> Reals:
    """The positions of the balls, (videos, frames, balls, 2)."""
    x = draw_positions(count, rng, num_balls)
    v = rng.normal(size=(count, num_balls, 2))
    v *= speed / np.sqrt((v**2).sum((1, 2), keepdims=True))
    trajectory = np.empty((count, frames, num_balls, 2))
    for frame in range(frames):
        trajectory[:, frame] = x
        for _ in range(SUBSTEPS):
            x = x + v / SUBSTEPS
            collide(x, v)
    return trajectory


def draw_positions(count: int, rng: np.random.Generator, num_balls: int) -> Reals:
    """Positions of balls that do not touch each other."""
    x = np.empty((0, num_balls, 2))
    while len(x) < count:
        candidates = rng.uniform(RADIUS, BOX - RADIUS, (2 * count + 8, num_balls, 2))
        separate = np.ones(len(candidates), bool)
        for i, j in combinations(range(num_balls), 2):
            separate &= np.hypot(*(candidates[:, i] - candidates[:, j]).T) > 2 * RADIUS
        x = np.concatenate((x, candidates[separate]))
    return x[:count]


def collide(x: Reals, v: Reals) -> None:
    """Elastic collisions with the walls and between equal masses; changes `v` in place."""
    np.copyto(v, np.abs(v), where=x < RADIUS)
    np.copyto(v, -np.abs(v), where=x > BOX - RADIUS)
    for i, j in combinations(range(x.shape[1]), 2):
        delta = x[:, i] - x[:, j]
        distance = np.sqrt((delta**2).sum(1, keepdims=True))
        direction = delta / distance
        approach = ((v[:, i] - v[:, j]) * direction).sum(1, keepdims=True)
        impulse = np.where((distance < 2 * RADIUS) & (approach < 0), approach, 0) * direction
        v[:, i] -= impulse
        v[:, j] += impulse


def paint(positions: Reals) -> Floats:
    """(..., balls, 2) -> (..., 30, 30)"""
    pixels = ((np.arange(SIDE, dtype=np.float32) + 0.5) * (BOX / SIDE)).astype(np.float32)
    squares = (positions.astype(np.float32)[..., None] - pixels) ** 2 / np.float32(RADIUS**2)  # (..., balls, 2, 30)
    exponent = squares[..., 0, :, None] + squares[..., 1, None, :]  # (..., balls, 30, 30)
    exponent *= exponent
    exponent *= exponent
    np.negative(exponent, out=exponent)
    return np.minimum(np.exp(exponent, out=exponent).sum(-3), 1)


def to_pixels(positions: Reals) -> Reals:
    """Positions in pixels; the centre of the first pixel is 0."""
    return positions * (SIDE / BOX) - 0.5
