"""One training run, from settings to a finished folder."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from regard.atomic import replace_file
from regard.data.batches import Examples
from regard.data.files import Data
from regard.device import set_num_threads
from regard.hub.folder import names_of, read_weights
from regard.purpose import read_task
from regard.tasks import TASKS
from regard.tasks.task import Task
from regard.training import time_budget
from regard.training.begin import config_for, fitted, make_model, use_window, window_for
from regard.training.blame import blamed
from regard.training.card import card
from regard.training.changes import made_with, plain, refuse_changes
from regard.training.loop import NotFinite, Progress, Step, learn, parameters
from regard.training.run import DESCRIPTION, Lock, Run, as_line
from regard.training.save import saves
from regard.training.settings import Settings, start
from regard.training.time_budget import Stopwatch, TimeBudget

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
    asked: dict[str, Any]  # settings as they were given, so that the same command is known again
    startup: Stopwatch  # what it took to get here
    budget: TimeBudget | None = None  # of --minutes
    best: dict[str, Any] = field(default_factory=dict)  # scores of the weights in model.safetensors, and their step
    worse: int = 0  # checks in a row that were not the best
    context: int = 0  # of the model; training may use less of it
    checked: int = 0  # the last step that was validated
    finishing: bool = False  # whether all steps are done
    made: dict[str, Any] = field(default_factory=dict)  # what a save depends on besides its numbers
    test: dict[str, Any] = field(default_factory=dict)
    troubles: list[str] = field(default_factory=list)  # saves that could not be used

    @property
    def finished(self) -> bool:
        """Nothing is left to do."""
        return self.settings.keeping.resume and self.run.finished

    @property
    def check_every(self) -> int:
        """By the number of steps first planned, so that a revision leaves the checks where they are."""
        assert self.settings.plan.steps
        return max(1, math.ceil(self.settings.plan.steps / self.settings.keeping.checks))

    @property
    def steps(self) -> int:
        """In all, by the last revision."""
        return self.settings.plan.length(self.progress.step)

    @property
    def due(self) -> bool:
        """Whether this step is one to validate and save."""
        step = self.progress.step
        return step > 0 and (step % self.check_every == 0 or step >= self.steps)

    @property
    def valid(self) -> Any:
        """What is looked at in each check."""
        return self.task.some(self.data.sets["valid"], self.settings.keeping.check_examples)


def train(task: str = "translate", **options: Any) -> Iterator[Step]:
    """Train, and yield every step; the run folder is complete when the last one is out."""
    return carry_out(planned(prepare(start(task, **options))))


def prepare(settings: Settings) -> Job:
    """Data checked, tokenizer learnt, model made or taken from its newest save. Of a new run nothing is written yet."""
    watch, asked = Stopwatch(), plain(settings.flat())
    keeping = settings.keeping
    folder = Path(keeping.out or f"runs/{settings.task}")
    run = Run(folder) if keeping.resume else Run.new(folder, keeping.overwrite)
    lock = Lock(folder)
    try:
        if keeping.threads:
            set_num_threads(keeping.threads)
        kind, aim, reading = TASKS[settings.task], settings.aim, settings.reading
        data = kind.read(settings.files, settings.ability, reading, **aim)
        watch.lap("reading the data")
        made: dict[str, Any] = {}
        if keeping.resume:
            save, facts, troubles = run.newest()
            made = made_with({**settings.flat(), "fingerprint": data.fingerprint}, folder, DESCRIPTION)
            refuse_changes(save, facts.get("made", made), made, keeping.allow_changed)
        settings, task = (settings, read_task(folder)) if keeping.resume else fitted(settings, data.sets["train"])
        watch.lap("tokenizer or labels")
        sizes, config = task.sizes(), config_for(settings, task)
        sets, context = data.sets, getattr(config, "context", 0)
        examples = task.prepare(sets["train"], settings.body.get("context") or context)
        window = window_for(settings, task, config, examples)
        if settings.body.get("context", window) != window:
            settings = replace(settings, body=settings.body | {"context": window})
            examples = task.prepare(sets["train"], window) if window < context else examples
        for name in sets.keys() - {"train"}:
            task.prepare(sets[name], window)  # so that what does not fit is told now
        watch.lap("encoding")
        usual = (0.2 if keeping.from_ else 0.64) / config.dim
        plan = replace(settings.plan, rate=settings.plan.rate or usual)
        vocab = {"vocab": sizes["vocab"]} if "vocab" in reading else {}
        settings = replace(settings, plan=plan, reading=reading | vocab)
        progress = Progress.new(make_model(settings, task), plan)
        watch.lap("model")
        job = Job(settings, run, lock, data, task, examples, progress, asked, watch, made=made)
        job.context = context
        use_window(progress.model, window)
        if keeping.resume:
            run.take(progress, save, facts)
            take_up(job, facts)
            job.troubles = troubles
    except BaseException:
        lock.release()
        run.abandon()
        raise
    return job


def take_up(job: Job, facts: dict[str, Any]) -> None:
    """What a save says besides its numbers: scores so far, revisions of the length, and the time that is used."""
    job.best, job.worse, job.checked = facts["best"], facts["worse"], facts["checked"]
    plan = replace(job.settings.plan, revisions=tuple(facts["revisions"]))
    job.settings = replace(job.settings, plan=plan)
    if plan.minutes is not None:
        job.budget = TimeBudget(plan.minutes * 60, job.startup.began, **facts["budget"])


def planned(job: Job) -> Job:
    """The length of the run as a number of steps; with that, all that never changes is written to the run folder."""
    s = job.settings
    plan, checks = s.plan, s.keeping.checks
    if plan.steps is None and plan.epochs is not None:
        plan = replace(plan, steps=time_budget.steps_of(plan.epochs, job.examples, plan))
    elif plan.steps is None:
        plan = replace(plan, minutes=DEFAULT_MINUTES if plan.minutes is None else plan.minutes)
        assert plan.minutes
        job.budget = TimeBudget(plan.minutes * 60, job.startup.began)
        data = (job.examples, plan, checks, job.valid, job.data.sets.get("test"))
        steps, checks = time_budget.plan_steps(job.budget, job.progress.model, job.task, *data)
        plan = replace(plan, steps=steps)
        job.startup.lap("timing")
    assert plan.steps
    plan = replace(plan, warmup=min(2000, plan.steps // 10) if plan.warmup is None else plan.warmup)
    job.settings = replace(s, plan=plan, keeping=replace(s.keeping, checks=checks))
    if not s.keeping.resume:
        kept = {**job.settings.flat(), "resume": False, "overwrite": False, "fingerprint": job.data.fingerprint}
        job.run.clear()
        window = getattr(job.progress.model.body.config, "context", 0)
        use_window(job.progress.model, job.context)
        job.run.describe(job.progress.model, job.task, kept | {"asked": job.asked})
        use_window(job.progress.model, window)
        job.made = made_with(kept, job.run.folder, DESCRIPTION)
    return job


def carry_out(job: Job) -> Iterator[Step]:
    """Learn, validate, save, and leave the best weights in the folder."""
    if job.finished:
        job.lock.release()
        return
    patience, budget = job.settings.keeping.patience, job.budget
    try:
        if job.due and job.checked < job.progress.step:  # stopped in the middle of its validation
            check(job)
            save(job)
        steps, mark = learning(job), time.perf_counter()
        while not (patience and job.worse >= patience) and (step := next(steps, None)) is not None:
            job.run.log(**as_line(step))
            if budget is not None:
                budget.observe(time.perf_counter() - mark)
            before = job.settings.plan.revisions
            if job.due:
                scores = check(job)
                revise(job, at_save=True)
                save(job)
                step = replace(step, scores=scores)
            elif revise(job, at_save=False):
                save(job)
            if job.settings.plan.revisions != before:
                steps = learning(job)
            mark = time.perf_counter()
            yield step
        finish(job)
    except NotFinite as bad:
        model, rows = job.progress.model, job.data.sets["train"]
        raise blamed(bad, model, job.task, job.examples, rows, job.run.folder) from None
    finally:
        job.lock.release()


def learning(job: Job) -> Iterator[Step]:
    return learn(job.progress, job.task, job.examples, job.settings.plan)


def revise(job: Job, at_save: bool) -> bool:
    """Change the number of steps if another one fits the time; the save that follows keeps it."""
    if job.budget is None:
        return False
    revision = job.budget.revision(job.progress.step, job.steps, job.check_every, at_save)
    if revision is None:
        return False
    job.settings = replace(job.settings, plan=job.settings.plan.revised(revision))
    job.run.log(step=revision.step, revised=revision.steps, seconds_a_step=round(job.budget.step, 4))
    return True


def check(job: Job) -> dict[str, Any]:
    """Validate with the averaged weights; publish them if they are the best so far."""
    began, average = time.perf_counter(), job.progress.average
    with average.in_place() if average is not None else nullcontext():
        scores = judge(job)
    job.worse = 0 if job.best["step"] == job.progress.step else job.worse + 1
    job.checked = job.progress.step
    if job.budget is not None:
        job.budget.check = (time.perf_counter() - began) / job.budget.step + job.budget.save
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
    """All that is needed to go on after the last whole step. Any thread may call it."""
    began, keeping, budget = time.perf_counter(), job.settings.keeping, job.budget
    facts: dict[str, Any] = {"best": job.best, "worse": job.worse, "checked": job.checked, "made": job.made}
    facts["revisions"] = job.settings.plan.revisions
    if budget is not None:
        facts["budget"] = budget.facts()
    with job.progress.lock:
        folder = job.run.save(job.progress, facts, max(keeping.keep, keeping.average_last + 1))
    if budget is not None:
        budget.saved = time.perf_counter()
        budget.save = (budget.saved - began) / budget.step
    return folder


def abandon(job: Job) -> Path:
    """Save for somebody who wants to leave now, from any thread. Without a validation so far, the weights that there
    are can be used all the same."""
    with job.progress.lock:
        if job.finishing:  # the model holds the best weights by now, and the last step is saved
            return saves(job.run.folder)[0]
        folder = save(job)
        if not job.best:
            average = job.progress.average
            with average.in_place() if average is not None and not average.swapped else nullcontext():
                job.run.publish(job.progress.model)
    return folder


def finish(job: Job) -> None:
    """Try the mean of the last saves, load the best weights, score them on the test set, and write the model card."""
    model, count = job.progress.model, job.settings.keeping.average_last
    with job.progress.lock:
        job.finishing = True
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
    said = job.settings.flat() | {"steps": job.progress.step}
    about = card(said, parameters(model), *amounts, *both, family, job.data.fingerprint)
    replace_file(job.run.folder / "README.md", about.encode())
