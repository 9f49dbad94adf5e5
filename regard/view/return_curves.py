"""Returns over the rounds of an RL session: what the model predicted, and what the environment gave."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from regard.atomic import replace_file


def save_return_curves(metrics: list[dict[str, Any]], file: Path) -> None:
    figure = Figure(figsize=(7, 4), layout="constrained")
    plot_returns(figure.subplots(), metrics)
    replace_file(file, lambda temporary: figure.savefig(temporary, dpi=120))


def plot_returns(axes: Any, metrics: list[dict[str, Any]]) -> None:
    """A round without a finished episode has only the return so far: a hollow point."""
    rounds = [line for line in metrics if "mean_return" in line]
    for finished, style in ((True, "o-"), (False, "o")):
        selected = [line for line in rounds if bool(line["finished_episodes"]) == finished]
        points = [(line["real_steps"], line["mean_return"]) for line in selected]
        label, face = ("real return", None) if finished else ("real return so far", "white")
        if points:
            axes.plot(*zip(*points, strict=True), style, color="tab:blue", mfc=face, label=label)
    predicted = [(line["real_steps"], line["predicted_return"]) for line in rounds if "predicted_return" in line]
    if predicted:
        axes.plot(*zip(*predicted, strict=True), "s--", color="tab:orange", label="predicted return")
    axes.set(xlabel="real steps", ylabel="return of an episode")
    axes.set_ylim(bottom=min([0.0, *(line["mean_return"] for line in rounds)]))
    axes.grid(alpha=0.3)
    axes.legend(frameon=False)
