"""What an experiment finds: a figure, a table, a few sentences, and whether the lecture's claim held."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor

from regard.choose import must

Each = Callable[[Sequence[Any]], Iterator[Any]]  # gives the items on, one by one, and shows how far it is
Row = dict[str, str | float]
Numbers = Sequence[float] | Tensor


class Finding(NamedTuple):
    figure: Figure
    table: list[Row]  # with the same keys
    says: str  # what is seen, with the numbers of this run
    wanted: str  # what the lecture says will be seen
    holds: bool  # whether it was


def quietly(items: Sequence[Any]) -> Iterator[Any]:
    """An `Each` that shows nothing."""
    yield from items


def at_least(least: int, knobs: object, *names: str) -> None:
    """Refuse the first of these knobs that is below `least`."""
    must(knobs, **{name: (getattr(knobs, name) >= least, f"at least {least}") for name in names})


def rows(*columns: Mapping[str, Iterable[str | float]]) -> list[Row]:
    """A table, from its columns by name."""
    named = {name: column for some in columns for name, column in some.items()}
    return [dict(zip(named, row, strict=True)) for row in zip(*named.values(), strict=True)]


def under(title: str, columns: Mapping[str, Iterable[float]]) -> dict[str, Iterable[float]]:
    """The same columns, with a title that they share before their names."""
    return {f"{title}, {name}": column for name, column in columns.items()}


def per_step(sizes: Sequence[float], since: int) -> float:
    """The factor of one step, where sizes grow or shrink from one of them to the last; nan of nothing."""
    first, last = torch.tensor((sizes[since], sizes[-1]), dtype=torch.float64)
    return ((last / first) ** (1 / (len(sizes) - 1 - since))).item()


def of_the_first(sizes: Tensor) -> list[float]:
    """As multiples of the first; of nothing, nothing."""
    return (sizes / sizes[0] if sizes[0] else 0 * sizes).tolist()


def drawing(columns: int = 1, height: float = 3.2) -> tuple[Figure, list[Axes]]:
    """An empty figure with so many axes side by side."""
    figure = Figure(figsize=(1.5 + 3.6 * columns, height), layout="constrained")
    axes = list(figure.subplots(1, columns, squeeze=False)[0])
    for one in axes:
        one.spines[["top", "right"]].set_visible(False)
    return figure, axes


def curves(axes: Axes, x: Numbers, found: Mapping[str, Numbers], styles: Mapping[str, str], **more: Any) -> None:
    """Draw each curve in its style and under its name. `more` is what `Axes.set` takes: labels, scales, limits.

    A logarithmic x axis is marked where something was measured, and nowhere else.
    """
    for name, y in found.items():
        axes.plot(x, y, styles[name], markersize=4, markevery=1 + len(x) // 10, label=name)
    axes.set(**more)
    if axes.get_xscale() == "log":
        axes.set_xticks(x, [f"{place:g}" for place in x])
        axes.minorticks_off()


def densities(axes: Axes, found: Mapping[str, Tensor], styles: Mapping[str, str], widest: float) -> None:
    """How numbers are spread from minus `widest` to it, beside a normal distribution of mean 0 and spread 1."""
    edges = np.linspace(-widest, widest, 97)
    middle = (edges[1:] + edges[:-1]) / 2
    axes.plot(middle, np.exp(-(middle**2) / 2) / np.sqrt(2 * np.pi), "k-", label="normal")
    for name, numbers in found.items():
        density, _ = np.histogram(numbers.numpy(), edges, density=True)
        axes.plot(middle[density > 0], density[density > 0], styles[name], markersize=2.5, label=name)
    axes.set(yscale="log", ylabel="density")


def legend_below(figure: Figure, axes: Axes, columns: int = 3) -> None:
    """One legend for a figure whose axes all show what these do."""
    figure.legend(*axes.get_legend_handles_labels(), loc="outside lower center", ncols=columns, frameon=False)


def grid(
    axes: Axes, numbers: Tensor, most: float, rows: Sequence[str], columns: Sequence[str], title: str, hidden: str = ""
) -> None:
    """A table of numbers, on a ground from white for 0 to dark for `most`. What is `hidden` stands for those that lie
    above the diagonal."""
    axes.imshow(numbers.numpy(), cmap="Blues", aspect="auto", vmin=0, vmax=most)
    for (row, column), number in np.ndenumerate(numbers.numpy()):
        told = hidden if hidden and column > row else f"{number:z.2f}"
        colour = "white" if number > 0.6 * most else "black"
        axes.text(column, row, told, ha="center", va="center", color=colour, fontsize=9)
    axes.set_xticks(range(len(columns)), columns)
    axes.set_yticks(range(len(rows)), rows)
    axes.set_title(title)
