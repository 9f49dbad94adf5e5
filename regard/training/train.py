"""One training run, from settings to a finished folder.

for step in train("translate", data=("train.en", "train.de"), minutes=10):
    print(step.number, step.loss, step.scores)
"""

from __future__ import annotations

import hashlib
import math
import time
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch

from regard.data.bundled import phrasebook
from regard.data.lint import Report, lint
from regard.data.text import Pair, from_memory, hold_out, read
from regard.data.tokens import Tokenizer
from regard.data.tokens import learn as learn_tokens
from regard.device import pick_device
from regard.generate import Decoding
from regard.hub.folder import names_of, read_json, read_weights
from regard.models import MODELS
from regard.parts.heads import Model
from regard.tasks import TASKS
from regard.training import pace
from regard.training.card import card
from regard.training.loop import Progress, Step, learn, parameters
from regard.training.run import Lock, Run, as_line
from regard.training.save import replace_file
from regard.training.settings import Settings, start

DEFAULT_MINUTES = 3.0


@dataclass
class Job:
    """A run that is ready to start, or to go on."""

    settings: Settings
    run: Run
    lock: Lock
    report: Report
    pairs: dict[str, list[Pair]]
    task: Any
    examples: Any
    progress: Progress
    began: float  # for the promise of --minutes
    best: dict[str, Any] = field(default_factory=dict)  # scores of the weights in model.safetensors, and their step
    worse: int = 0  # checks in a row that were not the best
    test: dict[str, Any] = field(default_factory=dict)
    troubles: list[str] = field(default_factory=list)  # saves that could not be used

    @property
    def check_every(self) -> int:
        assert self.settings.plan.steps
        return max(1, math.ceil(self.settings.plan.steps / self.settings.keeping.checks))

    @property
    def valid(self) -> list[Pair]:
        """What is looked at in each check."""
        return self.pairs["valid"][: self.settings.keeping.check_pairs]


def train(task: str = "translate", **options: Any) -> Iterator[Step]:
    """Train, and yield every step; the run folder is complete when the last one is out."""
    return carry_out(planned(prepare(start(task, **options))))


def prepare(settings: Settings) -> Job:
    """Data checked, tokenizer learnt, model made or taken from its newest save. Of a new run nothing is written yet."""
    began = time.perf_counter()
    keeping = settings.keeping
    folder = Path(keeping.out or f"runs/{settings.task}")
    run = Run(folder) if keeping.resume else Run.new(folder, keeping.overwrite)
    lock = Lock(folder)
    try:
        if keeping.threads:
            torch.set_num_threads(keeping.threads)
        pairs, report = read_sets(settings)
        if keeping.resume and read_json(folder / "train.json").get("fingerprint") != fingerprint(pairs):
            raise ValueError(f"the data is not what {folder} was trained on: put it back, or start a new run")
        texts = (text for pair in pairs["train"] for text in pair[:2])
        tokenizer = Tokenizer.load(folder) if keeping.resume else learn_tokens(texts, settings.pieces)
        task = TASKS[settings.task](**settings.aim, tokenizer=tokenizer)
        examples = task.prepare(pairs["train"])
        for name, some in pairs.items():
            task.refuse_long(some, examples if name == "train" else task.prepare(some), settings.body["context"])
        plan = replace(settings.plan, rate=settings.plan.rate or 0.64 / settings.body["dim"])
        pieces = replace(settings.pieces, vocab=len(tokenizer))
        settings = replace(settings, plan=plan, pieces=pieces)
        progress = Progress.new(make_model(settings, task), plan)
        job = Job(settings, run, lock, report, pairs, task, examples, progress, began)
        if keeping.resume:
            facts, job.troubles = run.resume(progress)
            job.best, job.worse = facts["best"], facts["worse"]
    except BaseException:
        lock.release()
        run.abandon()
        raise
    return job


def planned(job: Job) -> Job:
    """The length of the run as a number of steps; with that, all that never changes is written to the run folder."""
    s = job.settings
    plan, checks = s.plan, s.keeping.checks
    if plan.steps is None and plan.epochs is not None:
        plan = replace(plan, steps=pace.steps_of(plan.epochs, job.examples, plan))
    elif plan.steps is None:
        plan = replace(plan, minutes=DEFAULT_MINUTES if plan.minutes is None else plan.minutes)
        assert plan.minutes
        data = (job.examples, plan, checks, job.valid, job.pairs.get("test", []))
        steps, checks = pace.within(plan.minutes * 60, job.began, job.progress.model, job.task, *data)
        plan = replace(plan, steps=steps)
    assert plan.steps
    plan = replace(plan, warmup=min(2000, plan.steps // 10) if plan.warmup is None else plan.warmup)
    job.settings = replace(s, plan=plan, keeping=replace(s.keeping, checks=checks))
    if not s.keeping.resume:
        told = {"task": s.task, **s.aim, "seen": int(job.examples.lengths[:, 0].max())}
        kept = {**job.settings.flat(), "resume": False, "overwrite": False, "fingerprint": fingerprint(job.pairs)}
        job.run.clear()
        job.run.describe(job.progress.model, job.task.tokenizer, told, kept)
    return job


def fingerprint(pairs: dict[str, list[Pair]]) -> str:
    """The same for the same sentences, wherever their files lie."""
    digest = hashlib.blake2b(digest_size=16)
    for name in ("train", "valid"):
        for pair in pairs[name]:
            digest.update(f"{pair.source}\t{pair.target}\n".encode())
    return digest.hexdigest()


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


def make_model(settings: Settings, task: Any) -> Model:
    family = MODELS[settings.model]
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(settings.plan.seed)
        body = family.body(family.config(**settings.body, vocab=len(task.tokenizer), pad=task.tokenizer.pad))
        model: Model = task.head(body).to(pick_device(settings.keeping.device))
    if settings.keeping.compile:
        body.compile()
    return model


def carry_out(job: Job) -> Iterator[Step]:
    """Learn, validate, save, and leave the best weights in the folder."""
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
    pairs = job.valid
    scores = job.task.score(job.progress.model.eval(), pairs)
    numbers = {name: value for name, value in scores.items() if isinstance(value, float)}
    if not job.best or job.task.rank(numbers) > job.task.rank(job.best):
        job.best = {"step": job.progress.step, **numbers}
        job.run.publish(job.progress.model)
    shown = sorted({i * len(pairs) // 3 for i in range(3)})
    told = [{"source": pairs[i].source, "wanted": pairs[i].target, "answer": scores["answers"][i]} for i in shown]
    job.run.log(step=job.progress.step, valid=numbers, samples=told)
    return {**numbers, "samples": told}


def save(job: Job) -> Path:
    facts = {"best": job.best, "worse": job.worse}
    keeping = job.settings.keeping
    return job.run.save(job.progress, facts, max(keeping.keep, keeping.average_last + 1))


def finish(job: Job) -> None:
    """Try the mean of the last saves, load the best weights, score them on the test set, and write the model card."""
    model, count = job.progress.model, job.settings.keeping.average_last
    if count:
        model.load_state_dict(job.run.averaged(count, job.check_every), strict=False)
        judge(job)
    read_weights(job.run.folder / "model.safetensors", names_of(model.body), model)
    if "test" in job.pairs:
        scores = job.task.score(model.eval(), job.pairs["test"], Decoding())
        job.test = {name: value for name, value in scores.items() if isinstance(value, float)}
        job.run.log(step=job.progress.step, test=job.test)
    about = card(job.settings.flat(), parameters(model), len(job.pairs["train"]), len(job.valid), job.best, job.test)
    replace_file(job.run.folder / "README.md", about.encode())
