"""One training run, from settings to a finished folder.

for step in train("translate", data=("train.en", "train.de"), minutes=10):
    print(step.number, step.loss, step.scores)
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from regard.data.batches import Examples
from regard.data.files import Data
from regard.data.vectors import read_vectors
from regard.device import pick_device
from regard.hub.folder import names_of, read_config, read_json, read_weights
from regard.hub.names import Names, Plain
from regard.hub.remote import find
from regard.models import MODELS
from regard.parts.heads import Model
from regard.purpose import agreed, read_readers, read_task, task_of
from regard.tasks import TASKS
from regard.tasks.task import Task
from regard.training import pace
from regard.training.card import card
from regard.training.loop import Progress, Step, learn, parameters
from regard.training.optimizer import freeze
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
    data: Data
    task: Task
    examples: Examples
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
    def valid(self) -> Any:
        """What is looked at in each check."""
        return self.task.some(self.data.sets["valid"], self.settings.keeping.check_examples)


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
        kind, aim, reading = TASKS[settings.task], settings.aim, settings.reading
        data = kind.read(settings.files, settings.ability, reading, **aim)
        if keeping.resume and read_json(folder / "train.json").get("fingerprint") != data.fingerprint:
            raise ValueError(f"the data is not what {folder} was trained on: put it back, or start a new run")
        settings, task = (settings, read_task(folder)) if keeping.resume else fitted(settings, data.sets["train"])
        sizes = task.sizes()
        context = settings.body.get("context", 0)
        prepared = {name: task.prepare(rows, context) for name, rows in data.sets.items()}
        usual = (0.2 if keeping.from_ else 0.64) / settings.body["dim"]
        plan = replace(settings.plan, rate=settings.plan.rate or usual)
        vocab = {"vocab": sizes["vocab"]} if "vocab" in reading else {}
        settings = replace(settings, plan=plan, reading=reading | vocab)
        progress = Progress.new(make_model(settings, task), plan)
        job = Job(settings, run, lock, data, task, prepared["train"], progress, began)
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
        data = (job.examples, plan, checks, job.valid, job.data.sets.get("test"))
        steps, checks = pace.within(plan.minutes * 60, job.began, job.progress.model, job.task, *data)
        plan = replace(plan, steps=steps)
    assert plan.steps
    plan = replace(plan, warmup=min(2000, plan.steps // 10) if plan.warmup is None else plan.warmup)
    job.settings = replace(s, plan=plan, keeping=replace(s.keeping, checks=checks))
    if not s.keeping.resume:
        kept = {**job.settings.flat(), "resume": False, "overwrite": False, "fingerprint": job.data.fingerprint}
        job.run.clear()
        job.run.describe(job.progress.model, job.task, kept)
    return job


def make_model(settings: Settings, task: Task) -> Model:
    family = MODELS[settings.model]
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(settings.plan.seed)
        body: Any = family.bodies[settings.ability](config_for(settings, task))
        model: Model = task.head(body)
    keeping = settings.keeping
    if keeping.from_ and not keeping.resume:
        begun = find(keeping.from_)
        names = read_config(begun)[0]
        if keeping.new_head:
            start_head(model, names, read_weights(begun, names, Model(body, nn.Identity()), only="body.").kept)
        else:
            read_weights(begun, names, model)
    freeze(model, keeping.freeze)
    if settings.keeping.vectors and not settings.keeping.resume:
        start_words(body, task, settings.keeping.vectors)
    if settings.keeping.compile:
        body.compile()
    return model.to(pick_device(settings.keeping.device))


@torch.no_grad()
def start_head(model: Model, names: Names | Plain, beside: dict[str, Tensor]) -> None:
    """A new head begins with what the folder of a body has of it: BERT's pooler."""
    names = names.under(model.head)
    if not isinstance(names, Names) or names.head is None:
        return
    for theirs, ours in names.head.weights.items():
        for name in {theirs, theirs.removeprefix(names.prefix)} & beside.keys():
            model.get_parameter(str(ours)).copy_(beside[name])


