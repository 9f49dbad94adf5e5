"""Times of a run on this machine: of a step, an evaluation and the test, measured on a model with random weights.

A large model is not built: one with a single block in each tower is measured, and one with two, at the true width. The
times are extended linearly in the FLOPs of a step, which are known (training/estimate.py).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from regard.data.documents import RowSet
from regard.device import resolve_device
from regard.training.build import memory_bytes
from regard.training.estimate import StepCost, StepEstimator, random_model, tower_layers
from regard.training.loop import Progress
from regard.training.time_budget import time_scoring, time_step, time_test

MAX_WHOLE_FLOPS = 3e11  # of a step: a larger model is measured by one and two blocks
TIMING_SECONDS = 5.0  # of steps, for each model
USABLE_MEMORY = 0.8  # share of the machine's memory


class StepTimes(NamedTuple):
    """Seconds."""

    step: float  # an average one
    evaluation: float
    test: float


def measure_times(
    estimator: StepEstimator, config: Any, cost: StepCost, valid: RowSet, test: RowSet | None
) -> tuple[StepTimes | None, bool]:
    """The times, and whether the whole model was measured. None if this machine has no memory for two of its blocks."""
    layers, accum = tower_layers(config), estimator.settings.train_options.grad_accum
    if cost.flops(accum) <= MAX_WHOLE_FLOPS or max(layers.values(), default=0) <= 2:
        fits = cost.memory.total <= USABLE_MEMORY * memory_bytes()
        return (time_model(estimator, config, valid, test) if fits else None), True
    shallow = [replace(config, **limited(layers, count)) for count in (1, 2)]
    costs = [estimator.cost(sizes) for sizes in shallow]
    if costs[1].memory.total > USABLE_MEMORY * memory_bytes():
        return None, False
    base, deeper = (np.array(time_model(estimator, sizes, valid, test)) for sizes in shallow)
    first, second, whole = (item.flops(accum) for item in (*costs, cost))
    times = base + np.maximum(deeper - base, 0) * (whole - first) / (second - first)
    return StepTimes(*times.tolist()), False


def limited(layers: Mapping[str, int], maximum: int) -> dict[str, int]:
    return {name: min(count, maximum) for name, count in layers.items()}


def time_model(estimator: StepEstimator, config: Any, valid: RowSet, test: RowSet | None) -> StepTimes:
    settings, task = estimator.settings, estimator.task
    model = random_model(settings, task, config).to(resolve_device(settings.run_options.device))
    trial, options = Progress.new(model, settings.train_options), settings.train_options
    seconds = time_step(trial, task, estimator.examples, options, TIMING_SECONDS)
    return StepTimes(seconds, time_scoring(model, task, valid), time_test(model, task, test) if test else 0.0)
