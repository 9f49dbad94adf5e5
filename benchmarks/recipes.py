"""Shared by the benchmarks of trained models: train by a recipe, or load a finished run, and read its training time.

A recipe maps options of `regard train` to their values: texts, numbers, lists of files, or True for a flag.
"""

from __future__ import annotations

import argparse
import platform
from collections.abc import Mapping, Sequence
from keyword import iskeyword
from pathlib import Path
from typing import Any

import torch

from regard.cli.train import main as train
from regard.load import load
from regard.loaded_model import LoadedModel
from regard.training.run_folder import RunFolder


def parse_args(
    description: str, minutes: float, output_dir: str, only: Sequence[str] = ()
) -> tuple[argparse.Namespace, list[str]]:
    """The benchmark's own options, and all other arguments, which go to `regard train`."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=minutes, help="training time of each run")
    parser.add_argument(
        "-o",
        "--output-dir",
        type=Path,
        default=output_dir,
        help="folder of the runs; a finished run is not trained again",
    )
    parser.add_argument("--seed", type=int, default=1)
    if only:
        parser.add_argument("--only", nargs="+", default=only, choices=only, help="parts of this benchmark to run")
    return parser.parse_known_args()


def train_or_load(task: str, folder: Path, recipe: Mapping[str, Any], extra: list[str]) -> LoadedModel:
    """The model of the finished run in `folder`, trained by the recipe if there is none."""
    if not (folder / "README.md").exists():
        args = [task, "--output-dir", str(folder)]
        for option, value in recipe.items():
            args.append(option)
            args += [] if value is True else [str(v) for v in value] if isinstance(value, list) else [str(value)]
        if train([*args, *extra]):
            raise SystemExit(1)
    return load(folder)


def keywords(recipe: Mapping[str, Any]) -> dict[str, Any]:
    """The recipe as keyword arguments of `regard.train`."""
    names = {option: option.removeprefix("--").replace("-", "_") for option in recipe}
    return {f"{name}_" if iskeyword(name) else name: recipe[option] for option, name in names.items()}


def training_seconds(folder: Path) -> float:
    """Total time of the training steps of a run."""
    return float(sum(line["seconds"] for line in RunFolder(folder).metrics() if "seconds" in line))


def describe_machine() -> str:
    return (
        f"{platform.processor() or platform.machine()}, {torch.get_num_threads()} threads, PyTorch {torch.__version__}"
    )
