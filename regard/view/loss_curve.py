"""Training and validation loss of a run, from metrics.jsonl."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from regard.atomic import replace_file

METRICS = ("bleu", "f1", "accuracy", "recall_at_1")  # in percent; the first that was logged is plotted beside the loss


def loss_curve(metrics: list[dict[str, Any]], file: Path) -> None:
    steps = [(m["step"], m["loss"]) for m in metrics if "loss" in m]
    evals = [(m["step"], m["valid"]) for m in metrics if "valid" in m]
    figure = Figure(figsize=(8, 4.5), layout="constrained")
    loss = figure.subplots()
    if steps:
        number, value = np.array(steps).T
        loss.plot(number, value, color="tab:blue", alpha=0.25, linewidth=0.8)
        window = max(1, len(value) // 50)
        smooth = np.convolve(value, np.ones(window) / window, "valid")
        loss.plot(number[window - 1 :], smooth, color="tab:blue", label="training")
    if evals:
        at = [step for step, _ in evals]
        loss.plot(at, [v["loss"] for _, v in evals], "o-", color="tab:orange", label="validation")
        names = [name for name in METRICS if name in evals[0][1]]
        if names:
            metric = loss.twinx()
            metric.plot(at, [v[names[0]] for _, v in evals], "s--", color="tab:green", label=f"validation {names[0]}")
            metric.set_ylabel(names[0])
            metric.set_ylim(0, 100)
    loss.set_xlabel("step")
    loss.set_ylabel("loss")
    loss.grid(alpha=0.3)
    if steps or evals:
        figure.legend(loc="outside lower center", ncols=3, frameon=False)
    replace_file(file, lambda hidden: figure.savefig(hidden, dpi=120))
