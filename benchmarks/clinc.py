"""CLINC150, from scratch: accuracy over 150 intents on the in-scope test set.

    python benchmarks/clinc.py [--minutes 5] [-o runs/clinc] [options of regard train classify]

Published (Larson et al. 2019, table 2, full): FastText 89.0, SVM 91.0, CNN 91.2, MLP 93.5, BERT 96.9.
"""

from __future__ import annotations

import gzip
import json
from pathlib import Path

from corpus import SHARED
from recipes import describe_machine, parse_args, train_or_load, training_seconds

RECIPE = {
    "--model": "recurrent", "--size": "small", "--dropout": 0.4, "--label-smoothing": 0.1, "--pooling": "attention",
    "--vocab-size": 2000,
}  # fmt: skip


def write_data(folder: Path, share: float = 1.0) -> dict[str, Path]:
    """The three splits as tables, with `share` of the training sentences of every intent."""
    folder.mkdir(parents=True, exist_ok=True)
    data = json.loads(gzip.decompress((SHARED / "clinc150" / "data_full.json.gz").read_bytes()))
    files = {split: folder / f"{split}-{share:g}.tsv" for split in ("train", "val", "test")}
    for split, file in files.items():
        rows, counts = [], dict.fromkeys({intent for _, intent in data[split]}, 0)
        for text, intent in data[split]:
            counts[intent] += 1
            if split != "train" or counts[intent] <= share * 100:
                rows.append(f"{text}\t{intent}\n")
        file.write_text("".join(rows), encoding="utf-8")
    return files


def main() -> None:
    args, extra = parse_args(str(__doc__), 5, "runs/clinc")
    files = write_data(args.output_dir.parent / "clinc-data")
    recipe = {"--data": [files["train"]], "--valid": [files["val"]], "--minutes": args.minutes, "--seed": args.seed}
    loaded = train_or_load("classify", args.output_dir, RECIPE | recipe, extra)
    scores = loaded.task.score(loaded.model, loaded.rows([str(files["test"])]))
    minutes = training_seconds(args.output_dir) / 60
    print(f"{describe_machine()}, seed {args.seed}")
    print(f"test accuracy {scores['accuracy']:.2f} after {minutes:.1f} minutes")


if __name__ == "__main__":
    main()
