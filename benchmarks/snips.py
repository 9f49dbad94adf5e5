"""SNIPS, from scratch: slots by `tag` (span F1) and intents by `classify` (accuracy), on the test set.

    python benchmarks/snips.py [--minutes 8] [--output-dir runs/snips]

Beside it, from scratch: slot-gated attention 88.8 / 97.0 (Goo et al. 2018); with BERT: 97.0 / 98.6 (Chen et al. 2019).
"""

from __future__ import annotations

from pathlib import Path

from corpus import SHARED
from recipes import machine, options, seconds, trained

DATA = SHARED / "snips"
SLOTS, INTENTS = "seq.out", "label"
RECIPES = {
    "tag": {"model": "recurrent", "size": "small", "dropout": 0.4, "evals": 8},
    "classify": {
        "model": "recurrent", "size": "small", "dropout": 0.4, "smoothing": 0.1, "pooling": "attention", "vocab": 2000,
        "evals": 8,
    },
}  # fmt: skip


def files(part: str, answers: str) -> list[str]:
    return [str(DATA / f"{part}.seq.in"), str(DATA / f"{part}.{answers}")]


def main() -> None:
    given, more = options(str(__doc__), 8, "runs/snips")
    print(f"{machine()}, seed {given.seed}")
    for task, answers, score in (("tag", SLOTS, "f1"), ("classify", INTENTS, "accuracy")):
        recipe = RECIPES[task] | {"data": files("train", answers), "valid": files("valid", answers)}
        folder = Path(given.output_dir) / task
        loaded = trained(task, folder, recipe | {"minutes": given.minutes, "seed": given.seed}, more)
        scores = loaded.task.score(loaded.model, loaded.rows(files("test", answers)))
        print(f"{task}: {score} on test {scores[score]:.2f} after {seconds(folder) / 60:.1f} minutes of training")


if __name__ == "__main__":
    main()
