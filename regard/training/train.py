"""One training run, from settings to a finished folder.

for step in train("translate", data=("train.en", "train.de"), minutes=10):
    print(step.number, step.loss, step.scores)
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from contextlib import nullcontext
from copy import deepcopy
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch

from regard.data.batches import epoch_of
from regard.data.bundled import phrasebook
from regard.data.lint import Report, lint
from regard.data.text import Pair, from_memory, hold_out, read
from regard.data.tokens import Tokenizer
from regard.data.tokens import learn as learn_tokens
from regard.device import pick_device
from regard.generate import Decoding
from regard.hub.folder import names_of, read_weights
from regard.models import MODELS
from regard.parts.heads import Model
from regard.tasks import TASKS
from regard.training.card import card
from regard.training.loop import Plan, Progress, Step, learn, parameters
from regard.training.run import Lock, Run, as_line
from regard.training.save import replace_file
from regard.training.settings import Settings, settle

DEFAULT_MINUTES = 3.0


@dataclass
class Job:
    """A run that is ready to start, or to go on."""

    settings: Settings
    run: Run
    report: Report
    pairs: dict[str, list[Pair]]
    task: Any
    examples: Any
    progress: Progress
    began: float  # for the promise of --minutes
    best: dict[str, Any] = field(default_factory=dict)  # scores of the weights in model.safetensors, and their step
    test: dict[str, Any] = field(default_factory=dict)
    troubles: list[str] = field(default_factory=list)  # saves that could not be used

    @property
    def check_every(self) -> int:
        assert self.settings.plan.steps
        return max(1, math.ceil(self.settings.plan.steps / self.settings.keeping.checks))


def train(task: str = "translate", **options: Any) -> Iterator[Step]:
    """Train, and yield every step; the run folder is complete when the last one is out."""
    return carry_out(planned(prepare(settle(task, **options))))


def prepare(settings: Settings) -> Job:
    """Data checked, tokenizer learnt, model made or taken from its newest save."""
    began = time.perf_counter()
    keeping = settings.keeping
    folder = Path(keeping.out or f"runs/{settings.task}")
    run = Run(folder) if keeping.resume else Run.new(folder, keeping.overwrite)
    if keeping.threads:
        torch.set_num_threads(keeping.threads)
    pairs, report = read_sets(settings)
    tokenizer = (
        Tokenizer.load(folder)
        if keeping.resume
        else learn_tokens((text for pair in pairs["train"] for text in pair[:2]), settings.pieces)
    )
    task = TASKS[settings.task](**settings.aim, tokenizer=tokenizer)
    examples = task.prepare(pairs["train"])
    refuse_what_does_not_fit(settings, pairs["train"], examples)
    model = make_model(settings, task)
    settings = replace(settings, pieces=replace(settings.pieces, vocab=len(tokenizer)))
    plan = replace(settings.plan, rate=settings.plan.rate or 0.64 / settings.body["dim"])
    progress = Progress.new(model, plan)
    job = Job(replace(settings, plan=plan), run, report, pairs, task, examples, progress, began)
    if keeping.resume:
        facts, job.troubles = run.resume(progress)
        job.best = facts["best"]
    return job


def planned(job: Job) -> Job:
    """Steps and warm-up as numbers, and all that never changes written to the run folder."""
    job.settings = replace(job.settings, plan=settle_plan(job))
    if not job.settings.keeping.resume:
        told = {"task": job.settings.task, **job.settings.aim, "seen": int(job.examples.lengths[:, 0].max())}
        settings = {**job.settings.flat(), "resume": False, "overwrite": False}
        job.run.describe(job.progress.model, job.task.tokenizer, told, settings)
    return job


def read_sets(settings: Settings) -> tuple[dict[str, list[Pair]], Report]:
    files = settings.files
    if files.data:
        sets: dict[str, Any] = {"train": read(files.data, files.fields)}
    else:
        parts: dict[str, list[tuple[str, str]]] = {"train": [], "valid": [], "test": []}
        for phrase in phrasebook.phrases():
            parts[phrasebook.split(phrase)].append((phrase.english, phrase.german))
        sets = {name: from_memory(some, "phrasebook") for name, some in parts.items()}
    for name, given in (("valid", files.valid), ("test", files.test)):
        if given:
            sets[name] = read(given, files.fields)
    pairs, report = lint(sets, files.longest, files.skip_bad)
    if "valid" not in pairs:
        pairs["train"], pairs["valid"] = hold_out(pairs["train"], files.held_out)
    return pairs, report


def refuse_what_does_not_fit(settings: Settings, pairs: list[Pair], examples: Any) -> None:
    context = settings.body["context"]
    worst = int(examples.lengths.max(1).argmax())
    if examples.lengths[worst].max() > context:
        raise ValueError(
            f"{pairs[worst].file}:{pairs[worst].line}: {examples.lengths[worst].max()} tokens do not fit the model's "
            f"context of {context}: leave long lines out (a lower --longest, --skip-bad) or take a larger --context"
        )


def make_model(settings: Settings, task: Any) -> Model:
    family = MODELS[settings.model]
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(settings.plan.seed)
        body = family.body(family.config(**settings.body, vocab=len(task.tokenizer), pad=task.tokenizer.pad))
        model: Model = task.head(body).to(pick_device(settings.keeping.device))
    if settings.keeping.compile:
        body.compile()
    return model


def settle_plan(job: Job) -> Plan:
    """Steps and warm-up as numbers. Minutes become steps once, from the measured speed of this machine."""
    plan = job.settings.plan
    if plan.steps is None:
        if plan.epochs is not None:
            per_epoch = len(epoch(job)) / plan.accumulate
            plan = replace(plan, steps=max(1, round(plan.epochs * per_epoch)))
        else:
            minutes = DEFAULT_MINUTES if plan.minutes is None else plan.minutes
            plan = replace(plan, minutes=minutes, steps=steps_within(job, minutes * 60))
    assert plan.steps
    warmup = min(2000, plan.steps // 10) if plan.warmup is None else plan.warmup
    return replace(plan, warmup=warmup)


def epoch(job: Job) -> list[Any]:
    plan = job.settings.plan
    return epoch_of(job.examples.lengths, plan.batch_tokens, plan.seed, 0)


def steps_within(job: Job, seconds: float) -> int:
    """How many steps this machine can do in the time, with validation, saving and a little to spare."""
    plan = replace(job.settings.plan, steps=10**9, warmup=1)
    trial = Progress.new(deepcopy(job.progress.model), plan)
    most = min(max(1.0, 0.03 * seconds), 20.0)
    began, times, counts = time.perf_counter(), [], []
    for step in learn(trial, job.task, job.examples, plan):
        times.append(step.seconds)
        counts.append(step.count)
        if len(times) >= 3 and time.perf_counter() - began > most:
            break
    lengths = job.examples.lengths
    each = sum(times[1:]) / sum(counts[1:]) * lengths[:, -1].mean() * len(lengths) / (len(epoch(job)) / plan.accumulate)
    some = job.pairs["valid"][: job.settings.keeping.check_pairs]
    length = max(1, round(job.task.prepare(some).lengths[:, -1].mean()))
    began = time.perf_counter()
    job.task.score(trial.model.eval(), some, Decoding(beam=1, shortest=length, longest=length))
    check = time.perf_counter() - began
    checks = min(job.settings.keeping.checks, max(1, int(0.15 * seconds / check)))
    job.settings = replace(job.settings, keeping=replace(job.settings.keeping, checks=checks))
    left = seconds - (time.perf_counter() - job.began) - check * (checks + 2)
    return max(1, int(0.96 * left / each))


def carry_out(job: Job) -> Iterator[Step]:
    """Learn, validate, save, and leave the best weights in the folder."""
    plan, keeping = job.settings.plan, job.settings.keeping
    assert plan.steps
    deadline = job.began + plan.minutes * 60 if plan.minutes is not None and job.progress.step == 0 else math.inf
    worse = 0  # checks in a row
    with Lock(job.run.folder):
        for step in learn(job.progress, job.task, job.examples, plan):
            job.run.log(**as_line(step))
            late = time.perf_counter() > deadline
            if step.number % job.check_every and step.number < plan.steps and not late:
                yield step
                continue
            scores = check(job)
            save(job)
            yield replace(step, scores=scores)
            worse = 0 if job.best["step"] == step.number else worse + 1
            if late or (keeping.patience and worse >= keeping.patience):
                break
        finish(job)


def check(job: Job) -> dict[str, Any]:
    """Validate with the averaged weights; publish them if they are the best so far."""
    average = job.progress.average
    with average.in_place() if average is not None else nullcontext():
        return judge(job)


def judge(job: Job) -> dict[str, Any]:
    pairs = job.pairs["valid"][: job.settings.keeping.check_pairs]
    scores = job.task.score(job.progress.model.eval(), pairs)
    numbers = {name: value for name, value in scores.items() if isinstance(value, float)}
    if not job.best or numbers[job.task.best] > job.best[job.task.best]:
        job.best = {"step": job.progress.step, **numbers}
        job.run.publish(job.progress.model)
    three = [pairs[i * len(pairs) // 3] for i in range(3)] if len(pairs) >= 3 else pairs
    told = [{"source": p.source, "wanted": p.target, "answer": scores["answers"][pairs.index(p)]} for p in three]
    job.run.log(step=job.progress.step, valid=numbers, samples=told)
    return {**numbers, "samples": told}


def save(job: Job) -> Path:
    return job.run.save(
        job.progress, {"best": job.best}, max(job.settings.keeping.keep, job.settings.keeping.average_last)
    )


def finish(job: Job) -> None:
    """Try the mean of the last saves, load the best weights, score them on the test set, and write the model card."""
    model, keeping = job.progress.model, job.settings.keeping
    if keeping.average_last:
        model.load_state_dict(job.run.averaged(keeping.average_last), strict=False)
        judge(job)
    read_weights(job.run.folder / "model.safetensors", names_of(model.body), model)
    if "test" in job.pairs:
        scores = job.task.score(model.eval(), job.pairs["test"], Decoding())
        job.test = {name: value for name, value in scores.items() if isinstance(value, float)}
        job.run.log(step=job.progress.step, test=job.test)
    about = card(job.settings.flat(), parameters(model), len(job.pairs["train"]), job.best, job.test)
    replace_file(job.run.folder / "README.md", about.encode())
