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
from regard.device import use_threads
from regard.hub.folder import names_of, read_weights
from regard.purpose import read_task
from regard.tasks import TASKS
from regard.tasks.task import Task
from regard.training import time_budget
from regard.training.build import config_for, fitted, make_model, use_window, window_for
from regard.training.card import card
from regard.training.checkpoint import list_checkpoints
from regard.training.loop import NonFiniteError, Progress, Step, num_parameters, train_steps
from regard.training.nonfinite import blamed
from regard.training.provenance import check_provenance, collect_provenance, comparable_settings
from regard.training.run_folder import DESCRIPTION_FILES, RunFolder, RunLock, metrics_line
from regard.training.settings import Settings, make_settings
from regard.training.time_budget import Stopwatch, TimeBudget

DEFAULT_MINUTES = 3.0


@dataclass
class Job:
    """A run that is ready to start, or to go on."""

    settings: Settings
    run: RunFolder
    lock: RunLock
    data: Data
    task: Task
    examples: Examples
    progress: Progress
    requested_options: dict[str, Any]  # settings as they were given, so that the same command is known again
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
    def is_finished(self) -> bool:
        """Nothing is left to do."""
        return self.settings.run_options.resume and self.run.is_finished

    @property
    def check_every(self) -> int:
        """By the number of steps first planned, so that a revision leaves the checks where they are."""
        assert self.settings.train_options.steps
        return max(1, math.ceil(self.settings.train_options.steps / self.settings.run_options.evals))

    @property
    def steps(self) -> int:
        """In all, by the last revision."""
        return self.settings.train_options.length(self.progress.step)

    @property
    def due(self) -> bool:
        """Whether this step is one to validate and save."""
        step = self.progress.step
        return step > 0 and (step % self.check_every == 0 or step >= self.steps)

    @property
    def valid(self) -> Any:
        """What is looked at in each check."""
        return self.task.some(self.data.sets["valid"], self.settings.run_options.eval_examples)


def train(task: str = "translate", **options: Any) -> Iterator[Step]:
    """Train, and yield every step; the run folder is complete when the last one is out."""
    return run_training(plan_run(prepare(make_settings(task, **options))))


def prepare(settings: Settings) -> Job:
    """Data checked, tokenizer learnt, model made or taken from its newest save. Of a new run nothing is written yet."""
    watch, requested_options = Stopwatch(), comparable_settings(settings.to_dict())
    run_options = settings.run_options
    folder = Path(run_options.output_dir or f"runs/{settings.task}")
    run = RunFolder(folder) if run_options.resume else RunFolder.new(folder, run_options.overwrite)
    lock = RunLock(folder)
    try:
        if run_options.threads:
            use_threads(run_options.threads)
        kind, task_options, input_options = TASKS[settings.task], settings.task_options, settings.input_options
        data = kind.read(settings.files, settings.ability, input_options, **task_options)
        watch.lap("reading the data")
        made: dict[str, Any] = {}
        if run_options.resume:
            save, facts, troubles = run.newest_checkpoint()
            made = collect_provenance(
                {**settings.to_dict(), "fingerprint": data.fingerprint}, folder, DESCRIPTION_FILES
            )
            check_provenance(save, facts.get("made", made), made, run_options.allow_changed)
        settings, task = (settings, read_task(folder)) if run_options.resume else fitted(settings, data.sets["train"])
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
        usual = (0.2 if run_options.from_ else 0.64) / config.dim
        train_options = replace(settings.train_options, lr=settings.train_options.lr or usual)
        vocab = {"vocab": sizes["vocab"]} if "vocab" in input_options else {}
        settings = replace(settings, train_options=train_options, input_options=input_options | vocab)
        progress = Progress.new(make_model(settings, task), train_options)
        watch.lap("model")
        job = Job(settings, run, lock, data, task, examples, progress, requested_options, watch, made=made)
        job.context = context
        use_window(progress.model, window)
        if run_options.resume:
            run.restore(progress, save, facts)
            take_up(job, facts)
            job.troubles = troubles
    except BaseException:
        lock.release()
        run.remove_if_empty()
        raise
    return job


def take_up(job: Job, facts: dict[str, Any]) -> None:
    """What a save says besides its numbers: scores so far, revisions of the length, and the time that is used."""
    job.best, job.worse, job.checked = facts["best"], facts["worse"], facts["checked"]
    train_options = replace(job.settings.train_options, revisions=tuple(facts["revisions"]))
    job.settings = replace(job.settings, train_options=train_options)
    if train_options.minutes is not None:
        job.budget = TimeBudget(train_options.minutes * 60, job.startup.began, **facts["budget"])


