"""The length of a run: steps from epochs, or as many steps as fit into --minutes on this machine.

The speed of a machine varies, so the run recomputes how many steps still fit. Where that differs from the plan, a
revision changes the number of steps, together with a checkpoint. The revisions in a checkpoint determine the result: a
run with the same ones (`--revisions`) has the same bits. Several ranks plan by the clock of the first, which waits for
the slowest in every step, and so come to the same numbers.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from regard.data.batches import Examples
from regard.data.documents import DocumentStream, RowSet
from regard.parts.heads import Model
from regard.tasks.shared_batches import shared_among
from regard.tasks.task import Task
from regard.training.loop import Progress, TrainOptions, train_steps
from regard.training.schedule import Revision

PLANNED_SHARE = 0.985  # of the remaining time is planned for
MAX_EVAL_SHARE = 0.15  # of the time goes into evaluations
MAX_TIMING_SHARE, MAX_TIMING_SECONDS = 0.02, 5.0  # of the time, and seconds, go into timing steps
TIMED_TEST_ROWS = 50  # rows of the test set that are timed
AVERAGE_SHARE = 0.08  # of the time: the window of the moving average of the step time
MIN_ERROR, MIN_ERROR_LEFT = 0.02, 0.1  # of the time, and of what remains: a larger error is worth an extra checkpoint
MAX_OVERTIME = 0.05  # of the time that a run may exceed rather than end at a high learning rate
MAX_SAVE_SHARE = 0.05  # of the time goes into extra checkpoints
FEW_STEPS = 100  # a model hardly learns in fewer


def steps_per_epoch(examples: Examples, train_options: TrainOptions) -> float:
    return len(examples.epoch(train_options.batch_tokens, train_options.seed, 0)) / train_options.grad_accum


class Stopwatch:
    """Seconds of each phase of the start of a run."""

    def __init__(self) -> None:
        self.start = self.last = time.perf_counter()
        self.phases: dict[str, float] = {}

    def lap(self, phase: str) -> None:
        now = time.perf_counter()
        self.phases[phase], self.last = now - self.last, now


@dataclass
class TimeBudget:
    """The time of a run, and what its parts cost. Costs are in units of a step, so that they scale with the machine's
    speed."""

    seconds: float  # of the whole run
    start: float  # of this process, on the clock of perf_counter
    used: float = 0.0  # seconds that earlier processes of the run took
    step_seconds: float = 0.0  # moving average
    eval_cost: float = 0.0  # an evaluation and the checkpoint after it, in steps
    save_cost: float = 0.0  # a checkpoint, in steps
    test_cost: float = 0.0  # scoring the test set, in steps
    last_save: float = 0.0  # when the last checkpoint was complete
    clock: Callable[[], float] | None = None  # instead of perf_counter: the time on which all ranks agree

    @property
    def now(self) -> float:
        return time.perf_counter() if self.clock is None else self.clock()

    @property
    def spent(self) -> float:
        return self.used + self.now - self.start

    @property
    def left(self) -> float:
        return self.seconds - self.spent

    def state(self) -> dict[str, float]:
        """For a checkpoint: arguments of `TimeBudget`."""
        costs = {name: getattr(self, name) for name in ("step_seconds", "eval_cost", "save_cost", "test_cost")}
        return {"used": self.spent, **costs}

    def observe(self, seconds: float) -> None:
        """Update the moving average of the steps per second with a step of this length."""
        weight = -math.expm1(-seconds / (AVERAGE_SHARE * self.seconds))
        self.step_seconds = 1 / ((1 - weight) / self.step_seconds + weight / max(seconds, 1e-9))

    def steps_left(self, eval_every: int) -> float:
        """The steps that still fit, with an evaluation every `eval_every` steps, one at the end, and the test."""
        steps = PLANNED_SHARE * self.left / self.step_seconds - self.eval_cost - self.test_cost
        return steps / (1 + self.eval_cost / eval_every)

    def revision(self, step: int, steps: int, eval_every: int, at_save: bool) -> Revision | None:
        """The number of steps that fits, if it is not the planned one: at a scheduled checkpoint, or, if the run would
        end much too early or too late, at an extra one."""
        planned, fitting = steps - step, int(self.steps_left(eval_every))
        if 2 * self.step_seconds < MAX_OVERTIME * self.seconds:
            fitting = max(fitting, 2)  # two steps suffice to decay any rate
        error = abs(planned - fitting) * self.step_seconds
        if planned <= 0 or error <= 2 * self.step_seconds:
            return None
        since = self.now - self.last_save
        too_soon = since < MIN_ERROR * self.seconds or since * MAX_SAVE_SHARE < self.save_cost * self.step_seconds
        too_small = error < max(MIN_ERROR * self.seconds, MIN_ERROR_LEFT * self.left)
        if not at_save and self.left > 0 and (too_soon or too_small):
            return None
        return Revision(step, step + max(0, fitting))


def plan_steps(
    budget: TimeBudget,
    trial: Progress,
    task: Task,
    examples: Examples,
    train_options: TrainOptions,
    evals: int,
    valid: RowSet,
    test: RowSet | None,
) -> tuple[int, int]:
    """The steps and evaluations that fit into the time, by the clock of the first rank: times some steps, an evaluation
    and part of the test with `trial`, a copy of the model."""
    seconds = min(max(1.0, MAX_TIMING_SHARE * budget.seconds), MAX_TIMING_SECONDS)
    budget.step_seconds = time_step(trial, task, examples, train_options, seconds)
    with trial.unsharded() as model, shared_among(trial.ranks):
        eval_seconds = time_scoring(model, task, valid)
        test_seconds = time_test(model, task, test) if test else 0.0
    budget.eval_cost, budget.test_cost = eval_seconds / budget.step_seconds, test_seconds / budget.step_seconds
    evals = min(evals, max(1, int(MAX_EVAL_SHARE * budget.seconds / eval_seconds)))
    steps = PLANNED_SHARE * budget.left / budget.step_seconds - budget.eval_cost * (evals + 1) - budget.test_cost
    return max(1, int(steps)), evals


def time_step(
    trial: Progress, task: Task, examples: Examples, train_options: TrainOptions, max_seconds: float
) -> float:
    """Seconds of an average step: seconds per unit, times the units of an average step."""
    endless = replace(train_options, steps=10**9, warmup_steps=1, lr=1e-9)
    start, times, counts = time.perf_counter(), list[float](), list[int]()
    for step in train_steps(trial, task, examples, endless):
        times.append(step.seconds)
        counts.append(step.count)
        if len(times) >= 3 and trial.ranks.broadcast(time.perf_counter() - start > max_seconds):
            break
    return float(sum(times[1:]) / sum(counts[1:]) * examples.units / steps_per_epoch(examples, train_options))


def time_test(model: Model, task: Task, test: RowSet) -> float:
    """Seconds of scoring the test set, extrapolated from a part of it: by characters for a text, by rows otherwise."""
    if isinstance(test, DocumentStream):
        subset = test.prefix(task.eval_limit)
        return time_scoring(model, task, subset, task.test_options) * test.characters / subset.characters
    return time_scoring(model, task, test[:TIMED_TEST_ROWS], task.test_options) * max(1.0, len(test) / TIMED_TEST_ROWS)


def time_scoring(model: Model, task: Task, rows: RowSet, decode_options: Any = None) -> float:
    options = task.timing_options(rows)
    if options is not None and decode_options is not None:
        options = replace(decode_options, min_new_tokens=options.min_new_tokens, max_new_tokens=options.max_new_tokens)
    start = time.perf_counter()
    task.score(model.eval(), rows, options)
    return time.perf_counter() - start


def format_duration(seconds: float) -> str:
    """48 s, 2 min 30 s, 3 h 5 min."""
    if seconds < 59.5:
        return f"{seconds:.1f} s" if seconds < 9.95 else f"{seconds:.0f} s"
    unit, names = (1, ("min", "s")) if seconds < 3600 else (60, ("h", "min"))
    larger, smaller = divmod(round(seconds / unit), 60)
    return f"{larger} {names[0]} {smaller} {names[1]}" if smaller else f"{larger} {names[0]}"
