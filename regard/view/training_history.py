"""What happened in a run, from its metrics.jsonl: loss, rate, the gradient's length in each part, and the checks."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

from regard.hub.files import METRICS
from regard.training.run import Run

POINTS = 500  # of a curve; more than a screen can show


def training_tab(folder: Path) -> dict[str, Any] | None:
    """Of a run folder that has logged a step; a point of a long run is the mean of a stretch of steps."""
    metrics = Run(folder).metrics(METRICS)
    steps = [line for line in metrics if "loss" in line]
    if not steps:
        return None
    wide = math.ceil(len(steps) / POINTS)
    stretches = [steps[i : i + wide] for i in range(0, len(steps), wide)]
    return {
        "kind": "training",
        "title": "Training",
        "says": "The loss falls fast, then slowly; that of validation rises again when the model learns by heart. The "
        "gradient of a part that is far below the others hardly teaches it.",
        "steps": [stretch[-1]["step"] for stretch in stretches],
        "loss": [mean([line["loss"] for line in stretch]) for stretch in stretches],
        "rate": [stretch[-1]["rate"] for stretch in stretches],
        "norm": [mean([line["norm"] for line in stretch]) for stretch in stretches],
        "valid": [{"step": line["step"], **line["valid"]} for line in metrics if "valid" in line],
        "layers": parts_over(stretches),
    }


def parts_over(stretches: list[list[dict[str, Any]]]) -> dict[str, list[float]]:
    """The gradient's length in each part, as last measured at the end of each stretch."""
    if "norms" not in stretches[0][0]:  # a run of an older version
        return {}
    now: dict[str, float] = stretches[0][0]["norms"]
    curves: dict[str, list[float]] = {part: [] for part in now}
    for stretch in stretches:
        for line in stretch:
            now = line.get("norms", now)
        for part, curve in curves.items():
            curve.append(now.get(part, 0.0))
    return curves


def mean(values: list[float]) -> float:
    return round(sum(values) / len(values), 6)
