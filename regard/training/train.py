"""One training run, from settings to a finished folder.

for step in train("translate", data=("train.en", "train.de"), minutes=10):
    print(step.number, step.loss, step.scores)
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from regard.data.batches import Examples
from regard.data.files import Data
from regard.device import use_threads
from regard.hub.folder import names_of, read_weights
from regard.places import replace_file
from regard.purpose import read_task
from regard.tasks import TASKS
from regard.tasks.task import Task
from regard.training import pace
from regard.training.begin import config_for, fitted, make_model
from regard.training.blame import blamed
from regard.training.card import card
from regard.training.changes import changes, made_with, plain
from regard.training.loop import NotFinite, Progress, Step, learn, parameters
from regard.training.run import DESCRIPTION, Lock, Run, as_line
from regard.training.settings import Settings, start

DEFAULT_MINUTES = 3.0


@dataclass
class Job:
    """A run that is ready to start, or to go on."""

    settings: Settings
    run: Run
    lock: Lock
    data: Data
    task: Task
    examples: Examples
    progress: Progress
    began: float  # for the promise of --minutes
    asked: dict[str, Any]  # settings as they were given, so that the same command is known again
    best: dict[str, Any] = field(default_factory=dict)  # scores of the weights in model.safetensors, and their step
    worse: int = 0  # checks in a row that were not the best
    made: dict[str, Any] = field(default_factory=dict)  # what a save depends on besides its numbers
    test: dict[str, Any] = field(default_factory=dict)
    troubles: list[str] = field(default_factory=list)  # saves that could not be used

    @property
    def finished(self) -> bool:
        """Nothing is left to do."""
        return self.settings.keeping.resume and self.run.finished

    @property
    def check_every(self) -> int:
        assert self.settings.plan.steps
        return max(1, math.ceil(self.settings.plan.steps / self.settings.keeping.checks))

    @property
    def valid(self) -> Any:
        """What is looked at in each check."""
        return self.task.some(self.data.sets["valid"], self.settings.keeping.check_examples)


def train(task: str = "translate", **options: Any) -> Iterator[Step]:
    """Train, and yield every step; the run folder is complete when the last one is out."""
    return carry_out(planned(prepare(start(task, **options))))


def prepare(settings: Settings) -> Job:
    """Data checked, tokenizer learnt, model made or taken from its newest save. Of a new run nothing is written yet."""
    began, asked = time.perf_counter(), plain(settings.flat())
    keeping = settings.keeping
    folder = Path(keeping.out or f"runs/{settings.task}")
    run = Run(folder) if keeping.resume else Run.new(folder, keeping.overwrite)
    lock = Lock(folder)
    try:
        if keeping.threads:
            use_threads(keeping.threads)
        kind, aim, reading = TASKS[settings.task], settings.aim, settings.reading
        data = kind.read(settings.files, settings.ability, reading, **aim)
        made: dict[str, Any] = {}
        if keeping.resume:
            save, facts, troubles = run.newest()
            made = made_with({**settings.flat(), "fingerprint": data.fingerprint}, folder, DESCRIPTION)
            refuse_changes(save, facts.get("made", made), made, keeping.allow_changed)
        settings, task = (settings, read_task(folder)) if keeping.resume else fitted(settings, data.sets["train"])
        sizes, config = task.sizes(), config_for(settings, task)
        context = getattr(config, "context", 0)
        prepared = {name: task.prepare(rows, context) for name, rows in data.sets.items()}
        usual = (0.2 if keeping.from_ else 0.64) / config.dim
        plan = replace(settings.plan, rate=settings.plan.rate or usual)
        vocab = {"vocab": sizes["vocab"]} if "vocab" in reading else {}
        settings = replace(settings, plan=plan, reading=reading | vocab)
        progress = Progress.new(make_model(settings, task), plan)
        job = Job(settings, run, lock, data, task, prepared["train"], progress, began, asked, made=made)
        if keeping.resume:
            run.take(progress, save, facts)
            job.best, job.worse, job.troubles = facts["best"], facts["worse"], troubles
    except BaseException:
        lock.release()
        run.abandon()
        raise
    return job


def refuse_changes(save: Path, then: dict[str, Any], now: dict[str, Any], allowed: bool) -> None:
    if (lines := changes(then, now)) and not allowed:
        told = "\n".join(f"  {line}" for line in lines)
        raise ValueError(
            f"this is not what {save} was made with:\n{told}\nput it back, go on all the same with --allow-changed, or "
            "start again with --overwrite"
        )


def planned(job: Job) -> Job:
    """The length of the run as a number of steps; with that, all that never changes is written to the run folder."""
    s = job.settings
    plan, checks = s.plan, s.keeping.checks
    if plan.steps is None and plan.epochs is not None:
        plan = replace(plan, steps=pace.steps_of(plan.epochs, job.examples, plan))
    elif plan.steps is None:
        plan = replace(plan, minutes=DEFAULT_MINUTES if plan.minutes is None else plan.minutes)
        assert plan.minutes
        data = (job.examples, plan, checks, job.valid, job.data.sets.get("test"))
        steps, checks = pace.within(plan.minutes * 60, job.began, job.progress.model, job.task, *data)
        plan = replace(plan, steps=steps)
    assert plan.steps
    plan = replace(plan, warmup=min(2000, plan.steps // 10) if plan.warmup is None else plan.warmup)
    job.settings = replace(s, plan=plan, keeping=replace(s.keeping, checks=checks))
    if not s.keeping.resume:
        kept = {**job.settings.flat(), "resume": False, "overwrite": False, "fingerprint": job.data.fingerprint}
        job.run.clear()
        job.run.describe(job.progress.model, job.task, kept | {"asked": job.asked})
        job.made = made_with(kept, job.run.folder, DESCRIPTION)
    return job


def carry_out(job: Job) -> Iterator[Step]:
    """Learn, validate, save, and leave the best weights in the folder."""
    if job.finished:
        job.lock.release()
        return
    plan, patience = job.settings.plan, job.settings.keeping.patience
    assert plan.steps
    fresh = plan.minutes is not None and job.progress.step == 0
    deadline = job.began + (plan.minutes or 0) * 60 if fresh else math.inf
    try:
        steps = learn(job.progress, job.task, job.examples, plan)
        while not (patience and job.worse >= patience) and (step := next(steps, None)) is not None:
            job.run.log(**as_line(step))
            late = time.perf_counter() > deadline
            if step.number % job.check_every and step.number < plan.steps and not late:
                yield step
                continue
            scores = check(job)
            save(job)
            yield replace(step, scores=scores)
            if late:
                break
        finish(job)
    except NotFinite as bad:
        model, rows = job.progress.model, job.data.sets["train"]
        raise blamed(bad, model, job.task, job.examples, rows, job.run.folder) from None
    finally:
        job.lock.release()


def check(job: Job) -> dict[str, Any]:
    """Validate with the averaged weights; publish them if they are the best so far."""
    average = job.progress.average
    with average.in_place() if average is not None else nullcontext():
        scores = judge(job)
    job.worse = 0 if job.best["step"] == job.progress.step else job.worse + 1
    return scores


def judge(job: Job) -> dict[str, Any]:
    scores = job.task.score(job.progress.model.eval(), job.valid)
    numbers = {name: value for name, value in scores.items() if isinstance(value, float)}
    if not job.best or job.task.rank(numbers) > job.task.rank(job.best):
        job.best = {"step": job.progress.step, **numbers}
        job.run.publish(job.progress.model)
    job.run.log(step=job.progress.step, valid=numbers, samples=scores["samples"])
    return {**numbers, "samples": scores["samples"]}


def save(job: Job) -> Path:
    facts = {"best": job.best, "worse": job.worse, "made": job.made}
    keeping = job.settings.keeping
    return job.run.save(job.progress, facts, max(keeping.keep, keeping.average_last + 1))


def finish(job: Job) -> None:
    """Try the mean of the last saves, load the best weights, score them on the test set, and write the model card."""
    model, count = job.progress.model, job.settings.keeping.average_last
    if count:
        model.load_state_dict(job.run.averaged(count, job.check_every), strict=False)
        judge(job)
    read_weights(job.run.folder, names_of(model.body), model)
    sets = job.data.sets
    if "test" in sets:
        scores = job.task.score(model.eval(), sets["test"], job.task.final)
        job.test = {name: value for name, value in scores.items() if isinstance(value, float)}
        job.run.log(step=job.progress.step, test=job.test)
    amounts = job.task.amount(sets["train"]), job.task.amount(job.valid)
    family = names_of(model.body).family
    both = job.best, job.test
    about = card(job.settings.flat(), parameters(model), *amounts, *both, family, job.data.fingerprint)
    replace_file(job.run.folder / "README.md", about.encode())
