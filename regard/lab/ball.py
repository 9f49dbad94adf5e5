"""ball: given one image of a ball, can a model predict where it goes next?

    x̂_t+1 = x_t + change(x_t, x_t-1 ...)          from one image, from two, from more

Claim (deck M, "Predict the future"): one image does not determine the velocity, so the best prediction is a blur of all
directions. Earlier images do, so a model with memory predicts the next image, bounces included.

One ball bounces in a box. For each length of context a world model is trained from scratch, on the same batches.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from matplotlib.figure import Figure

from regard.data.episodes import EpisodeRow, Floats, episode_row, observed
from regard.lab.optimize import lr_schedule, optimize
from regard.lab.result import LabResult, Tracker
from regard.modalities.synthetic import bouncing_balls
from regard.modalities.trajectory.preprocessor import TrajectoryPreprocessor
from regard.models.world_model import WorldModel, WorldModelConfig
from regard.parts.heads import Model
from regard.tasks.predict import Forecast
from regard.tasks.rollout import rollout_episodes, rollout_errors
from regard.validate import check_fields, check_minimum

MIN_ERROR_ONE, MAX_ERROR_MORE = 0.6, 0.5  # share of the error of copying: with one image above, with more below
TEST_VIDEOS = 20


@dataclass(frozen=True)
class BallOptions:
    images: tuple[int, ...] = (1, 2, 4)  # context lengths in images
    speed: float = 0.8  # of the ball, in tenths of the box per frame
    videos: int = 200  # training videos
    frames: int = 30  # per video
    dim: int = 64  # model width
    layers: int = 2  # number of blocks
    batch: int = 32  # windows per batch
    steps: int = 400  # training steps
    lr: float = 0.01  # peak learning rate
    seed: int = 1  # random seed

    def __post_init__(self) -> None:
        check_fields(self, images=(len(self.images) >= 2 and min(self.images) == 1, "1 and more"))
        check_fields(self, dim=(self.dim >= 4 and self.dim % 4 == 0, "a multiple of 4"))
        check_fields(self, speed=(0 < self.speed < 2, "above 0 and below 2"))
        check_fields(self, lr=(0 < self.lr < 1, "above 0 and below 1"))
        check_fields(self, frames=(self.frames > max(self.images), "more than images"))
        check_minimum(self, 1, "videos", "layers", "batch", "steps")


QUICK = BallOptions(images=(1, 2), videos=100, frames=12, dim=48, steps=300)


class BallResult(NamedTuple):
    error: float  # squared error of the next image
    predictions: list[Floats]  # (30, 30) each: the predicted next image of each video


def run(options: BallOptions, track: Tracker) -> LabResult:
    videos = make_videos(options.videos, options, options.seed)
    test = make_videos(TEST_VIDEOS, options, options.seed + 1)
    task = Forecast(preprocessor=TrajectoryPreprocessor(**TrajectoryPreprocessor.scales(videos)))
    results = {images: train(task, images, videos, test, options) for images in track(sorted({*options.images}))}
    baseline = copy_error(test, max(options.images))
    share, longest = {i: result.error / baseline for i, result in results.items()}, max(results)
    return LabResult(
        plot(test, max(options.images), results, baseline),
        [{"images": i, "error": result.error, "of copying": share[i]} for i, result in results.items()],
        summary=f"Copying the last image has an error of {baseline:.1f}. From one image the model predicts the next "
        f"with {share[1]:.0%} of that error, from {sorted(results)[1]} with {share[sorted(results)[1]]:.0%}, from "
        f"{longest} with {share[longest]:.0%}.",
        expected=f"from one image the error stays above {MIN_ERROR_ONE:.0%} of that of copying, from more it falls "
        f"below {MAX_ERROR_MORE:.0%}",
        holds=share[1] > MIN_ERROR_ONE and max(share[images] for images in share if images > 1) < MAX_ERROR_MORE,
    )


def make_videos(count: int, options: BallOptions, seed: int) -> list[EpisodeRow]:
    videos = bouncing_balls.balls(count, options.frames, seed, num_balls=1, speed=options.speed).frames
    return [episode_row(observed(frames), "ball", line) for line, frames in enumerate(videos, 1)]


def train(
    task: Forecast, images: int, videos: list[EpisodeRow], test: list[EpisodeRow], options: BallOptions
) -> BallResult:
    torch.manual_seed(options.seed)
    sizes = {"dim": options.dim, "layers": options.layers, "heads": 4, "hidden": 4 * options.dim}
    model = task.head(WorldModel(WorldModelConfig(**task.sizes(), context=images, **sizes)))
    examples = task.encode(videos, images)
    rng, starts = np.random.default_rng(options.seed), examples.overlapping(1)[0]

    def loss() -> torch.Tensor:
        loss_sum = task.loss(model, task.collate(examples, rng.choice(starts, options.batch)))
        return loss_sum.total / loss_sum.count

    optimize(model, loss, lr_schedule(options.lr, options.steps), 1.0)
    return evaluate(task, model.eval(), test, options)


def evaluate(task: Forecast, model: Model, test_videos: list[EpisodeRow], options: BallOptions) -> BallResult:
    """Every context length predicts the same images: those after the longest context."""
    after, episodes = range(max(options.images), options.frames), [row.input for row in test_videos]
    rollouts = [rollout_episodes(model, task.norm, episodes, length, 1) for length in after]
    error = float(np.mean([rollout_errors(task.preprocessor, rollout)[0] for batch in rollouts for rollout in batch]))
    return BallResult(error, [rollout.prediction[0] for rollout in rollouts[0]])


def copy_error(videos: list[EpisodeRow], start: int) -> float:
    """The error of predicting no change."""
    return float(np.mean([(np.diff(row.input.as_float(start - 1), axis=0) ** 2).sum((1, 2)) for row in videos]))


def plot(videos: list[EpisodeRow], length: int, results: dict[int, BallResult], baseline: float) -> Figure:
    """The video with the ball nearest to the centre, where no wall reveals its direction."""
    current = [row.input.as_float(length - 1, length)[0] for row in videos]
    central = int(np.argmax([frame[10:20, 10:20].sum() for frame in current]))
    frames = [(current[central], "this image"), (videos[central].input.as_float(length, length + 1)[0], "next image")]
    for i, result in results.items():
        frames.append((result.predictions[central], f"from {i}: {result.error / baseline:.0%}"))
    figure = Figure(figsize=(1.7 * len(frames), 2), layout="constrained")
    for axes, (frame, title) in zip(figure.subplots(1, len(frames)), frames, strict=True):
        axes.imshow(frame, cmap="gray", vmin=0, vmax=1)
        axes.set(xticks=[], yticks=[], title=title)
    return figure
