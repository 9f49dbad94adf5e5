"""SNIPS, from scratch: slots by `tag` (span F1) and intents by `classify` (accuracy), on the test set.

    python benchmarks/snips.py [--minutes 8] [-o runs/snips]

Published, from scratch: slot-gated attention 88.8 / 97.0 (Goo et al. 2018); with BERT: 97.0 / 98.6 (Chen et al. 2019).
"""

from __future__ import annotations

from corpus import SHARED
from recipes import describe_machine, parse_args, train_or_load, training_seconds

DATA = SHARED / "snips"
SLOTS, INTENTS = "seq.out", "label"
RECIPES = {
    "tag": {"--model": "recurrent", "--size": "small", "--dropout": 0.4, "--evals": 8},
    "classify": {
        "--model": "recurrent", "--size": "small", "--dropout": 0.4, "--label-smoothing": 0.1, "--pooling": "attention",
        "--vocab-size": 2000, "--evals": 8,
    },
}  # fmt: skip


def split_files(split: str, targets: str) -> list[str]:
    return [str(DATA / f"{split}.seq.in"), str(DATA / f"{split}.{targets}")]


def main() -> None:
    args, extra = parse_args(str(__doc__), 8, "runs/snips")
    print(f"{describe_machine()}, seed {args.seed}")
    for task, targets, metric in (("tag", SLOTS, "f1"), ("classify", INTENTS, "accuracy")):
        data = {"--data": split_files("train", targets), "--valid": split_files("valid", targets)}
        folder, recipe = args.output_dir / task, RECIPES[task] | data
        loaded = train_or_load(task, folder, recipe | {"--minutes": args.minutes, "--seed": args.seed}, extra)
        scores = loaded.task.score(loaded.model, loaded.rows(split_files("test", targets)))
        minutes = training_seconds(folder) / 60
        print(f"{task}: test {metric} {scores[metric]:.2f} after {minutes:.1f} minutes of training")


if __name__ == "__main__":
    main()
