"""The lectures as a laboratory: each claim of the source decks as an experiment that can fail."""

from __future__ import annotations

from importlib import import_module
from typing import Any

# In the order of the lectures; the docstring of each file tells the rest.
EXPERIMENTS = (
    "linear", "backward", "width", "growth", "depth",  # networks
    "gradients", "recall", "parallel", "bottleneck", "party", "doors", "ball",  # memory
    "softmax", "saturation", "mask", "kernel", "heads", "lengths",  # attention
    "beam",  # writing
)  # fmt: skip


def experiment(name: str) -> Any:
    """Its module: a docstring, Knobs, QUICK, and run(knobs, each)."""
    return import_module(f"regard.lab.{name}")


def claim(name: str) -> str:
    """What is asked, in one line."""
    return str(experiment(name).__doc__).splitlines()[0].removeprefix(f"{name}: ")
