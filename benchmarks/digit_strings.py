"""Strings of one to seven spoken digits (FSDD), clips of one speaker joined with pauses: word and string error.

    python benchmarks/digit_strings.py [--minutes 10] [-o runs/strings] [options of regard train translate]

The test strings join the official test clips, which no training string contains. The goal is a WER of 8 %.
"""

from __future__ import annotations

from fsdd import official_splits
from recipes import describe_machine, parse_args, train_or_load, training_seconds

from regard.tasks.translate import BEAM


def main() -> None:
    args, extra = parse_args(str(__doc__), 10, "runs/strings")
    files = official_splits(args.output_dir.parent / "speech-data" / "official")
    recipe = {
        "--data": [files["train"]], "--valid": [files["valid"]], "--model": "speech2text", "--batch-tokens": 2048,
        "--minutes": args.minutes, "--seed": args.seed,
    }  # fmt: skip
    loaded = train_or_load("translate", args.output_dir, recipe, extra)
    rows = loaded.rows([str(files["test"])])
    scores = loaded.task.score(loaded.model, rows, BEAM)
    print(f"{describe_machine()}, seed {args.seed}")
    print(f"{len(rows)} strings after {training_seconds(args.output_dir) / 60:.1f} minutes of training:")
    print(f"WER {scores['wer']:.2f} %, exact strings {scores['exact']:.2f} %")


if __name__ == "__main__":
    main()
