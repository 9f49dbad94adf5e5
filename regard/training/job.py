"""One training run, from its settings to a finished folder."""

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
from regard.data.splits import Data
from regard.device import set_num_threads
from regard.hub.folder import find_family_map, read_weights
from regard.hub.task_config import read_task
from regard.tasks import TASKS
from regard.tasks.task import Task
from regard.training import time_budget
from regard.training.build import config_for, fit_task, make_model, use_window, window_for
from regard.training.card import model_card
from regard.training.checkpoint import list_checkpoints
from regard.training.loop import NonFiniteError, Progress, Step, num_parameters, train_steps
from regard.training.nonfinite import explain_nonfinite
from regard.training.provenance import check_provenance, collect_provenance, comparable_settings
from regard.training.run_folder import DESCRIPTION_FILES, RunFolder, RunLock, metrics_line
from regard.training.settings import Settings, make_settings
from regard.training.time_budget import Stopwatch, TimeBudget

DEFAULT_MINUTES = 3.0


@dataclass
class Job:
    """A run that is ready to start or to resume."""

    settings: Settings
    run: RunFolder
    lock: RunLock
    data: Data
    task: Task
    examples: Examples
    progress: Progress
    requested_options: dict[str, Any]  # settings before the run planned them: the same command has the same ones
    startup: Stopwatch
    budget: TimeBudget | None = None  # of --minutes
    best_scores: dict[str, Any] = field(default_factory=dict)  # of the weights in model.safetensors, and their step
    num_bad_evals: int = 0  # evaluations in a row without improvement
    context: int = 0  # of the model; training may use less of it
    last_eval: int = 0  # the last evaluated step
    is_finishing: bool = False  # all steps are complete
    provenance: dict[str, Any] = field(default_factory=dict)
    test_scores: dict[str, Any] = field(default_factory=dict)
    damaged_saves: list[str] = field(default_factory=list)  # checkpoints that could not be used

    @property
    def is_finished(self) -> bool:
        return self.settings.run_options.resume and self.run.is_finished

    @property
    def eval_every(self) -> int:
        """From the number of steps planned first, so that a revision does not move the evaluations."""
        assert self.settings.train_options.steps
        return max(1, math.ceil(self.settings.train_options.steps / self.settings.run_options.evals))

    @property
    def steps(self) -> int:
        """The total number of steps, by the last revision."""
        return self.settings.train_options.total_steps(self.progress.step)

    @property
    def is_eval_step(self) -> bool:
        step = self.progress.step
        return step > 0 and (step % self.eval_every == 0 or step >= self.steps)

    @property
    def valid_rows(self) -> Any:
        return self.task.eval_subset(self.data.sets["valid"], self.settings.run_options.eval_examples)


def train(task: str = "translate", **options: Any) -> Iterator[Step]:
    """Train, and yield every step; the run folder is complete after the last one."""
    return run_training(plan_run(prepare(make_settings(task, **options))))


def prepare(settings: Settings) -> Job:
    """Read the data, fit the task, and build the model or restore its checkpoint. A new run writes nothing yet."""
    watch, requested_options = Stopwatch(), comparable_settings(settings.to_dict())
    run_options, folder = settings.run_options, settings.folder
    run = RunFolder(folder) if run_options.resume else RunFolder.new(folder, run_options.overwrite)
    lock = RunLock(folder)
    try:
        if run_options.threads:
            set_num_threads(run_options.threads)
        input_options = settings.input_options
        data = TASKS[settings.task].read(settings.files, settings.ability, input_options, **settings.task_options)
        watch.lap("reading the data")
        provenance: dict[str, Any] = {}
        if run_options.resume:
            checkpoint, state, damaged_saves = run.newest_checkpoint()
            stored = {**settings.to_dict(), "fingerprint": data.fingerprint}
            provenance = collect_provenance(stored, folder, DESCRIPTION_FILES)
            check_provenance(checkpoint, state.get("provenance", provenance), provenance, run_options.allow_changed)
        settings, task = (settings, read_task(folder)) if run_options.resume else fit_task(settings, data.sets["train"])
        watch.lap("tokenizer or labels")
        sizes, config = task.sizes(), config_for(settings, task)
        sets, context = data.sets, getattr(config, "context", 0)
        examples = task.encode(sets["train"], settings.body.get("context") or context)
        window = window_for(settings, task, config, examples)
        if settings.body.get("context", window) != window:
            settings = replace(settings, body=settings.body | {"context": window})
            examples = task.encode(sets["train"], window) if window < context else examples
        for name in sets.keys() - {"train"}:
            task.encode(sets[name], window)  # raises now what would not fit later
        watch.lap("encoding")
        default_lr = (0.2 if run_options.from_ else 0.64) / config.dim
        train_options = replace(settings.train_options, lr=settings.train_options.lr or default_lr)
        vocab = {"vocab_size": sizes["vocab"]} if "vocab_size" in input_options else {}
        settings = replace(settings, train_options=train_options, input_options=input_options | vocab)
        progress = Progress.new(make_model(settings, task), train_options)
        watch.lap("model")
        job = Job(settings, run, lock, data, task, examples, progress, requested_options, watch, provenance=provenance)
        job.context = context
        use_window(progress.model, window)
        if run_options.resume:
            run.restore(progress, checkpoint, state)
            restore_job(job, state)
            job.damaged_saves = damaged_saves
    except BaseException:
        lock.release()
        run.remove_if_empty()
        raise
    return job


