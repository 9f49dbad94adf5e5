"""History of a run from its metrics.jsonl: a tab of losses, learning rates and gradient norms; figures of losses and
returns."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from regard.atomic import replace_file
from regard.json_files import MAX_METRICS
from regard.training.run_folder import RunFolder
from regard.view.page import Tab

METRICS = ("bleu", "f1", "accuracy", "recall_at_1")  # in percent; the first that was logged is plotted beside the loss
MAX_POINTS = 500  # of a curve; more than a screen can show


def training_tab(folder: Path) -> Tab | None:
    """For a run folder that has logged a step; a point of a long run is the mean of consecutive steps."""
    metrics = RunFolder(folder).metrics(MAX_METRICS)
    steps = [line for line in metrics if "loss" in line]
    if not steps:
        return None
    width = math.ceil(len(steps) / MAX_POINTS)
    chunks = [steps[i : i + width] for i in range(0, len(steps), width)]
    return {
        "kind": "training",
        "title": "Training",
        "description": "The loss falls fast, then slowly; the validation loss rises again when the model overfits. A "
        "module whose gradient norm is far below the others hardly trains.",
        "steps": [chunk[-1]["step"] for chunk in chunks],
        "loss": [mean([line["loss"] for line in chunk]) for chunk in chunks],
        "lr": [chunk[-1]["lr"] for chunk in chunks],
        "gradNorm": [mean([line["grad_norm"] for line in chunk]) for chunk in chunks],
        "valid": [{"step": line["step"], **line["valid"]} for line in metrics if "valid" in line],
        "moduleNorms": module_norms(chunks),
    }


def module_norms(chunks: list[list[dict[str, Any]]]) -> dict[str, list[float]]:
    """The gradient norm of each module, as last logged at the end of each chunk."""
    if "module_grad_norms" not in chunks[0][0]:  # a run of an older version
        return {}
    norms: dict[str, float] = chunks[0][0]["module_grad_norms"]
    curves: dict[str, list[float]] = {module: [] for module in norms}
    for chunk in chunks:
        for line in chunk:
            norms = line.get("module_grad_norms", norms)
        for module, curve in curves.items():
            curve.append(norms.get(module, 0.0))
    return curves


def mean(values: list[float]) -> float:
    return round(sum(values) / len(values), 6)


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


def save_return_curves(metrics: list[dict[str, Any]], file: Path) -> None:
    """What the model predicted, and what the environment gave."""
    figure = Figure(figsize=(7, 4), layout="constrained")
    plot_returns(figure.subplots(), metrics)
    replace_file(file, lambda temporary: figure.savefig(temporary, dpi=120))


def plot_returns(axes: Axes, metrics: list[dict[str, Any]]) -> None:
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
