"""What an experiment finds: a figure, a table, a few sentences, and whether the lecture's claim held."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor

Each = Callable[[Sequence[Any]], Iterator[Any]]  # gives the items on, one by one, and shows how far it is
Row = dict[str, str | float]


class Finding(NamedTuple):
    figure: Figure
    table: list[Row]  # with the same keys
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


def curves(
    axes: Axes, x: Sequence[float], found: Mapping[str, Sequence[float]], styles: Mapping[str, str], **more: Any
) -> None:
    """Draw each curve in its style and under its name. `more` is what `Axes.set` takes: labels, scales, limits."""
    for name, y in found.items():
        axes.plot(x, y, styles[name], markersize=4, markevery=1 + len(x) // 10, label=name)
    axes.set(**more)


def tick(axes: Axes, *places: float) -> None:
    """Mark the x axis where something was measured, and nowhere else."""
    axes.set_xticks(places, [f"{place:g}" for place in places])
    axes.minorticks_off()


def legend_below(figure: Figure, axes: Axes, columns: int = 3) -> None:
    """One legend for a figure whose axes all show what these do."""
    figure.legend(*axes.get_legend_handles_labels(), loc="outside lower center", ncols=columns, frameon=False)


def grid(
    axes: Axes, shades: Tensor, most: float, told: list[list[str]], rows: Sequence[str], columns: Sequence[str]
) -> None:
    """A table whose cells say what is told, on a ground from white for 0 to dark for `most`."""
    axes.imshow(shades.numpy(), cmap="Blues", aspect="auto", vmin=0, vmax=most)
    for (row, column), shade in np.ndenumerate(shades.numpy()):
        colour = "white" if shade > 0.6 * most else "black"
        axes.text(column, row, told[row][column], ha="center", va="center", color=colour, fontsize=9)
    axes.set_xticks(range(len(columns)), columns)
    axes.set_yticks(range(len(rows)), rows)
