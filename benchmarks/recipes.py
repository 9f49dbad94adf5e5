"""What the benchmarks of trained models share: train by a recipe, or take a finished run, and tell how long it was."""

from __future__ import annotations

import argparse
import platform
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from regard.cli.train import main as train
from regard.load import LoadedModel, load
from regard.training.run import Run


def options(about: str, minutes: float, out: str, only: Sequence[str] = ()) -> tuple[argparse.Namespace, list[str]]:
    """--minutes, --out and --seed, and whatever else is meant for regard train."""
    parser = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=minutes, help="of training, each run")
    parser.add_argument("--out", default=out, help="folder of the runs; a finished one is measured, not trained again")
    parser.add_argument("--seed", type=int, default=1)
    if only:
        parser.add_argument("--only", nargs="+", default=only, choices=only, help="of the parts of this benchmark")
    return parser.parse_known_args()


def trained(task: str, folder: Path, recipe: Mapping[str, Any], more: list[str]) -> LoadedModel:
    """A finished run in `folder`. Values of the recipe are texts, numbers, lists of files, or True."""
    if not (folder / "README.md").exists():
        args = [task, "--out", str(folder)]
        for name, value in recipe.items():
            args.append(f"--{name}")
            args += [] if value is True else [str(v) for v in value] if isinstance(value, list) else [str(value)]
        if train([*args, *more]):
            raise SystemExit(1)
    return load(folder)


def seconds(folder: Path) -> float:
    """That the steps of a run took."""
    return float(sum(line["seconds"] for line in Run(folder).metrics() if "seconds" in line))


def machine() -> str:
    return (
        f"{platform.processor() or platform.machine()}, {torch.get_num_threads()} threads, PyTorch {torch.__version__}"
    )
