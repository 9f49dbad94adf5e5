"""Result of an experiment: a figure, a table, a summary, and whether the lecture's claim holds; tables and plots."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple, Protocol, TypeVar

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor

Item = TypeVar("Item")
Row = dict[str, str | float]
Numbers = Sequence[float] | Tensor


class Tracker(Protocol):
    """Yields the items and shows progress."""

    def __call__(self, items: Sequence[Item], /) -> Iterator[Item]: ...


class LabResult(NamedTuple):
    figure: Figure
    table: list[Row]  # with the same keys
    summary: str  # the measurements of this run
    expected: str  # the prediction of the lecture
    holds: bool  # whether the measurements agree


def no_progress(items: Sequence[Item]) -> Iterator[Item]:
    """A `Tracker` that shows nothing."""
    yield from items


def table_rows(*columns: Mapping[str, Iterable[str | float]]) -> list[Row]:
    """Rows of a table from its columns."""
    by_name = {name: column for group in columns for name, column in group.items()}
    return [dict(zip(by_name, row, strict=True)) for row in zip(*by_name.values(), strict=True)]


def prefixed(title: str, columns: Mapping[str, Iterable[float]]) -> dict[str, Iterable[float]]:
    """The same columns with a common prefix in their names."""
    return {f"{title}, {name}": column for name, column in columns.items()}


def growth_per_step(sizes: Sequence[float], since: int) -> float:
    """The geometric mean growth factor from index `since` to the last; NaN if the size there is 0."""
    first, last = torch.tensor((sizes[since], sizes[-1]), dtype=torch.float64)
    return ((last / first) ** (1 / (len(sizes) - 1 - since))).item()


def relative_to_first(sizes: Tensor) -> list[float]:
    """Sizes divided by the first; 0 if the first is 0."""
    return (sizes / sizes[0] if sizes[0] else 0 * sizes).tolist()


def subplots(columns: int = 1, height: float = 3.2) -> tuple[Figure, list[Axes]]:
    """An empty figure with this many axes side by side."""
    figure = Figure(figsize=(1.5 + 3.6 * columns, height), layout="constrained")
    axes = list(figure.subplots(1, columns, squeeze=False)[0])
    for axis in axes:
        axis.spines[["top", "right"]].set_visible(False)
    return figure, axes


def plot_curves(
    axes: Axes, x: Numbers, lines: Mapping[str, Numbers], styles: Mapping[str, str], **settings: object
) -> None:
    """Plot each line with its style and its name as label. `settings` go to `Axes.set`: labels, scales, limits.

    A logarithmic x axis has ticks at the measured values only.
    """
    for name, y in lines.items():
        axes.plot(x, y, styles[name], markersize=4, markevery=1 + len(x) // 10, label=name)
    axes.set(**settings)
    if axes.get_xscale() == "log":
        axes.set_xticks(x, [f"{tick:g}" for tick in x])
        axes.minorticks_off()


def plot_densities(axes: Axes, samples: Mapping[str, Tensor], styles: Mapping[str, str], limit: float) -> None:
    """Histograms from -`limit` to `limit`, with the density of the standard normal distribution."""
    edges = np.linspace(-limit, limit, 97)
    middle = (edges[1:] + edges[:-1]) / 2
    axes.plot(middle, np.exp(-(middle**2) / 2) / np.sqrt(2 * np.pi), "k-", label="normal")
    for name, numbers in samples.items():
        density, _ = np.histogram(numbers.numpy(), edges, density=True)
        axes.plot(middle[density > 0], density[density > 0], styles[name], markersize=2.5, label=name)
    axes.set(yscale="log", ylabel="density")


def legend_below(figure: Figure, axes: Axes, columns: int = 3) -> None:
    """One legend for a figure whose axes all show the same lines."""
    figure.legend(*axes.get_legend_handles_labels(), loc="outside lower center", ncols=columns, frameon=False)


def plot_table(
    axes: Axes,
    numbers: Tensor,
    maximum: float,
    table_rows: Sequence[str],
    columns: Sequence[str],
    title: str,
    hidden: str = "",
) -> None:
    """A table of numbers on a background from white (0) to dark (`maximum`). `hidden` replaces the numbers above the
    diagonal."""
    axes.imshow(numbers.numpy(), cmap="Blues", aspect="auto", vmin=0, vmax=maximum)
    for (row, column), number in np.ndenumerate(numbers.numpy()):
        text = hidden if hidden and column > row else f"{number:z.2f}"
        colour = "white" if number > 0.6 * maximum else "black"
        axes.text(column, row, text, ha="center", va="center", color=colour, fontsize=9)
    axes.set_xticks(range(len(columns)), columns)
    axes.set_yticks(range(len(table_rows)), table_rows)
    axes.set_title(title)
