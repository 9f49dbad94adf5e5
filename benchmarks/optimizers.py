"""Which optimiser for which recipe: SGD, AdamW and Muon, each at its own best rate, in equal minutes.

    python benchmarks/optimizers.py [--minutes 1] [--only tag ...] [--output-dir runs/optimizers]

The rates are multiples of 0.64 / dim, the default; those of SGD are its own. The loss is that of the validation set
after the last step. Data: tinyshakespeare by characters (write), UD English EWT (tag), CLINC150 (classify), Multi30k
(translate).
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from corpus import SHARED
from family import data
from recipes import machine, trained

from regard.training.run_folder import RunFolder

DIM = 128
RECIPES: dict[str, dict[str, Any]] = {
    "write": {"model": "nano", "context": 64, "batch-tokens": 1024, "pieces": "characters", "eval-examples": 50_000},
    "tag": {"model": "bert", "size": "tiny"},
    "classify": {"model": "bert", "size": "tiny", "dropout": 0.3, "vocab": 2000},
    "translate": {"model": "transformer", "size": "tiny", "vocab": 4000, "eval-examples": 200},
}
RATES = {
    "muon": [x * 0.64 / DIM for x in (0.25, 0.5, 1, 2)],
    "adamw": [x * 0.64 / DIM for x in (0.125, 0.25, 0.5, 1, 2)],
    "sgd": [0.1, 0.3, 1.0, 3.0],
}


def files(task: str, folder: Path) -> dict[str, Any]:
    if task == "translate":
        return {
            name: [SHARED / "multi30k" / f"{part}.{language}.gz" for language in ("en", "de")]
            for name, part in (("data", "train"), ("valid", "val"))
        }
    return {name: found for name, found in data(task, folder).items() if name in ("data", "valid")}


def loss(folder: Path) -> float:
    return float([line["valid"]["loss"] for line in RunFolder(folder).metrics() if "valid" in line][-1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=1, help="of each run")
    parser.add_argument("--only", nargs="+", default=list(RECIPES), choices=list(RECIPES))
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--output-dir", type=Path, default=Path("runs/optimizers"))
    given, more = parser.parse_known_args()
    print(f"{machine()}, seed {given.seed}, {given.minutes:g} minutes each: validation loss")
    for task in given.only:
        for kind, rates in RATES.items():
            told = []
            for rate in rates:
                folder = given.output_dir / f"{task}-{kind}-{rate:g}"
                recipe = RECIPES[task] | files(task, given.output_dir / "data")
                how = {"optimizer": kind, "lr": rate, "minutes": given.minutes, "evals": 1, "seed": given.seed}
                trained(task, folder, recipe | how, more)
                told.append(f"{rate:.5f}: {loss(folder):.3f}")
            print(f"{task:<10}{kind:<7}{'   '.join(told)}", flush=True)


if __name__ == "__main__":
    main()
