"""The interface of a backend: our model, or another program that reads the same folder.

Rows of ids in, ids or logits out, so that agreement and time are measured alike for all.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

from torch import Tensor

from regard.check.compare import model_outputs, with_body
from regard.loaded_model import LoadedModel
from regard.tasks.task import Batch

TokenRows = Sequence[Sequence[int]]
PACKAGES = {"llama_cpp": "llama-cpp-python"}  # module -> pip name, where they differ


class Backend(NamedTuple):
    name: str
    precision: str  # of the weights: fp32 or int8; ours: exact or int8
    generate: Callable[[TokenRows, int, int], list[list[int]]] | None = None  # rows, new tokens, beam -> the new tokens
    forward: Callable[[Batch], Tensor] | None = None
    extra_steps: int = 0  # decoding steps beyond the new tokens

    @property
    def title(self) -> str:
        return f"{self.name} {self.precision}"


class BackendArgs(NamedTuple):
    """What a peer needs to open a folder."""

    folder: Path
    loaded: LoadedModel  # the plain model
    threads: int
    workdir: Path  # for converted files


def install_hint(*modules: str) -> str:
    """How to install the missing ones; empty if none is missing."""
    missing = [PACKAGES.get(module, module) for module in modules if find_spec(module) is None]
    return f"not installed: pip install {' '.join(missing)}" if missing else ""


def model_type(loaded: LoadedModel) -> str:
    """model_type of config.json."""
    return str(loaded.origin.config.get("model_type", "")) if loaded.origin else ""


def apply_head(loaded: LoadedModel, hidden: Tensor, batch: Batch) -> Tensor:
    """Our head on the hidden states (B,T,D) of a peer."""
    return model_outputs(loaded, batch, with_body(loaded.model, lambda *inputs: hidden))
