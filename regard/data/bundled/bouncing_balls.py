"""Generates videos of three balls that bounce off the walls of a box and off each other (Sutskever & Hinton 2007).

    brightness of a pixel = Σ_balls exp(- (d² / r²)⁴), at most 1          d: distance to its centre, r: radius

A box of 10 x 10, radius 1.2, equal masses, no friction. The velocities of all balls together are a vector of length
0.5 per frame, and a frame is two simulation steps. With these numbers, predicting the last frame has a squared error of
11.86 per frame (Mittelman et al. 2014), so results are comparable with published ones.
"""

from __future__ import annotations

from itertools import combinations, permutations
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

BOX, RADIUS, BALLS, SPEED = 10.0, 1.2, 3, 0.5
SIDE = 30  # pixels
FRAMES = 100
SUBSTEPS = 2  # simulation steps per frame
RENDER_BATCH = 4  # videos rendered at once; more do not fit the CPU's cache
GRID_STEP = 0.5  # pixels between the candidate positions of a ball

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


def locate_balls(frames: Floats) -> Reals:
    """The centres of the balls in each frame, (N, 30, 30) -> (N, balls, 2) in pixels, by matching pursuit: the rendered
    ball that fits best is subtracted, then the next one is located."""
    grid = np.arange(RADIUS * SIDE / BOX - 0.5, (BOX - RADIUS) * SIDE / BOX - 0.5 + GRID_STEP, GRID_STEP)
    rows, columns = (axis.ravel() for axis in np.meshgrid(grid, grid, indexing="ij"))
    positions = np.stack((rows, columns), -1)  # (P, 2)
    templates = paint((positions[:, None] + 0.5) * (BOX / SIDE)).reshape(len(positions), -1)  # (P, 900)
    residual, centres = frames.reshape(len(frames), -1).copy(), []
    for _ in range(BALLS):
        scores = residual @ templates.T - 0.5 * (templates**2).sum(1)  # (N, P)
        best = scores.argmax(1)
        centres.append(positions[best] + refine(scores.reshape(-1, len(grid), len(grid)), best))
        residual = residual - templates[best]
    return np.stack(centres, 1)


def refine(scores: Floats, best: npt.NDArray[np.int64]) -> Reals:
    """Offsets from the best grid positions to the vertex of the parabola through their neighbours, (N, 2)."""
    peaks = np.stack(np.unravel_index(best, scores.shape[1:]), -1).clip(1, scores.shape[1] - 2)
    number, offsets = np.arange(len(peaks)), np.zeros((len(peaks), 2))
    for axis, (down, right) in enumerate(((1, 0), (0, 1))):
        below, centre, above = (scores[number, peaks[:, 0] + k * down, peaks[:, 1] + k * right] for k in (-1, 0, 1))
        curvature = np.minimum(below - 2 * centre + above, -1e-6)
        offsets[:, axis] = (GRID_STEP * (below - above) / (2 * curvature)).clip(-GRID_STEP, GRID_STEP)
    return offsets


def localization_error(centres: Reals, targets: Reals) -> Reals:
    """The mean distance between centres and targets in pixels, (N, balls, 2) twice -> (N,), for the assignment of balls
    with the smallest one."""
    errors = [
        np.sqrt(((centres[:, order] - targets) ** 2).sum(-1)).mean(-1)
        for order in map(list, permutations(range(BALLS)))
    ]
    return np.min(errors, 0)
