"""ball: given this image of a ball, can you predict where it goes next?

    x̂_t+1 = x_t + change(x_t, x_t-1 ...)          from one image, from two, from more

Claim (deck M, "Predict the future"): from one image nobody can tell. It may go any way, and the best guess is a blur of
all of them. What came before tells its velocity, so a model that remembers sees it coming, walls included.

One ball bounces in a box. The same world model learns it from nothing with the same lessons, and sees only so many
images at once.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from matplotlib.figure import Figure

from regard.choose import must
from regard.data.bundled import ball
from regard.data.episodes import Episode, Floats, video
from regard.lab.optimize import learn, rates
from regard.lab.result import Each, Finding, at_least
from regard.models.world import World, WorldConfig
from regard.parts.heads import Model
from regard.tasks.predict import Predict
from regard.tasks.rollout import missed, rolled

BLIND, SEES = 0.6, 0.5  # share of the error of copying: above, and below
TESTED = 20  # videos


@dataclass(frozen=True)
class Knobs:
    images: tuple[int, ...] = (1, 2, 4)  # images that are seen at once
    speed: float = 0.8  # of the ball, in tenths of the box a frame
    videos: int = 200  # to learn from
    frames: int = 30  # of each
    dim: int = 64  # width of the model
    layers: int = 2  # blocks
    batch: int = 32  # windows in a lesson
    steps: int = 400  # lessons
    rate: float = 0.01  # highest learning rate
    seed: int = 1  # of weights, lessons and balls

    def __post_init__(self) -> None:
        must(self, images=(len(self.images) >= 2 and min(self.images) == 1, "1 and more"))
        must(self, dim=(self.dim >= 4 and self.dim % 4 == 0, "a multiple of 4"))
        must(self, speed=(0 < self.speed < 2, "above 0 and below 2"), rate=(0 < self.rate < 1, "above 0 and below 1"))
        must(self, frames=(self.frames > max(self.images), "more than images"))
        at_least(1, self, "videos", "layers", "batch", "steps")


QUICK = Knobs(images=(1, 2), videos=100, frames=12, dim=48, steps=300)


class Seen(NamedTuple):
    error: float  # of the next image
    guesses: list[Floats]  # (30, 30) each: the next image of each video


def run(knobs: Knobs, each: Each) -> Finding:
    films, tested = filmed(knobs.videos, knobs, knobs.seed), filmed(TESTED, knobs, knobs.seed + 1)
    task = Predict.fit(films, "foresees", {}, {}, patch=None)
    found = {images: taught(task, images, films, tested, knobs) for images in each(sorted({*knobs.images}))}
    still = copied(tested, max(knobs.images))
    share, most = {images: one.error / still for images, one in found.items()}, max(found)
    return Finding(
        drawn(tested, max(knobs.images), found, still),
        [{"images seen": i, "error": one.error, "of copying": share[i]} for i, one in found.items()],
        says=f"To say that the ball stays where it is costs {still:.1f}. From one image the next is foreseen with "
        f"{share[1]:.0%} of that error, from {sorted(found)[1]} with {share[sorted(found)[1]]:.0%}, from {most} with "
        f"{share[most]:.0%}.",
        wanted=f"from one image the error stays above {BLIND:.0%} of that of copying, from more it falls below"
        f" {SEES:.0%}",
        holds=share[1] > BLIND and max(share[images] for images in share if images > 1) < SEES,
    )


def filmed(count: int, knobs: Knobs, seed: int) -> list[Episode]:
    films = ball.balls(count, knobs.frames, seed, many=1, speed=knobs.speed).frames
    return [video(frames, "ball", line) for line, frames in enumerate(films, 1)]


def taught(task: Predict, images: int, films: list[Episode], tested: list[Episode], knobs: Knobs) -> Seen:
    torch.manual_seed(knobs.seed)
    sizes = {"dim": knobs.dim, "layers": knobs.layers, "heads": 4, "hidden": 4 * knobs.dim}
    model = task.head(World(WorldConfig(**task.sizes(), context=images, **sizes)))
    examples = task.prepare(films, images)
    draw, starts = np.random.default_rng(knobs.seed), examples.every()

    def loss() -> torch.Tensor:
        some = task.loss(model, task.batch(examples, draw.choice(starts, knobs.batch)))
        return some.total / some.count

    learn(model, loss, rates(knobs.rate, knobs.steps), 1.0)
    return foreseen(task, model.eval(), tested, knobs)


def foreseen(task: Predict, model: Model, tested: list[Episode], knobs: Knobs) -> Seen:
    """All are asked for the same images, those after the most that anyone sees."""
    after = range(max(knobs.images), knobs.frames)
    found = [rolled(model, task.senses, tested, known, 1) for known in after]
    error = float(np.mean([missed(task.senses, one)[0] for some in found for one in some]))
    return Seen(error, [one.told[0] for one in found[0]])


def copied(films: list[Episode], known: int) -> float:
    """The error of saying that nothing changes."""
    return float(np.mean([(np.diff(row.seen(known - 1), axis=0) ** 2).sum((1, 2)) for row in films]))


def drawn(films: list[Episode], known: int, found: dict[int, Seen], still: float) -> Figure:
    """Of the ball that is nearest to the middle, where no wall tells which way it goes."""
    now = [film.seen(known - 1, known)[0] for film in films]
    free = int(np.argmax([frame[10:20, 10:20].sum() for frame in now]))
    frames = [(now[free], "this image"), (films[free].seen(known, known + 1)[0], "the next")]
    frames += [(one.guesses[free], f"from {images}: {one.error / still:.0%}") for images, one in found.items()]
    figure = Figure(figsize=(1.7 * len(frames), 2), layout="constrained")
    for axes, (frame, title) in zip(figure.subplots(1, len(frames)), frames, strict=True):
        axes.imshow(frame, cmap="gray", vmin=0, vmax=1)
        axes.set(xticks=[], yticks=[], title=title)
    return figure
