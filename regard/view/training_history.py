"""History of a run from its metrics.jsonl: loss, learning rate, gradient norms and evaluations."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

from regard.json_files import MAX_METRICS
from regard.training.run_folder import RunFolder

MAX_POINTS = 500  # of a curve; more than a screen can show


def training_tab(folder: Path) -> dict[str, Any] | None:
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
