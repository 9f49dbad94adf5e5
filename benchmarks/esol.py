"""ESOL, solubility of 1,128 molecules, from scratch: RMSE on a random tenth, in log mol per litre, for three seeds.

    python benchmarks/esol.py [--minutes 1] [-o runs/esol] [options of regard train regress]

Baseline: the predictions of Delaney (2004), which the same file has, on the same molecules. All hyperparameters were
chosen on molecules held out from the other nine tenths.
"""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
from corpus import SHARED
from recipes import describe_machine, parse_args, train_or_load, training_seconds

from regard.metrics import rmse

DATA = SHARED / "molecules" / "esol.csv"
FIELDS = ["smiles", "measured log solubility in mols per litre"]
DELANEY = "ESOL predicted log solubility in mols per litre"
RECIPE = {
    "--model": "graphormer", "--fields": FIELDS, "--evals": 1, "--skip-bad": True,
    "--optimizer": "adamw", "--lr": 0.0015, "--ema": 0.98,
}  # fmt: skip
SEEDS = 3


def write_data(folder: Path, seed: int) -> dict[str, Path]:
    """Nine tenths for training, one for the test."""
    folder.mkdir(parents=True, exist_ok=True)
    with open(DATA, encoding="utf-8", newline="") as stream:
        head, *rows = csv.reader(stream)
    order = np.random.default_rng(seed).permutation(len(rows)).tolist()
    tenth = len(rows) // 10
    files = {split: folder / f"{split}-{seed}.csv" for split in ("test", "train")}
    for file, indices in zip(files.values(), (order[:tenth], order[tenth:]), strict=True):
        with open(file, "w", encoding="utf-8", newline="") as stream:
            csv.writer(stream).writerows([head, *(rows[i] for i in indices)])
    return files


def main() -> None:
    args, extra = parse_args(str(__doc__), 1, "runs/esol")
    scores = []
    for seed in range(args.seed, args.seed + SEEDS):
        files, folder = write_data(args.output_dir / "data", seed), args.output_dir / str(seed)
        recipe = {"--data": [files["train"]], "--minutes": args.minutes, "--seed": seed}
        loaded = train_or_load("regress", folder, RECIPE | recipe, extra)
        rows = loaded.rows([str(files["test"])], tuple(FIELDS), skip_bad=True)
        with open(files["test"], encoding="utf-8", newline="") as stream:
            pairs = [(float(row[FIELDS[1]]), float(row[DELANEY])) for row in csv.DictReader(stream)]
        dropped = f", without {len(pairs) - len(rows)} with unknown atoms" if len(pairs) > len(rows) else ""
        scores.append(loaded.task.score(loaded.model, rows)["rmse"])
        delaney = rmse(*zip(*(pairs[row.line - 2] for row in rows), strict=True))  # line 1 is the header
        result = f"RMSE {scores[-1]:.3f} on {len(rows)} molecules{dropped}, Delaney {delaney:.3f}"
        print(f"seed {seed}: {result}, {training_seconds(folder):.0f} s of training")
    print(f"{describe_machine()}, seeds {args.seed} to {args.seed + SEEDS - 1}")
    print(f"mean test RMSE {np.mean(scores):.3f}, from {min(scores):.3f} to {max(scores):.3f}")


if __name__ == "__main__":
    main()