def config_for(settings: Settings, task: Task) -> Any:
    """Sizes as they are chosen, or as the model has them that it starts from."""
    config, keeping = MODELS[settings.model].config, settings.keeping
    if keeping.resume:
        return read_config(Path(keeping.out or f"runs/{settings.task}"), weights=False)[1]
    if keeping.from_:
        begun = find(keeping.from_)
        return replace(agreed(read_config(begun)[1], task, begun), dropout=settings.body["dropout"])
    known = {field.name for field in fields(config)}
    return config(**settings.body, **{name: value for name, value in task.sizes().items() if name in known})


def fitted(settings: Settings, rows: Any) -> tuple[Settings, Task]:
    """The task, fitted to its rows. A model that it starts from reads as before, and keeps a head for the same task."""
    keeping = settings.keeping
    begun = find(keeping.from_) if keeping.from_ else None
    readers = read_readers(begun, {"tokenizer", "pictures"}) if begun else {}
    if begun and "tokenizer" not in readers and settings.ability != "sees":
        raise ValueError(f"{begun} has no tokenizer, and with another one its model could not read")
    task = TASKS[settings.task].fit(rows, settings.ability, settings.reading, readers, **settings.aim)
    if begun is None or keeping.new_head:
        return settings, task
    if task_of(begun) != settings.task:
        return replace(settings, keeping=replace(keeping, new_head=True)), task
    return settings, under_its_head(task, begun)


def under_its_head(task: Task, folder: Path) -> Task:
    """The task, for the answers that the head in a folder knows."""
    began: Any = read_task(folder)
    for answers in {"labels", "tags"} & set(task.of_the_head):
        known = getattr(began, answers)
        if strange := [one for one in getattr(task, answers) if one not in known]:
            raise ValueError(
                f"the head of {folder} tells apart {len(known)} {answers}, and {strange[0]!r} is none of them: "
                f"--new-head puts a new one on its body"
            )
    usual = {field.name: field.default for field in fields(began)}
    for option in {"pooling", "many"} & set(task.of_the_head):
        wished, has = getattr(task, option), getattr(began, option)
        if wished not in (has, usual[option]):
            raise ValueError(f"the head of {folder} has {option} {has}: leave out --{option}, or add --new-head")
    return replace(task, **{one: getattr(began, one) for one in task.of_the_head})  # type: ignore[type-var]


@torch.no_grad()
def start_words(body: Any, task: Any, file: str) -> None:
    """Words that are one piece begin with the vectors that somebody else has learnt, scaled to the size of ours."""
    if getattr(task, "tokenizer", None) is None:
        raise ValueError("--vectors is for texts, and this task reads none")
    names = task.tokenizer.pieces(range(len(task.tokenizer)))
    words = {name.lstrip("▁Ġ"): i for i, name in enumerate(names) if name[:1] in "▁Ġ" and len(name) > 1}
    found = read_vectors(file, set(words))
    if not found:
        raise ValueError(f"{file}: none of its words is a piece of this tokenizer")
    table = body.tokens.weight
    size = len(next(iter(found.values())))
    if size != table.size(1):
        raise ValueError(f"{file}: its vectors have {size} numbers, the model {table.size(1)}: add --dim {size}")
    given = torch.stack([torch.from_numpy(vector) for vector in found.values()]).to(table)
    table[[words[word] for word in found]] = given * (table.std() / given.std())


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
    scores = job.task.score(job.progress.model.eval(), job.valid)
    numbers = {name: value for name, value in scores.items() if isinstance(value, float)}
    if not job.best or job.task.rank(numbers) > job.task.rank(job.best):
        job.best = {"step": job.progress.step, **numbers}
        job.run.publish(job.progress.model)
    job.run.log(step=job.progress.step, valid=numbers, samples=scores["samples"])
    return {**numbers, "samples": scores["samples"]}


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
    read_weights(job.run.folder, names_of(model.body), model)
    sets = job.data.sets
    if "test" in sets:
        scores = job.task.score(model.eval(), sets["test"], job.task.final)
        job.test = {name: value for name, value in scores.items() if isinstance(value, float)}
        job.run.log(step=job.progress.step, test=job.test)
    amounts = job.task.amount(sets["train"]), job.task.amount(job.valid)
    family = names_of(model.body).family
    about = card(job.settings.flat(), parameters(model), *amounts, job.best, job.test, family)
    replace_file(job.run.folder / "README.md", about.encode())