def plan_run(job: Job) -> Job:
    """The length of the run as a number of steps; with that, all that never changes is written to the run folder."""
    s = job.settings
    train_options, evals = s.train_options, s.run_options.evals
    if train_options.steps is None and train_options.epochs is not None:
        train_options = replace(
            train_options, steps=time_budget.steps_of(train_options.epochs, job.examples, train_options)
        )
    elif train_options.steps is None:
        train_options = replace(
            train_options, minutes=DEFAULT_MINUTES if train_options.minutes is None else train_options.minutes
        )
        assert train_options.minutes
        job.budget = TimeBudget(train_options.minutes * 60, job.startup.began)
        data = (job.examples, train_options, evals, job.valid, job.data.sets.get("test"))
        steps, evals = time_budget.plan_steps(job.budget, job.progress.model, job.task, *data)
        train_options = replace(train_options, steps=steps)
        job.startup.lap("timing")
    assert train_options.steps
    train_options = replace(
        train_options,
        warmup_steps=min(2000, train_options.steps // 10)
        if train_options.warmup_steps is None
        else train_options.warmup_steps,
    )
    job.settings = replace(s, train_options=train_options, run_options=replace(s.run_options, evals=evals))
    if not s.run_options.resume:
        kept = {**job.settings.to_dict(), "resume": False, "overwrite": False, "fingerprint": job.data.fingerprint}
        job.run.clear()
        window = getattr(job.progress.model.body.config, "context", 0)
        use_window(job.progress.model, job.context)
        job.run.describe(job.progress.model, job.task, kept | {"requested_options": job.requested_options})
        use_window(job.progress.model, window)
        job.made = collect_provenance(kept, job.run.folder, DESCRIPTION_FILES)
    return job


def run_training(job: Job) -> Iterator[Step]:
    """Learn, validate, save, and leave the best weights in the folder."""
    if job.is_finished:
        job.lock.release()
        return
    patience, budget = job.settings.run_options.patience, job.budget
    try:
        if job.due and job.checked < job.progress.step:  # stopped in the middle of its validation
            run_eval(job)
            save(job)
        steps, mark = learning(job), time.perf_counter()
        while not (patience and job.worse >= patience) and (step := next(steps, None)) is not None:
            job.run.log(**metrics_line(step))
            if budget is not None:
                budget.observe(time.perf_counter() - mark)
            before = job.settings.train_options.revisions
            if job.due:
                scores = run_eval(job)
                revise(job, at_save=True)
                save(job)
                step = replace(step, scores=scores)
            elif revise(job, at_save=False):
                save(job)
            if job.settings.train_options.revisions != before:
                steps = learning(job)
            mark = time.perf_counter()
            yield step
        finish(job)
    except NonFiniteError as bad:
        model, rows = job.progress.model, job.data.sets["train"]
        raise blamed(bad, model, job.task, job.examples, rows, job.run.folder) from None
    finally:
        job.lock.release()


def learning(job: Job) -> Iterator[Step]:
    return train_steps(job.progress, job.task, job.examples, job.settings.train_options)


def revise(job: Job, at_save: bool) -> bool:
    """Change the number of steps if another one fits the time; the save that follows keeps it."""
    if job.budget is None:
        return False
    revision = job.budget.revision(job.progress.step, job.steps, job.check_every, at_save)
    if revision is None:
        return False
    job.settings = replace(job.settings, train_options=job.settings.train_options.revised(revision))
    job.run.log(step=revision.step, revised=revision.steps, seconds_a_step=round(job.budget.step, 4))
    return True


def run_eval(job: Job) -> dict[str, Any]:
    """Validate with the averaged weights; publish them if they are the best so far."""
    began, ema = time.perf_counter(), job.progress.ema
    with ema.average_parameters() if ema is not None else nullcontext():
        scores = evaluate(job)
    job.worse = 0 if job.best["step"] == job.progress.step else job.worse + 1
    job.checked = job.progress.step
    if job.budget is not None:
        job.budget.check = (time.perf_counter() - began) / job.budget.step + job.budget.save
    return scores


def evaluate(job: Job) -> dict[str, Any]:
    scores = job.task.score(job.progress.model.eval(), job.valid)
    numbers = {name: value for name, value in scores.items() if isinstance(value, float)}
    if not job.best or job.task.rank(numbers) > job.task.rank(job.best):
        job.best = {"step": job.progress.step, **numbers}
        job.run.publish(job.progress.model)
    job.run.log(step=job.progress.step, valid=numbers, samples=scores["samples"])
    return {**numbers, "samples": scores["samples"]}


def save(job: Job) -> Path:
    """All that is needed to go on after the last whole step. Any thread may call it."""
    began, run_options, budget = time.perf_counter(), job.settings.run_options, job.budget
    facts: dict[str, Any] = {"best": job.best, "worse": job.worse, "checked": job.checked, "made": job.made}
    facts["revisions"] = job.settings.train_options.revisions
    if budget is not None:
        facts["budget"] = budget.facts()
    with job.progress.lock:
        folder = job.run.save(job.progress, facts, max(run_options.keep, run_options.average_checkpoints + 1))
    if budget is not None:
        budget.saved = time.perf_counter()
        budget.save = (budget.saved - began) / budget.step
    return folder


def save_interrupted(job: Job) -> Path:
    """Save for somebody who wants to leave now, from any thread. Without a validation so far, the weights that there
    are can be used all the same."""
    with job.progress.lock:
        if job.finishing:  # the model holds the best weights by now, and the last step is saved
            return list_checkpoints(job.run.folder)[0]
        folder = save(job)
        if not job.best:
            ema = job.progress.ema
            with ema.average_parameters() if ema is not None and not ema.swapped else nullcontext():
                job.run.publish(job.progress.model)
    return folder


def finish(job: Job) -> None:
    """Try the mean of the last saves, load the best weights, score them on the test set, and write the model card."""
    model, count = job.progress.model, job.settings.run_options.average_checkpoints
    with job.progress.lock:
        job.finishing = True
    if count:
        model.load_state_dict(job.run.averaged(count, job.check_every), strict=False)
        evaluate(job)
    read_weights(job.run.folder, names_of(model.body), model)
    sets = job.data.sets
    if "test" in sets:
        scores = job.task.score(model.eval(), sets["test"], job.task.final)
        job.test = {name: value for name, value in scores.items() if isinstance(value, float)}
        job.run.log(step=job.progress.step, test=job.test)
    amounts = job.task.amount(sets["train"]), job.task.amount(job.valid)
    family = names_of(model.body).family
    both = job.best, job.test
    said = job.settings.to_dict() | {"steps": job.progress.step}
    about = card(said, num_parameters(model), *amounts, *both, family, job.data.fingerprint)
    replace_file(job.run.folder / "README.md", about.encode())
