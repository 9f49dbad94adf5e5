"""Part-of-speech tagging on UD English EWT, from scratch: UPOS accuracy on the test set.

    python benchmarks/ewt.py [--minutes 10] [-o runs/ewt] [options of regard train tag]

Everything is selected on dev. Published, with word vectors from much more text: 95.4 (Stanza, from raw text).
"""

from __future__ import annotations

from corpus import SHARED
from recipes import describe_machine, parse_args, train_or_load, training_seconds

DATA = SHARED / "ud_english_ewt"
RECIPE = {
    "--model": "recurrent", "--size": "small", "--dropout": 0.4, "--evals": 8,
    "--data": [DATA / "en_ewt-ud-train.conllu.gz"], "--valid": [DATA / "en_ewt-ud-dev.conllu.gz"],
}  # fmt: skip


def main() -> None:
    args, extra = parse_args(str(__doc__), 10, "runs/ewt")
    recipe = RECIPE | {"--minutes": args.minutes, "--seed": args.seed}
    loaded = train_or_load("tag", args.output_dir, recipe, extra)
    scores = loaded.task.score(loaded.model, loaded.rows([str(DATA / "en_ewt-ud-test.conllu.gz")]))
    minutes = training_seconds(args.output_dir) / 60
    print(f"{describe_machine()}, seed {args.seed}")
    print(f"test UPOS accuracy {scores['accuracy']:.2f} after {minutes:.1f} minutes of training")


if __name__ == "__main__":
    main()
