"""Bouncing balls: squared error of the next frame on 200 test videos of 100 frames, and of rollouts of 20 frames.

    python benchmarks/ball.py [--minutes 8] [-o runs/ball] [options of regard train predict]

Published, with the same physics: copying the last frame 11.86, recurrent temporal RBM 3.88 (Sutskever et al. 2009,
measured by Mittelman et al. 2014), deep temporal sigmoid belief network 2.79 (Gan et al. 2015), predictive generative
network 0.65 (Lotter et al. 2015). Every frame but the first is predicted from those before it. A rollout also reports
the distance of the balls from their true positions; a ball is located where a template of it fits best.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from recipes import describe_machine, parse_args, train_or_load, training_seconds

from regard.data.bundled import bouncing_balls
from regard.data.episodes import video
from regard.data.rollout_video import save_rollouts
from regard.tasks.predict import Forecast
from regard.tasks.rollout import rollout_episodes, rollout_errors

SPLITS = {"train": (4000, 10), "valid": (40, 11), "test": (200, 12)}  # number of videos, seed
HORIZONS = (1, 2, 5, 10, 15, 20)
CONTEXT_FRAMES = 10  # true frames before a rollout
RECIPE = {"--batch-tokens": 1152}  # 32 windows: many small steps reach a lower error than few large ones


def write_data(folder: Path) -> dict[str, Path]:
    folder.mkdir(parents=True, exist_ok=True)
    files = {split: folder / f"{split}.npz" for split in SPLITS}
    for split, (count, seed) in SPLITS.items():
        if not files[split].exists():
            np.savez(files[split], videos=bouncing_balls.balls(count, seed=seed).frames)
    return files


def main() -> None:
    args, extra = parse_args(str(__doc__), 8, "runs/ball")
    files = write_data(args.output_dir.parent / "ball-data")
    recipe = {"--data": [files["train"]], "--valid": [files["valid"]], "--minutes": args.minutes, "--seed": args.seed}
    loaded = train_or_load("predict", args.output_dir, RECIPE | recipe, extra)
    task, model = loaded.task, loaded.model
    assert isinstance(task, Forecast)
    test = bouncing_balls.balls(SPLITS["test"][0], seed=SPLITS["test"][1])
    rows = [video(frames, "test", line) for line, frames in enumerate(test.frames, 1)]
    scores = task.score(model, rows)
    minutes = training_seconds(args.output_dir) / 60
    print(f"{describe_machine()}, seed {args.seed}, {minutes:.1f} minutes of training")
    print(f"squared error per frame {scores['error']:.3f}; copying the last frame {scores['copy']:.2f}")
    rollouts = rollout_episodes(model, task.normalizer, rows, CONTEXT_FRAMES, HORIZONS[-1])
    errors, copy_errors = (
        np.mean(e, 0) for e in zip(*(rollout_errors(task.normalizer, r) for r in rollouts), strict=True)
    )
    print(f"{'step':>6}{'error':>9}{'copying':>9}{'ball position error, pixels':>29}{'copying':>9}")
    for step in HORIZONS:
        true = test.centres[:, CONTEXT_FRAMES + step - 1]
        predicted = bouncing_balls.localization_error(
            bouncing_balls.locate_balls(np.stack([rollout.prediction[step - 1] for rollout in rollouts])), true
        )
        copied = bouncing_balls.localization_error(test.centres[:, CONTEXT_FRAMES - 1], true)
        frame_errors = f"{errors[step - 1]:>9.2f}{copy_errors[step - 1]:>9.2f}"
        print(f"{step:>6}{frame_errors}{predicted.mean():>29.2f}{copied.mean():>9.2f}")
    for suffix in ("gif", "png"):
        save_rollouts(str(args.output_dir / f"rollout.{suffix}"), rollouts, task.normalizer.low, task.normalizer.high)
    print(f"videos of rollouts are in {args.output_dir}/rollout.gif and rollout.png")


if __name__ == "__main__":
    main()
