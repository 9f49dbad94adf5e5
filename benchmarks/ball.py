"""Bouncing balls: the squared error of the next frame over 200 test videos of 100 frames, and how far it sees ahead.

    python benchmarks/ball.py [--minutes 8] [--output-dir runs/ball] [options of regard train predict]

Beside it, with the same physics: to copy the last frame 11.86, a recurrent temporal RBM 3.88 (Sutskever et al. 2009, as
Mittelman et al. 2014 measured it), a deep temporal sigmoid belief net 2.79 (Gan et al. 2015), a predictive generative
network 0.65 (Lotter et al. 2015). Every frame but the first is predicted, from those before it. Of 20 frames ahead it
is also told how far from their places the balls are, found in each frame by the places where a painted ball fits best.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from recipes import machine, options, seconds, trained

from regard.data.bundled import ball
from regard.data.episodes import video
from regard.data.films import save_told
from regard.tasks.predict import Predict
from regard.tasks.rollout import missed, rolled

SETS = {"train": (4000, 10), "valid": (40, 11), "test": (200, 12)}  # videos, and their seed
HORIZONS = (1, 2, 5, 10, 15, 20)
KNOWN = 10  # frames before it looks ahead
RECIPE = {"batch-tokens": 1152}  # 32 windows: many small steps get farther than few large ones


def written(folder: Path) -> dict[str, Path]:
    folder.mkdir(parents=True, exist_ok=True)
    found = {}
    for part, (count, seed) in SETS.items():
        found[part] = folder / f"{part}.npz"
        if not found[part].exists():
            np.savez(found[part], videos=ball.balls(count, seed=seed).frames)
    return found


def main() -> None:
    given, more = options(str(__doc__), 8, "runs/ball")
    files = written(Path(given.output_dir).parent / "ball-data")
    recipe = {"data": [files["train"]], "valid": [files["valid"]], "minutes": given.minutes, "seed": given.seed}
    loaded = trained("predict", Path(given.output_dir), RECIPE | recipe, more)
    task, model = loaded.task, loaded.model
    assert isinstance(task, Predict)
    test = ball.balls(SETS["test"][0], seed=SETS["test"][1])
    rows = [video(frames, "test", line) for line, frames in enumerate(test.frames, 1)]
    scores = task.score(model, rows)
    print(f"{machine()}, seed {given.seed}, {seconds(Path(given.output_dir)) / 60:.1f} minutes of training")
    print(f"error a frame {scores['error']:.3f}; copying the last one {scores['copy']:.2f}")
    found = rolled(model, task.senses, rows, KNOWN, HORIZONS[-1])
    errors, still = (np.mean(some, 0) for some in zip(*(missed(task.senses, one) for one in found), strict=True))
    print(f"{'ahead':>6}{'error':>9}{'copying':>9}{'balls astray, pixels':>22}{'copying':>9}")
    for step in HORIZONS:
        true = test.centres[:, KNOWN + step - 1]
        told = ball.astray(ball.find(np.stack([one.told[step - 1] for one in found])), true)
        stay = ball.astray(test.centres[:, KNOWN - 1], true)
        print(f"{step:>6}{errors[step - 1]:>9.2f}{still[step - 1]:>9.2f}{told.mean():>22.2f}{stay.mean():>9.2f}")
    for ending in ("gif", "png"):
        save_told(str(Path(given.output_dir) / f"told.{ending}"), found, task.senses.low, task.senses.high)
    print(f"films are in {given.output_dir}/told.gif and told.png")


if __name__ == "__main__":
    main()
