"""How long a run is: steps from epochs, or from minutes by timing this machine once."""

from __future__ import annotations

import time
from copy import deepcopy
from dataclasses import replace
from typing import Any

from regard.data.batches import Examples
from regard.data.documents import Texts
from regard.parts.heads import Model
from regard.tasks.task import Task
from regard.training.loop import Plan, Progress, learn

SPARE = 0.96  # of the time left is planned for
MOST_CHECKING = 0.15  # of the time goes into validation
PROBE = 50  # rows that the last test is timed with


def steps_of(epochs: float, examples: Examples, plan: Plan) -> int:
    return max(1, round(epochs * per_epoch(examples, plan)))


def per_epoch(examples: Examples, plan: Plan) -> float:
    return len(examples.epoch(plan.batch_tokens, plan.seed, 0)) / plan.accumulate


def within(
    seconds: float,
    began: float,
    model: Model,
    task: Task,
    examples: Examples,
    plan: Plan,
    checks: int,
    valid: Any,
    test: Any,
) -> tuple[int, int]:
    """The steps and checks that fit into so many seconds from `began`, with validating, saving and scoring the test."""
    trial = Progress.new(deepcopy(model), plan)
    step = seconds_of_a_step(trial, task, examples, plan, min(max(1.0, 0.03 * seconds), 20.0))
    check = seconds_of_scoring(trial.model, task, valid)
    final = seconds_of_the_test(trial.model, task, test) if test else 0.0
    checks = min(checks, max(1, int(MOST_CHECKING * seconds / check)))
    left = seconds - (time.perf_counter() - began) - check * (checks + 1) - final
    return max(1, int(SPARE * left / step)), checks


def seconds_of_a_step(trial: Progress, task: Task, examples: Examples, plan: Plan, most: float) -> float:
    """Of an average one: what a unit costs, times the units of an average step."""
    endless = replace(plan, steps=10**9, warmup=1, rate=1e-9)
    began, times, counts = time.perf_counter(), [], []
    for step in learn(trial, task, examples, endless):
        times.append(step.seconds)
        counts.append(step.count)
        if len(times) >= 3 and time.perf_counter() - began > most:
            break
    return float(sum(times[1:]) / sum(counts[1:]) * examples.units / per_epoch(examples, plan))


def seconds_of_the_test(model: Model, task: Task, test: Any) -> float:
    """Some of it is timed; a text is as long as its characters."""
    if isinstance(test, Texts):
        some = task.some(test, None)
        return seconds_of_scoring(model, task, some, task.final) * test.characters / some.characters
    return seconds_of_scoring(model, task, task.some(test, PROBE), task.final) * max(1.0, len(test) / PROBE)


def seconds_of_scoring(model: Model, task: Task, rows: Any, how: Any = None) -> float:
    plain = task.rehearsal(rows)
    if plain is not None and how is not None:
        plain = replace(how, shortest=plain.shortest, longest=plain.longest)
    began = time.perf_counter()
    task.score(model.eval(), rows, plain)
    return time.perf_counter() - began
