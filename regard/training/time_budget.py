"""How long a run is: steps from epochs, or as many as fit into so many minutes on this machine.

A machine slows down and speeds up, so the steps that fit are counted again while the run goes. Where the two disagree,
the number of steps is revised together with a save: the revisions in a save are all that the result depends on, and a
run that is given the same ones (`--revisions`) gives the same bits.
"""

from __future__ import annotations

import math
import time
from copy import deepcopy
from dataclasses import dataclass, replace
from typing import Any

from regard.data.batches import Examples
from regard.data.documents import Texts
from regard.parts.heads import Model
from regard.tasks.task import Task
from regard.training.loop import Plan, Progress, learn
from regard.training.schedule import Revision

SPARE = 0.985  # of the time left is planned for
MOST_CHECKING = 0.15  # of the time goes into validation
MOST_TIMING = 0.02, 5.0  # of the time goes into timing steps, and seconds of it
PROBE = 50  # rows that the last test is timed with
WINDOW = 0.08  # of the time: what a step takes is an average over about so long
OFF, OFF_SHARE = 0.02, 0.1  # of the time, and of what is left: a plan that is off by more is revised with its own save
LATE = 0.05  # of the time that a run may take longer rather than end at a high rate
SAVING = 0.05  # most of the time that goes into such saves
FEW = 100  # steps: with fewer hardly anything is learnt


def steps_of(epochs: float, examples: Examples, plan: Plan) -> int:
    return max(1, round(epochs * per_epoch(examples, plan)))


def per_epoch(examples: Examples, plan: Plan) -> float:
    return len(examples.epoch(plan.batch_tokens, plan.seed, 0)) / plan.accumulate


class Stopwatch:
    """Seconds of each part of a start."""

    def __init__(self) -> None:
        self.began = self.last = time.perf_counter()
        self.parts: dict[str, float] = {}

    def lap(self, part: str) -> None:
        now = time.perf_counter()
        self.parts[part], self.last = now - self.last, now


@dataclass
class TimeBudget:
    """The seconds of a run, and what its work costs. All but a step is counted in steps: it slows down as they do."""

    seconds: float  # of the whole run
    began: float  # when the time of this process counts from
    used: float = 0.0  # by earlier processes of the same run
    step: float = 0.0  # seconds, a moving average
    check: float = 0.0  # validation and the save after it, in steps
    save: float = 0.0  # a save, in steps
    final: float = 0.0  # scoring the test set, in steps
    saved: float = 0.0  # when the last save ended

    @property
    def spent(self) -> float:
        return self.used + time.perf_counter() - self.began

    @property
    def left(self) -> float:
        return self.seconds - self.spent

    def facts(self) -> dict[str, float]:
        """For a save: what `TimeBudget` takes again."""
        return {"used": self.spent, "step": self.step, "check": self.check, "save": self.save, "final": self.final}

    def observe(self, seconds: float) -> None:
        """A step took so long: the steps in a second are averaged over time, the last seconds most of all."""
        weight = -math.expm1(-seconds / (WINDOW * self.seconds))
        self.step = 1 / ((1 - weight) / self.step + weight / max(seconds, 1e-9))

    def fits(self, every: int) -> float:
        """The steps that still fit, with a check after `every` of them, one at the end, and the test."""
        steps = SPARE * self.left / self.step - self.check - self.final
        return steps / (1 + self.check / every)

    def revision(self, step: int, steps: int, every: int, at_save: bool) -> Revision | None:
        """The number of steps that fits, if it is not the planned one: at a save that is made anyway, or, if the run
        would end much too early or too late, at one of its own."""
        planned, fitting = steps - step, int(self.fits(every))
        if 2 * self.step < LATE * self.seconds:
            fitting = max(fitting, 2)  # two steps bring any rate down
        off = abs(planned - fitting) * self.step
        if planned <= 0 or off <= 2 * self.step:
            return None
        since = time.perf_counter() - self.saved
        often = since < OFF * self.seconds or since * SAVING < self.save * self.step
        if not at_save and self.left > 0 and (often or off < max(OFF * self.seconds, OFF_SHARE * self.left)):
            return None
        return Revision(step, step + max(0, fitting))


def plan_steps(
    budget: TimeBudget, model: Model, task: Task, examples: Examples, plan: Plan, checks: int, valid: Any, test: Any
) -> tuple[int, int]:
    """The steps and checks that fit into the time, by timing some steps, a validation and part of the test."""
    trial = Progress.new(deepcopy(model), plan)
    share, most = MOST_TIMING
    budget.step = seconds_of_a_step(trial, task, examples, plan, min(max(1.0, share * budget.seconds), most))
    check = seconds_of_scoring(trial.model, task, valid)
    budget.check = check / budget.step
    budget.final = seconds_of_the_test(trial.model, task, test) / budget.step if test else 0.0
    checks = min(checks, max(1, int(MOST_CHECKING * budget.seconds / check)))
    left = SPARE * budget.left / budget.step - budget.check * (checks + 1) - budget.final
    return max(1, int(left)), checks


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
        plain = replace(how, min_new_tokens=plain.min_new_tokens, max_new_tokens=plain.max_new_tokens)
    began = time.perf_counter()
    task.score(model.eval(), rows, plain)
    return time.perf_counter() - began


def duration(seconds: float) -> str:
    """As a person says it: 48 s, 2 min 30 s, 3 h 5 min."""
    if seconds < 59.5:
        return f"{seconds:.1f} s" if seconds < 9.95 else f"{seconds:.0f} s"
    unit, names = (1, ("min", "s")) if seconds < 3600 else (60, ("h", "min"))
    larger, smaller = divmod(round(seconds / unit), 60)
    return f"{larger} {names[0]} {smaller} {names[1]}" if smaller else f"{larger} {names[0]}"
