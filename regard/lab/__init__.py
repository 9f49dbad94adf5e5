"""The lectures as a laboratory: each claim of the source decks as an experiment that can fail."""

from __future__ import annotations

from importlib import import_module
from types import ModuleType

# In the order of the lectures; the docstring of each file has the details.
EXPERIMENTS = (
    "linear", "backward", "width", "growth", "depth",  # networks
    "gradients", "recall", "parallel", "bottleneck", "party", "doors", "ball",  # memory
    "softmax", "saturation", "mask", "kernel", "heads", "lengths",  # attention
    "beam",  # decoding
)  # fmt: skip


def experiment(name: str) -> ModuleType:
    """Its module: a docstring, a dataclass of options, QUICK (options for tests) and run(options, track)."""
    return import_module(f"regard.lab.{name}")


def options_class(name: str) -> type:
    return type(experiment(name).QUICK)


def claim(name: str) -> str:
    """The question of an experiment, in one line."""
    return str(experiment(name).__doc__).splitlines()[0].removeprefix(f"{name}: ")
