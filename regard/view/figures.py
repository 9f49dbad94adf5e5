"""Still pictures of what the page shows: the grid of heads, one head opened, the guesses after every block."""

from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from regard.atomic import naming
from regard.view.attention_maps import Map
from regard.view.logit_lens import Stream

SMALLEST, LARGEST = 2.0, 40.0  # inches


def stills(maps: list[Map], stream: Stream | None, page: Path) -> list[Path]:
    """Written beside the page, with its name in front of theirs."""
    written = []

    def keep(figure: Figure, name: str) -> None:
        file = page.with_name(f"{page.stem}-{name}.png")
        with naming(file), warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Glyph")  # a letter that the font lacks is drawn as a box
            figure.savefig(file, dpi=130)
        written.append(file)

    for one in maps:
        keep(heads_picture(one), f"{one.name}-heads")
        keep(map_picture(one), f"{one.name}-map")
    if stream is not None and stream.lens is not None:
        keep(lens_picture(stream), "lens")
    return written


def bare(pieces: list[str]) -> list[str]:
    """Without the marks of where a word begins or goes on."""
    return [piece.lstrip("▁Ġ").removeprefix("##").replace("Ċ", "⏎") or "␣" for piece in pieces]


def inches(cells: int, each: float) -> float:
    """Of a picture with room for its title that fits into memory, whatever the length of the text."""
    return max(SMALLEST, min(cells * each, LARGEST))


def heads_picture(one: Map) -> Figure:
    """Every head small, a row for each layer."""
    L, H = one.weights.shape[:2]
    figure = Figure(figsize=(0.6 + inches(H, 0.9), 0.6 + inches(L, 0.9)), layout="constrained")
    for (layer, head), axes in np.ndenumerate(figure.subplots(L, H, squeeze=False)):
        axes.imshow(one.weights[layer, head], cmap="Blues", vmin=0, vmax=1, aspect="auto")
        axes.set_xticks([])
        axes.set_yticks([])
        if layer == 0:
            axes.set_title(f"head {head + 1}", fontsize=7)
        if head == 0:
            axes.set_ylabel(f"layer {layer + 1}", fontsize=7)
        if (layer, head) == one.start[:2]:
            axes.spines[:].set(color="tab:orange", linewidth=2)
    return figure


def map_picture(one: Map) -> Figure:
    """The head that the page starts with."""
    weights = one.weights[one.start.layer, one.start.head]
    T, S = weights.shape
    figure = Figure(figsize=(1.8 + inches(S, 0.45), 1.4 + inches(T, 0.36)), layout="constrained")
    axes = figure.subplots()
    axes.imshow(weights, cmap="Blues", vmin=0, vmax=1, aspect="auto")
    # A token may hold dollar signs, which are no formula.
    axes.set_xticks(
        range(S), bare(one.answers.pieces), rotation=45, ha="left", rotation_mode="anchor", parse_math=False
    )
    axes.xaxis.tick_top()
    axes.set_yticks(range(T), bare(one.asks.pieces), parse_math=False)
    for (row, column), weight in np.ndenumerate(weights):
        if weight >= 0.1:
            colour = "w" if weight > 0.5 else "k"
            axes.text(column, row, f"{weight:.1f}", ha="center", va="center", fontsize=7, color=colour)
    axes.set_title(one.found or f"layer {one.start.layer + 1}, head {one.start.head + 1}", fontsize=9, parse_math=False)
    return figure


def lens_picture(stream: Stream) -> Figure:
    """The best guess after every block, the last block on top; the darker, the surer."""
    assert stream.lens is not None
    best = [bare([guesses[0][0] for guesses in row]) for row in stream.lens]
    sure = np.array([[guesses[0][1] for guesses in row] for row in stream.lens])
    size = 1.8 + inches(sure.shape[1], 0.75), 1.4 + inches(sure.shape[0], 0.36)
    figure = Figure(figsize=size, layout="constrained")
    axes = figure.subplots()
    axes.imshow(sure, cmap="Greens", vmin=0, vmax=1, aspect="auto", origin="lower")
    axes.set_xticks(
        range(sure.shape[1]), bare(stream.tokens), rotation=45, ha="right", rotation_mode="anchor", parse_math=False
    )
    axes.set_yticks(range(sure.shape[0]), stream.layers)
    for (row, column), p in np.ndenumerate(sure):
        colour = "w" if p > 0.5 else "k"
        axes.text(column, row, best[row][column], ha="center", va="center", fontsize=7, color=colour, parse_math=False)
    axes.set_title("its guess after each block", fontsize=9)
    return figure
