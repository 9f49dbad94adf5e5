"""How long a run is: steps from epochs, or from minutes by timing this machine once."""

from __future__ import annotations

import time
from collections.abc import Sequence
from copy import deepcopy
from dataclasses import replace
from typing import Any

from regard.data.batches import epoch_of
from regard.generate import Decoding
from regard.parts.heads import Model
from regard.tasks.task import Task
from regard.training.loop import Plan, Progress, learn

SPARE = 0.96  # of the time left is planned for
MOST_CHECKING = 0.15  # of the time goes into validation


def steps_of(epochs: float, examples: Any, plan: Plan) -> int:
    return max(1, round(epochs * per_epoch(examples, plan)))


def per_epoch(examples: Any, plan: Plan) -> float:
    return len(epoch_of(examples.lengths, plan.batch_tokens, plan.seed, 0)) / plan.accumulate


def within(
    seconds: float,
    began: float,
    model: Model,
    task: Task,
    examples: Any,
    plan: Plan,
    checks: int,
    valid: Sequence[Any],
    test: Sequence[Any],
) -> tuple[int, int]:
    """The steps and checks that fit into so many seconds from `began`, with validating, saving and scoring the test."""
    trial = Progress.new(deepcopy(model), plan)
    step = seconds_of_a_step(trial, task, examples, plan, min(max(1.0, 0.03 * seconds), 20.0))
    check = seconds_of_scoring(trial.model, task, valid, Decoding(beam=1))
    final = seconds_of_scoring(trial.model, task, test[:50], Decoding()) * len(test) / 50 if test else 0.0
    checks = min(checks, max(1, int(MOST_CHECKING * seconds / check)))
    left = seconds - (time.perf_counter() - began) - check * (checks + 1) - final
    return max(1, int(SPARE * left / step)), checks


def seconds_of_a_step(trial: Progress, task: Task, examples: Any, plan: Plan, most: float) -> float:
    """Of an average one: what a target token costs, times the tokens of an average step."""
    endless = replace(plan, steps=10**9, warmup=1, rate=1e-9)
    began, times, counts = time.perf_counter(), [], []
    for step in learn(trial, task, examples, endless):
        times.append(step.seconds)
        counts.append(step.count)
        if len(times) >= 3 and time.perf_counter() - began > most:
            break
    tokens = examples.lengths[:, -1].sum() / per_epoch(examples, plan)
    return float(sum(times[1:]) / sum(counts[1:]) * tokens)


def seconds_of_scoring(model: Model, task: Task, pairs: Sequence[Any], how: Decoding) -> float:
    """An untrained model does not know when to end, so it is given the length of the true answers."""
    length = max(1, round(task.prepare(pairs).lengths[:, -1].mean()))
    began = time.perf_counter()
    task.score(model.eval(), pairs, replace(how, shortest=length, longest=length))
    return time.perf_counter() - began
