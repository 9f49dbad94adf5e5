"""Anything that reads or writes tokens: our model, or the same folder in another program.

All are asked alike: rows of ids in, ids or numbers out. So a check that they agree, and a clock, are written once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

from torch import Tensor

from regard.check.compare import POOLED_TASKS
from regard.check.probes import ModelInputs
from regard.load import Loaded

Rows = Sequence[Sequence[int]]
PACKAGES = {"llama_cpp": "llama-cpp-python"}  # where they are not called as what they hold


class Runner(NamedTuple):
    name: str
    numbers: str  # fp32 or int8: what its weights are made of
    write: Callable[[Rows, int, int], list[list[int]]] | None = None  # rows, new tokens, beam -> the new tokens
    read: Callable[[ModelInputs], Tensor] | None = None  # what the model makes of a batch
    extra: int = 0  # steps that it does beyond those that were asked for

    @property
    def title(self) -> str:
        return f"{self.name} {self.numbers}"


class Asked(NamedTuple):
    """What a peer has to know to open a folder."""

    folder: Path
    loaded: Loaded  # as we read it
    threads: int
    room: Path  # where it may write what it makes of the folder


def installed(*modules: str) -> str:
    """Nothing if all are there, else what to do."""
    missing = [PACKAGES.get(module, module) for module in modules if find_spec(module) is None]
    return f"not installed: pip install {' '.join(missing)}" if missing else ""


def family_of(loaded: Loaded) -> str:
    """As config.json calls it."""
    return str(loaded.origin.config.get("model_type", "")) if loaded.origin else ""


def answer(loaded: Loaded, hidden: Tensor, mask: Tensor | None) -> Tensor:
    """What our head makes of another program's vectors (B,T,D)."""
    head = loaded.model.head
    return head(hidden, mask) if isinstance(loaded.task, POOLED_TASKS) else head(hidden)