def restore_job(job: Job, state: dict[str, Any]) -> None:
    """Restore from a checkpoint: scores so far, revisions of the number of steps, and the time used."""
    job.best_scores, job.num_bad_evals, job.last_eval = state["best_scores"], state["num_bad_evals"], state["last_eval"]
    train_options = replace(job.settings.train_options, revisions=tuple(state["revisions"]))
    job.settings = replace(job.settings, train_options=train_options)
    if train_options.minutes is not None:
        job.budget = TimeBudget(train_options.minutes * 60, job.startup.start, **state["time_budget"])


def plan_run(job: Job) -> Job:
    """Set the number of steps, and write the files of the run folder that never change."""
    s = job.settings
    train_options, evals = s.train_options, s.run_options.evals
    if train_options.steps is None and train_options.epochs is not None:
        steps = time_budget.steps_of(train_options.epochs, job.examples, train_options)
        train_options = replace(train_options, steps=steps)
    elif train_options.steps is None:
        minutes = DEFAULT_MINUTES if train_options.minutes is None else train_options.minutes
        job.budget = TimeBudget(minutes * 60, job.startup.start)
        data = (job.examples, train_options, evals, job.valid_rows, job.data.sets.get("test"))
        steps, evals = time_budget.plan_steps(job.budget, job.progress.model, job.task, *data)
        train_options = replace(train_options, minutes=minutes, steps=steps)
        job.startup.lap("timing")
    assert train_options.steps
    if train_options.warmup_steps is None:
        train_options = replace(train_options, warmup_steps=min(2000, train_options.steps // 10))
    job.settings = replace(s, train_options=train_options, run_options=replace(s.run_options, evals=evals))
    if not s.run_options.resume:
        run_values = {"resume": False, "overwrite": False, "fingerprint": job.data.fingerprint}
        stored = job.settings.to_dict() | run_values
        job.run.clear()
        window = getattr(job.progress.model.body.config, "context", 0)
        use_window(job.progress.model, job.context)
        job.run.describe(job.progress.model, job.task, stored | {"requested_options": job.requested_options})
        use_window(job.progress.model, window)
        job.provenance = collect_provenance(stored, job.run.folder, DESCRIPTION_FILES)
    return job


def run_training(job: Job) -> Iterator[Step]:
    """Train, evaluate and save; the best weights remain in the folder."""
    if job.is_finished:
        job.lock.release()
        return
    patience, budget = job.settings.run_options.patience, job.budget
    try:
        if job.is_eval_step and job.last_eval < job.progress.step:  # interrupted during its evaluation
            run_eval(job)
            save(job)
        steps, mark = remaining_steps(job), time.perf_counter()
        while not (patience and job.num_bad_evals >= patience) and (step := next(steps, None)) is not None:
            job.run.log(**metrics_line(step))
            if budget is not None:
                budget.observe(time.perf_counter() - mark)
            revisions = job.settings.train_options.revisions
            if job.is_eval_step:
                scores = run_eval(job)
                revise(job, at_save=True)
                save(job)
                step = replace(step, scores=scores)
            elif revise(job, at_save=False):
                save(job)
            if job.settings.train_options.revisions != revisions:
                steps = remaining_steps(job)
            mark = time.perf_counter()
            yield step
        finish(job)
    except NonFiniteError as error:
        model, rows = job.progress.model, job.data.sets["train"]
        raise explain_nonfinite(error, model, job.task, job.examples, rows, job.run.folder) from None
    finally:
        job.lock.release()


def remaining_steps(job: Job) -> Iterator[Step]:
    return train_steps(job.progress, job.task, job.examples, job.settings.train_options)


def revise(job: Job, at_save: bool) -> bool:
    """Revise the number of steps if another one fits the time; the checkpoint that follows stores it."""
    if job.budget is None:
        return False
    revision = job.budget.revision(job.progress.step, job.steps, job.eval_every, at_save)
    if revision is None:
        return False
    job.settings = replace(job.settings, train_options=job.settings.train_options.with_revision(revision))
    seconds = round(job.budget.step_seconds, 4)
    job.run.log(step=revision.step, total_steps=revision.steps, seconds_per_step=seconds)
    return True


def run_eval(job: Job) -> dict[str, Any]:
    """Evaluate the EMA weights; publish them if they are the best so far."""
    start, ema = time.perf_counter(), job.progress.ema
    with ema.average_parameters() if ema is not None else nullcontext():
        scores = evaluate(job)
    job.num_bad_evals = 0 if job.best_scores["step"] == job.progress.step else job.num_bad_evals + 1
    job.last_eval = job.progress.step
    if job.budget is not None:
        job.budget.eval_cost = (time.perf_counter() - start) / job.budget.step_seconds + job.budget.save_cost
    return scores


def evaluate(job: Job) -> dict[str, Any]:
    scores = job.task.score(job.progress.model.eval(), job.valid_rows)
    numbers = {name: value for name, value in scores.items() if isinstance(value, float)}
    if not job.best_scores or job.task.rank(numbers) > job.task.rank(job.best_scores):
        job.best_scores = {"step": job.progress.step, **numbers}
        job.run.publish(job.progress.model)
    job.run.log(step=job.progress.step, valid=numbers, samples=scores["samples"])
    return {**numbers, "samples": scores["samples"]}


def save(job: Job) -> Path:
    """Write a checkpoint of the last complete step. Any thread may call it."""
    start, run_options, budget = time.perf_counter(), job.settings.run_options, job.budget
    state: dict[str, Any] = {
        **{"best_scores": job.best_scores, "num_bad_evals": job.num_bad_evals, "last_eval": job.last_eval},
        **{"provenance": job.provenance, "revisions": job.settings.train_options.revisions},
        **({} if budget is None else {"time_budget": budget.state()}),
    }
    with job.progress.lock:
        folder = job.run.save(job.progress, state, max(run_options.keep, run_options.average_checkpoints + 1))
    if budget is not None:
        budget.last_save = time.perf_counter()
        budget.save_cost = (budget.last_save - start) / budget.step_seconds
    return folder


def save_interrupted(job: Job) -> Path:
    """Save for a process that is about to exit, from any thread. Before the first evaluation, the current weights are
    published, so that the folder can be used."""
    with job.progress.lock:
        if job.is_finishing:  # the model holds the best weights by now, and the last step is saved
            return list_checkpoints(job.run.folder)[0]
        folder = save(job)
        if not job.best_scores:
            ema = job.progress.ema
            with ema.average_parameters() if ema is not None and not ema.swapped else nullcontext():
                job.run.publish(job.progress.model)
    return folder


def finish(job: Job) -> None:
    """Evaluate the mean of the last checkpoints, load the best weights, score the test set, write the model card."""
    model, count = job.progress.model, job.settings.run_options.average_checkpoints
    with job.progress.lock:
        job.is_finishing = True
    if count:
        model.load_state_dict(job.run.average_checkpoints(count, job.eval_every), strict=False)
        evaluate(job)
    read_weights(job.run.folder, find_family_map(model.body), model)
    sets = job.data.sets
    if "test" in sets:
        test_scores = job.task.score(model.eval(), sets["test"], job.task.test_options)
        job.test_scores = {name: value for name, value in test_scores.items() if isinstance(value, float)}
        job.run.log(step=job.progress.step, test=job.test_scores)
    amounts = job.task.count_examples(sets["train"]), job.task.count_examples(job.valid_rows)
    family = find_family_map(model.body).family
    settings = job.settings.to_dict() | {"steps": job.progress.step}
    scores = (job.best_scores, job.test_scores)
    card = model_card(settings, num_parameters(model), *amounts, *scores, family, job.data.fingerprint)
    replace_file(job.run.folder / "README.md", card.encode())
