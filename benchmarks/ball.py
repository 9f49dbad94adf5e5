"""Bouncing balls: squared error of the next frame on 200 test videos of 100 frames, and of rollouts of 20 frames.

    python benchmarks/ball.py [--minutes 8] [-o runs/ball] [options of regard train predict]

Published, with the same physics: copying the last frame 11.86, recurrent temporal RBM 3.88 (Sutskever et al. 2009,
measured by Mittelman et al. 2014), deep temporal sigmoid belief network 2.79 (Gan et al. 2015), predictive generative
network 0.65 (Lotter et al. 2015). Every frame but the first is predicted from those before it. A rollout also reports
the distance of the balls from their true positions; a ball is located where a template of it fits best.
"""

from __future__ import annotations

from itertools import permutations
from pathlib import Path

import numpy as np
import numpy.typing as npt
from recipes import describe_machine, parse_args, train_or_load, training_seconds

from regard.data.episodes import episode_row, observed
from regard.modalities.synthetic import bouncing_balls
from regard.modalities.synthetic.bouncing_balls import BALLS, BOX, RADIUS, SIDE, Floats, Reals, paint
from regard.tasks.predict import Forecast
from regard.tasks.rollout import rollout_episodes, rollout_errors

SPLITS = {"train": (4000, 10), "valid": (40, 11), "test": (200, 12)}  # number of videos, seed
HORIZONS = (1, 2, 5, 10, 15, 20)
CONTEXT_FRAMES = 10  # true frames before a rollout
RECIPE = {"--batch-tokens": 1152}  # 32 windows: many small steps reach a lower error than few large ones
GRID_STEP = 0.5  # pixels between the candidate positions of a ball


def write_data(folder: Path) -> dict[str, Path]:
    folder.mkdir(parents=True, exist_ok=True)
    files = {split: folder / f"{split}.npz" for split in SPLITS}
    for split, (count, seed) in SPLITS.items():
        if not files[split].exists():
            np.savez(files[split], videos=bouncing_balls.balls(count, seed=seed).frames)
    return files


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


def main() -> None:
    args, extra = parse_args(str(__doc__), 8, "runs/ball")
    files = write_data(args.output_dir.parent / "ball-data")
    recipe = {"--data": [files["train"]], "--valid": [files["valid"]], "--minutes": args.minutes, "--seed": args.seed}
    loaded = train_or_load("predict", args.output_dir, RECIPE | recipe, extra)
    task, model = loaded.task, loaded.model
    assert isinstance(task, Forecast)
    test = bouncing_balls.balls(SPLITS["test"][0], seed=SPLITS["test"][1])
    rows = [episode_row(observed(frames), "test", line) for line, frames in enumerate(test.frames, 1)]
    scores = task.score(model, rows)
    minutes = training_seconds(args.output_dir) / 60
    print(f"{describe_machine()}, seed {args.seed}, {minutes:.1f} minutes of training")
    print(f"squared error per frame {scores['error']:.3f}; copying the last frame {scores['copy']:.2f}")
    rollouts = rollout_episodes(model, task.norm, [row.input for row in rows], CONTEXT_FRAMES, HORIZONS[-1])
    errors, copy_errors = (
        np.mean(e, 0) for e in zip(*(rollout_errors(task.preprocessor, r) for r in rollouts), strict=True)
    )
    print(f"{'step':>6}{'error':>9}{'copying':>9}{'ball position error, pixels':>29}{'copying':>9}")
    for step in HORIZONS:
        true = test.centres[:, CONTEXT_FRAMES + step - 1]
        predicted = localization_error(
            locate_balls(np.stack([rollout.prediction[step - 1] for rollout in rollouts])), true
        )
        copied = localization_error(test.centres[:, CONTEXT_FRAMES - 1], true)
        frame_errors = f"{errors[step - 1]:>9.2f}{copy_errors[step - 1]:>9.2f}"
        print(f"{step:>6}{frame_errors}{predicted.mean():>29.2f}{copied.mean():>9.2f}")
    for suffix in ("gif", "png"):
        task.preprocessor.save_rollouts(str(args.output_dir / f"rollout.{suffix}"), rollouts)
    print(f"videos of rollouts are in {args.output_dir}/rollout.gif and rollout.png")


if __name__ == "__main__":
    main()
