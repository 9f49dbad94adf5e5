"""What an experiment finds: a figure, a table, a few sentences, and whether the lecture's claim held."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from matplotlib.axes import Axes
from matplotlib.figure import Figure

Each = Callable[[Sequence[Any]], Iterator[Any]]  # gives the items on, one by one, and shows how far it is


class Finding(NamedTuple):
    figure: Figure
    table: list[dict[str, str | float]]  # rows with the same keys
    says: str  # what is seen, with the numbers of this run
    wanted: str  # what the lecture says will be seen
    holds: bool  # whether it was


def quietly(items: Sequence[Any]) -> Iterator[Any]:
    """An `Each` that shows nothing."""
    yield from items


def drawing(columns: int = 1, height: float = 3.2) -> tuple[Figure, list[Axes]]:
    """An empty figure with so many axes side by side."""
    figure = Figure(figsize=(1.5 + 3.6 * columns, height), layout="constrained")
    axes = list(figure.subplots(1, columns, squeeze=False)[0])
    for one in axes:
        one.spines[["top", "right"]].set_visible(False)
    return figure, axes
