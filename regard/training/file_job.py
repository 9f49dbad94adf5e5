"""Training on files: reads them, fits the task, plans the length of the run, evaluates, and keeps the best weights."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

from regard.atomic import replace_file
from regard.data.batches import Examples
from regard.data.documents import RowSet, describe_amount, first_rows
from regard.data.splits import Data
from regard.data.tokenizer_train import TokenizerOptions
from regard.device import resolve_device
from regard.hub.folder import find_family_map, read_weights
from regard.hub.task_config import read_task
from regard.parts.heads import Model
from regard.tasks.shared_batches import shared_among
from regard.training import time_budget
from regard.training.build import config_for, encode_examples, fit_task, make_model, read_data, use_window
from regard.training.card import model_card
from regard.training.checkpoint import list_checkpoints
from regard.training.job import Job
from regard.training.loop import NonFiniteError, Progress, Step, train_steps
from regard.training.nonfinite import explain_nonfinite
from regard.training.passes import default_dtype
from regard.training.rank_checks import check_accumulation, check_batch_norm
from regard.training.ranks import SINGLE, OtherRankError
from regard.training.run_folder import RunFolder, RunLock, metrics_line
from regard.training.settings import Settings
from regard.training.time_budget import Stopwatch, TimeBudget

DEFAULT_MINUTES = 3.0
RESTORED = ("best_scores", "num_bad_evals", "last_eval")  # attributes that a checkpoint holds


class FileJob(Job):
    data: Data
    examples: Examples

    def __init__(self, settings: Settings, run: RunFolder, lock: RunLock):
        super().__init__(settings, run, lock)
        self.startup = Stopwatch()
        self.budget: TimeBudget | None = None  # of --minutes
        self.best_scores: dict[str, float] = {}  # of the weights in model.safetensors, and their step
        self.test_scores: dict[str, float] = {}
        self.num_bad_evals = 0  # evaluations in a row without improvement
        self.last_eval = 0  # the last evaluated step
        self.context = 0  # of the model; training may use less of it
        self.is_finishing = False  # all steps are complete

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
    def valid_rows(self) -> RowSet:
        return first_rows(self.data.sets["valid"], self.settings.run_options.eval_examples or self.task.eval_limit)

    def prepare(self) -> None:
        self.ranks.agree(lambda: check_accumulation(self.settings.train_options.grad_accum, self.ranks))
        self.data = self.ranks.agree(lambda: read_data(self.settings))
        self.startup.lap("reading the data")
        if self.is_resumed:
            checkpoint, state = self.open_checkpoint()
            self.task = self.ranks.agree(lambda: read_task(self.run.folder))
        else:
            self.settings, self.task = self.ranks.first(lambda: fit_task(self.settings, self.data.sets["train"]))
        self.startup.lap("tokenizer or labels")
        model = self.ranks.agree(self.make_model)
        self.progress = Progress.new(model, self.settings.train_options, self.ranks)
        self.startup.lap("model")
        if self.is_resumed:
            self.run.restore(self.progress, checkpoint, state)
            self.restore(state)

    def make_model(self) -> Model:
        """Encode the rows, and build the model for them."""
        config, sets = config_for(self.settings, self.task), self.data.sets
        self.context = getattr(config, "context", 0)
        self.settings, self.examples = encode_examples(self.settings, self.task, self.context, sets["train"])
        window = self.settings.context or self.context
        for name in sets.keys() - {"train"}:
            self.task.encode(sets[name], window)  # raises now what would not fit later
        self.startup.lap("encoding")
        default_lr = (0.2 if self.settings.run_options.from_ else 0.64) / config.dim
        train_options, device = self.settings.train_options, resolve_device(self.settings.run_options.device)
        dtype = train_options.dtype or default_dtype(device)
        train_options = replace(train_options, lr=train_options.lr or default_lr, dtype=dtype)
        vocab_size = self.task.sizes().get("vocab", 0)
        input_options = self.settings.input_options.updated(TokenizerOptions, vocab_size=vocab_size)
        self.settings = replace(self.settings, train_options=train_options, input_options=input_options)
        model = make_model(self.settings, self.task)
        check_batch_norm(self.settings.model, model, self.ranks)
        use_window(model, window)
        return model

    def restore(self, state: dict[str, Any]) -> None:
        """Restore scores so far, revisions of the number of steps, and the time used."""
        for name in RESTORED:
            setattr(self, name, state[name])
        train_options = replace(self.settings.train_options, revisions=tuple(state["revisions"]))
        self.settings = replace(self.settings, train_options=train_options)
        if train_options.minutes is not None:
            self.budget = TimeBudget(train_options.minutes * 60, self.startup.start, **state["time_budget"])

    def stored_settings(self) -> dict[str, object]:
        return super().stored_settings() | {"fingerprint": self.data.fingerprint}

    def plan(self) -> Self:
        """Set the number of steps, and write the files of the run folder that never change."""
        train_options, evals = self.settings.train_options, self.settings.run_options.evals
        if train_options.steps is None and train_options.epochs is not None:
            steps = round(train_options.epochs * time_budget.steps_per_epoch(self.examples, train_options))
            train_options = replace(train_options, steps=max(1, steps))
        elif train_options.steps is None:
            minutes = DEFAULT_MINUTES if train_options.minutes is None else train_options.minutes
            self.budget = TimeBudget(minutes * 60, self.startup.start)
            data = (self.examples, train_options, evals, self.valid_rows, self.data.sets.get("test"))
            with self.progress.unsharded() as model:
                trial = Progress.new(deepcopy(model), train_options, self.ranks)
            steps, evals = self.ranks.broadcast(time_budget.plan_steps(self.budget, trial, self.task, *data))
            train_options = replace(train_options, minutes=minutes, steps=steps)
            self.startup.lap("timing")
        assert train_options.steps
        if train_options.warmup_steps is None:
            train_options = replace(train_options, warmup_steps=min(2000, train_options.steps // 10))
        run_options = replace(self.settings.run_options, evals=evals)
        self.settings = replace(self.settings, train_options=train_options, run_options=run_options)
        self.budget = self.ranks.broadcast(self.budget)
        if self.budget is not None and self.ranks.size > 1:
            self.budget.clock = lambda: self.progress.clock
        if not self.is_resumed:
            window = getattr(self.progress.model.body.config, "context", 0)
            use_window(self.progress.model, self.context)
            self.describe()
            use_window(self.progress.model, window)
        return self

    def steps_to_end(self) -> Iterator[Step]:
        patience, budget = self.settings.run_options.patience, self.budget
        self.agree_on_time()
        if self.is_eval_step and self.last_eval < self.progress.step:  # interrupted during its evaluation
            self.run_eval()
            self.save()
        steps, mark = self.remaining_steps(), self.now
        while not (patience and self.num_bad_evals >= patience) and (step := next(steps, None)) is not None:
            self.run.log(**metrics_line(step))
            if budget is not None:
                budget.observe(self.now - mark)
            revisions = self.settings.train_options.revisions
            if self.is_eval_step:
                scores = self.run_eval()
                self.revise(at_save=True)
                self.save()
                step = replace(step, scores=scores)
            elif self.revise(at_save=False):
                self.save()
            if self.settings.train_options.revisions != revisions:
                steps = self.remaining_steps()
            mark = self.now
            yield step
        self.finish()

    def remaining_steps(self) -> Iterator[Step]:
        return train_steps(self.progress, self.task, self.examples, self.settings.train_options)

    @property
    def now(self) -> float:
        """The time of the last step, evaluation or save on the clock of the first rank, if there are several."""
        return time.perf_counter() if self.ranks.size == 1 else self.progress.clock

    def agree_on_time(self) -> None:
        self.progress.clock = self.ranks.broadcast(time.perf_counter())

    def explain(self, error: NonFiniteError) -> Exception:
        rows = self.data.sets["train"]
        with self.progress.unsharded() as model:
            if not self.ranks.is_first:
                return OtherRankError(f"rank 0: {error}", exit_code=3)
            return explain_nonfinite(error, model, self.task, self.examples, rows, self.run.folder)

    def revise(self, at_save: bool) -> bool:
        """Revise the number of steps if another one fits the time; the checkpoint that follows stores it."""
        if self.budget is None:
            return False
        revision = self.budget.revision(self.progress.step, self.steps, self.eval_every, at_save)
        if revision is None:
            return False
        self.settings = replace(self.settings, train_options=self.settings.train_options.with_revision(revision))
        seconds = round(self.budget.step_seconds, 4)
        self.run.log(step=revision.step, total_steps=revision.steps, seconds_per_step=seconds)
        return True

    def run_eval(self) -> dict[str, object]:
        """Evaluate the EMA weights; publish them if they are the best so far."""
        start = self.now
        with self.progress.averaged(), self.progress.unsharded() as model:
            scores = self.evaluate(model)
        self.num_bad_evals = 0 if self.best_scores["step"] == self.progress.step else self.num_bad_evals + 1
        self.last_eval = self.progress.step
        if self.budget is not None:
            self.agree_on_time()
            self.budget.eval_cost = (self.now - start) / self.budget.step_seconds + self.budget.save_cost
        return scores

    def evaluate(self, model: Model) -> dict[str, object]:
        numbers, samples = self.score(model, self.valid_rows)
        if not self.best_scores or self.task.rank(numbers) > self.task.rank(self.best_scores):
            self.best_scores = {"step": self.progress.step, **numbers}
            self.run.publish(model)
        self.run.log(step=self.progress.step, valid=numbers, samples=samples)
        return {**numbers, "samples": samples}

    def score(self, model: Model, rows: RowSet, options: Any = None) -> tuple[dict[str, float], Any]:
        """The metrics of a model, and samples of its predictions: those of the first rank, on all ranks."""
        with shared_among(self.ranks):
            scores = self.task.score(model.eval(), rows, options)
        return self.ranks.broadcast((scores.metrics, scores["samples"]))

    def save(self) -> Path:
        """Write a checkpoint of the last complete step. Any thread may call it, unless there are several ranks."""
        start, run_options, budget = self.now, self.settings.run_options, self.budget
        folder = self.write_checkpoint(self.state(), max(run_options.keep, run_options.average_checkpoints + 1))
        if budget is not None:
            self.agree_on_time()
            budget.last_save = self.now
            budget.save_cost = (budget.last_save - start) / budget.step_seconds
        return folder

    def state(self) -> dict[str, object]:
        """What a checkpoint holds besides tensors and position."""
        state: dict[str, object] = {name: getattr(self, name) for name in RESTORED}
        state["revisions"] = self.settings.train_options.revisions
        if self.budget is not None:
            state["time_budget"] = self.budget.state()
        return state

    def save_interrupted(self) -> Path:
        """Save for a process that is about to exit, from any thread. Before the first evaluation, the current weights
        are published, so that the folder can be used."""
        with self.progress.lock:
            if self.is_finishing or self.progress.is_updating:  # the last step is saved, or an error has torn the next
                return next(iter(list_checkpoints(self.run.folder)), self.run.folder)
            folder = self.save()
            if not self.best_scores:
                with self.progress.averaged(), self.progress.unsharded() as model:
                    self.run.publish(model)
        return folder

    def save_alone(self) -> Path:
        """Save without the other ranks, from any thread. Only whole weights can be: of a sharded run, the newest
        checkpoint is returned."""
        if self.ranks.size > 1 and self.ranks.is_first and not self.ranks.is_sharded:
            self.ranks, self.run = SINGLE, RunFolder(self.run.folder)
        if self.ranks.size == 1:
            return self.save_interrupted()
        return next(iter(list_checkpoints(self.run.folder)), self.run.folder)

    def finish(self) -> None:
        """Evaluate the mean of the last checkpoints, load the best weights, score the test set, write the card."""
        count, sets = self.settings.run_options.average_checkpoints, self.data.sets
        with self.progress.lock:
            self.is_finishing = True
        self.ranks.wait()  # until the first rank has written the last checkpoint
        with self.progress.unsharded() as model:
            if count:
                self.run.load_average(model, count, self.eval_every)
                self.evaluate(model)
                self.ranks.wait()
            self.run.finish_weights()
            read_weights(self.run.folder, find_family_map(model.body), model)
            if "test" in sets:
                self.test_scores, _ = self.score(model, sets["test"], self.task.test_options)
                self.run.log(step=self.progress.step, test=self.test_scores)
        self.ranks.first(self.write_card)

    def write_card(self) -> None:
        model, sets, unit = self.progress.model, self.data.sets, self.settings.fit.modality.unit
        facts = {"steps": self.progress.step, "fingerprint": self.data.fingerprint}
        facts |= {"amount": describe_amount(sets["train"], unit), "valid": describe_amount(self.valid_rows, unit)}
        card = model_card(self.settings, model, self.best_scores, self.test_scores, **facts)
        replace_file(self.run.folder / "README.md", card.encode())
