"""What every task answers: head, prepare, batch, loss, score and predict."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy.typing as npt
from torch import Tensor

from regard.parts.heads import Model


@dataclass(frozen=True)
class Loss:
    """A *sum* over `count` units, so that accumulated parts add up to the whole batch."""

    total: Tensor
    count: int


class Task(Protocol):
    needs: str  # what a body must have, for a readable error
    counts: str  # the unit of speed

    def head(self, body: Any) -> Model: ...
    def prepare(self, raw: Any) -> Any: ...
    def batch(self, examples: Any, rows: npt.NDArray[Any]) -> Any: ...
    def loss(self, model: Model, batch: Any) -> Loss: ...
    def rank(self, scores: dict[str, Any]) -> tuple[float, ...]: ...  # which weights are kept; more is better
    def score(self, model: Model, raw: Any, how: Any) -> dict[str, Any]: ...
    def predict(self, model: Model, raw: Any, how: Any) -> Any: ...
