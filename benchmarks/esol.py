"""ESOL, solubility of 1,128 molecules, from scratch: RMSE on a random tenth, in log mol per litre, for three seeds.

    python benchmarks/esol.py [--minutes 1] [--out runs/esol] [any other option of regard train regress]

Beside it, in the same file: what Delaney (2004) predicted, on the same molecules. All settings were chosen on molecules
held out from the other nine tenths.
"""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
from corpus import SHARED
from recipes import machine, options, seconds, trained

from regard.metrics import rmse

DATA = SHARED / "molecules" / "esol.csv"
FIELDS = ["smiles", "measured log solubility in mols per litre"]
DELANEY = "ESOL predicted log solubility in mols per litre"
RECIPE = {
    "model": "graph", "fields": FIELDS, "checks": 1, "skip-bad": True,
    "optimizer": "adamw", "rate": 0.0015, "average": 0.98,
}  # fmt: skip
SEEDS = 3


def written(folder: Path, seed: int) -> dict[str, Path]:
    """Nine tenths to learn from, one to be tested on."""
    folder.mkdir(parents=True, exist_ok=True)
    with open(DATA, encoding="utf-8", newline="") as stream:
        head, *rows = csv.reader(stream)
    order = np.random.default_rng(seed).permutation(len(rows)).tolist()
    tenth = len(rows) // 10
    found = {}
    for part, chosen in (("test", order[:tenth]), ("train", order[tenth:])):
        found[part] = folder / f"{part}-{seed}.csv"
        with open(found[part], "w", encoding="utf-8", newline="") as stream:
            csv.writer(stream).writerows([head, *(rows[i] for i in chosen)])
    return found


def main() -> None:
    given, more = options(str(__doc__), 1, "runs/esol")
    out = Path(given.out)
    found = []
    for seed in range(given.seed, given.seed + SEEDS):
        files, folder = written(out / "data", seed), out / str(seed)
        recipe = {"data": [files["train"]], "minutes": given.minutes, "seed": seed}
        loaded = trained("regress", folder, RECIPE | recipe, more)
        rows = loaded.rows([str(files["test"])], tuple(FIELDS), skip_bad=True)
        with open(files["test"], encoding="utf-8", newline="") as stream:
            told = [(float(row[FIELDS[1]]), float(row[DELANEY])) for row in csv.DictReader(stream)]
        left = f", without {len(told) - len(rows)} of atoms never seen" if len(told) > len(rows) else ""
        score = loaded.task.score(loaded.model, rows)["rmse"]
        other = rmse(*zip(*(told[row.line - 2] for row in rows), strict=True))  # line 1 has the names
        found.append(score)
        took = seconds(folder)
        print(f"seed {seed}: RMSE {score:.3f} on {len(rows)} molecules{left}, Delaney {other:.3f}, {took:.0f} s")
    print(f"{machine()}, seeds {given.seed} to {given.seed + SEEDS - 1}")
    print(f"RMSE on test {np.mean(found):.3f}, from {min(found):.3f} to {max(found):.3f}")


if __name__ == "__main__":
    main()
