"""Returns over the rounds of somebody who acts: what the model expected of the policy, and what the world gave."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from regard.atomic import replace_file


def returns_by_round(metrics: list[dict[str, Any]], file: Path) -> None:
    figure = Figure(figsize=(7, 4), layout="constrained")
    rounds_on(figure.subplots(), metrics)
    replace_file(file, lambda hidden: figure.savefig(hidden, dpi=120))


def rounds_on(axes: Any, metrics: list[dict[str, Any]]) -> None:
    """Of a round in which no episode was finished there is only what one has brought so far: a hollow point."""
    rounds = [line for line in metrics if "obtained" in line]
    for whole, how in ((True, "o-"), (False, "o")):
        some = [(line["real_steps"], line["obtained"]) for line in rounds if bool(line["finished"]) == whole]
        label = "obtained in the world" if whole else "obtained so far"
        if some:
            axes.plot(*zip(*some, strict=True), how, color="tab:blue", mfc=None if whole else "white", label=label)
    expected = [(line["real_steps"], line["imagined"]) for line in rounds if "imagined" in line]
    if expected:
        axes.plot(*zip(*expected, strict=True), "s--", color="tab:orange", label="imagined before")
    axes.set_xlabel("real steps")
    axes.set_ylabel("return of an episode")
    axes.set_ylim(bottom=min([0.0, *(line["obtained"] for line in rounds)]))
    axes.grid(alpha=0.3)
    axes.legend(frameon=False)
