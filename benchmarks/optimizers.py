"""SGD, AdamW and Muon, each at several learning rates, in equal minutes: validation loss.

    python benchmarks/optimizers.py [--minutes 1] [--only tag ...] [-o runs/optimizers]

Learning rates of AdamW and Muon are multiples of the default, 0.64 / dim; SGD has its own. The loss is that of the
validation set after the last step. Data: tinyshakespeare by characters (write), UD English EWT (tag), CLINC150
(classify), Multi30k (translate).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from corpus import SHARED
from family import data_options
from recipes import describe_machine, parse_args, train_or_load

from regard.training.run_folder import RunFolder

DIM = 128
RECIPES: dict[str, dict[str, Any]] = {
    "write": {
        "--model": "nanochat", "--context": 64, "--batch-tokens": 1024, "--tokenizer": "characters",
        "--eval-examples": 50_000,
    },
    "tag": {"--model": "bert", "--size": "tiny"},
    "classify": {"--model": "bert", "--size": "tiny", "--dropout": 0.3, "--vocab-size": 2000},
    "translate": {"--model": "transformer", "--size": "tiny", "--vocab-size": 4000, "--eval-examples": 200},
}  # fmt: skip
LEARNING_RATES = {
    "muon": [x * 0.64 / DIM for x in (0.25, 0.5, 1, 2)],
    "adamw": [x * 0.64 / DIM for x in (0.125, 0.25, 0.5, 1, 2)],
    "sgd": [0.1, 0.3, 1.0, 3.0],
}


def data_files(task: str, folder: Path) -> dict[str, Any]:
    if task == "translate":
        return {
            option: [SHARED / "multi30k" / f"{split}.{language}.gz" for language in ("en", "de")]
            for option, split in (("--data", "train"), ("--valid", "val"))
        }
    return {option: files for option, files in data_options(task, folder).items() if option in ("--data", "--valid")}


def final_loss(folder: Path) -> float:
    return float([line["valid"]["loss"] for line in RunFolder(folder).metrics() if "valid" in line][-1])


def main() -> None:
    args, extra = parse_args(str(__doc__), 1, "runs/optimizers", only=list(RECIPES))
    print(f"{describe_machine()}, seed {args.seed}, {args.minutes:g} minutes each: validation loss by learning rate")
    for task in args.only:
        for optimizer, rates in LEARNING_RATES.items():
            losses = []
            for rate in rates:
                folder = args.output_dir / f"{task}-{optimizer}-{rate:g}"
                recipe = RECIPES[task] | data_files(task, args.output_dir / "data")
                budget = {"--minutes": args.minutes, "--evals": 1, "--seed": args.seed}
                train_or_load(task, folder, recipe | budget | {"--optimizer": optimizer, "--lr": rate}, extra)
                losses.append(f"{rate:.5f}: {final_loss(folder):.3f}")
            print(f"{task:<10}{optimizer:<7}{'   '.join(losses)}", flush=True)


if __name__ == "__main__":
    main()
