"""PNG figures of the page: the grid of heads, one head enlarged, and the logit lens."""

from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from regard.atomic import path_in_errors
from regard.view.attention_maps import AttentionMap
from regard.view.logit_lens import LogitLens
from regard.view.word_attention import Floats, Matrix

MIN_SIZE, MAX_SIZE = 2.0, 40.0  # inches


def save_figures(maps: list[AttentionMap], lens: LogitLens | None, page: Path) -> list[Path]:
    """Write PNG files beside the page; their names start with its name."""
    files = []

    def save(figure: Figure, name: str) -> None:
        file = page.with_name(f"{page.stem}-{name}.png")
        with path_in_errors(file), warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Glyph")  # a character that the font lacks is drawn as a box
            figure.savefig(file, dpi=130)
        files.append(file)

    for attention in maps:
        save(heads_figure(attention), f"{attention.name}-heads")
        save(map_figure(attention), f"{attention.name}-map")
    if lens is not None and lens.predictions is not None:
        save(lens_figure(lens), "lens")
    return files


def strip_markers(tokens: list[str]) -> list[str]:
    """Tokens without the markers that begin or continue a word."""
    return [token.lstrip("▁Ġ").removeprefix("##").replace("Ċ", "⏎") or "␣" for token in tokens]


def inches(cells: int, per_cell: float) -> float:
    """A size with room for the title that fits into memory for any length of text."""
    return max(MIN_SIZE, min(cells * per_cell, MAX_SIZE))


def plot_weights(axes: Axes, weights: Floats | Matrix, rows: list[str], columns: list[str], fontsize: int) -> None:
    """A table of weights; those of at least 0.1 as numbers. A name may hold dollar signs, which are no formula."""
    axes.imshow(weights, cmap="Blues", vmin=0, vmax=1, aspect="auto")
    axes.set_xticks(range(len(columns)), columns, rotation=45, ha="left", rotation_mode="anchor", parse_math=False)
    axes.xaxis.tick_top()
    axes.set_yticks(range(len(rows)), rows, parse_math=False)
    for (row, column), weight in np.ndenumerate(weights):
        if weight >= 0.1:
            colour = "w" if weight > 0.5 else "k"
            axes.text(column, row, f"{weight:.1f}", ha="center", va="center", fontsize=fontsize, color=colour)


def heads_figure(attention: AttentionMap) -> Figure:
    """Every head as a small map, one row per layer."""
    L, H = attention.weights.shape[:2]
    figure = Figure(figsize=(0.6 + inches(H, 0.9), 0.6 + inches(L, 0.9)), layout="constrained")
    for (layer, head), axes in np.ndenumerate(figure.subplots(L, H, squeeze=False)):
        axes.imshow(attention.weights[layer, head], cmap="Blues", vmin=0, vmax=1, aspect="auto")
        axes.set_xticks([])
        axes.set_yticks([])
        if layer == 0:
            axes.set_title(f"head {head + 1}", fontsize=7)
        if head == 0:
            axes.set_ylabel(f"layer {layer + 1}", fontsize=7)
        if (layer, head) == attention.initial[:2]:
            axes.spines[:].set(color="tab:orange", linewidth=2)
    return figure


def map_figure(attention: AttentionMap) -> Figure:
    """The head that the page opens with."""
    initial = attention.initial
    weights = attention.weights[initial.layer, initial.head]
    T, S = weights.shape
    figure = Figure(figsize=(1.8 + inches(S, 0.45), 1.4 + inches(T, 0.36)), layout="constrained")
    axes = figure.subplots()
    plot_weights(axes, weights, strip_markers(attention.queries.tokens), strip_markers(attention.keys.tokens), 7)
    axes.set_title(
        attention.highlight or f"layer {initial.layer + 1}, head {initial.head + 1}", fontsize=9, parse_math=False
    )
    return figure


def lens_figure(lens: LogitLens) -> Figure:
    """The most probable prediction after every block, the last block on top; the darker, the more probable."""
    assert lens.predictions is not None
    best = [strip_markers([predictions[0][0] for predictions in row]) for row in lens.predictions]
    probability = np.array([[predictions[0][1] for predictions in row] for row in lens.predictions])
    rows, columns = probability.shape
    figure = Figure(figsize=(1.8 + inches(columns, 0.75), 1.4 + inches(rows, 0.36)), layout="constrained")
    axes = figure.subplots()
    axes.imshow(probability, cmap="Greens", vmin=0, vmax=1, aspect="auto", origin="lower")
    axes.set_xticks(
        range(columns), strip_markers(lens.tokens), rotation=45, ha="right", rotation_mode="anchor", parse_math=False
    )
    axes.set_yticks(range(rows), lens.layers)
    for (row, column), p in np.ndenumerate(probability):
        colour = "w" if p > 0.5 else "k"
        axes.text(column, row, best[row][column], ha="center", va="center", fontsize=7, color=colour, parse_math=False)
    axes.set_title("logit lens: prediction after each block", fontsize=9)
    return figure
