"""Where a run begins: the task fitted to its rows, and the model, from scratch or from one that is there.

from scratch        sizes as chosen, weights by chance
--from MODEL        sizes, weights and readers of the model; its head too, if it is for the same task
--resume            sizes of the run; its weights come from its newest save
"""

from __future__ import annotations

import os
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from regard.data.batches import Examples
from regard.data.corpus import Windows
from regard.data.vectors import read_vectors
from regard.device import resolve_device
from regard.hub.folder import read_config, read_weights
from regard.hub.names import Names, Plain
from regard.hub.remote import find
from regard.models import MODELS
from regard.parts.heads import Model
from regard.purpose import READERS, agreed, read_readers, read_task, task_of
from regard.tasks import TASKS
from regard.tasks.task import Task
from regard.training.optimizer import freeze
from regard.training.settings import Settings

WINDOW = 64  # tokens: windows are a multiple of it
DEEPEST, WIDEST = 2**12, 2**24  # the most layers, and the most of any other size


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
    if keeping.vectors and not keeping.resume:
        start_words(body, task, keeping.vectors)
    if keeping.compile:
        body.compile()
    return model.to(resolve_device(keeping.device))


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
        run = Path(keeping.out or f"runs/{settings.task}")
        return agreed(read_config(run, weights=False)[1], task, run)
    if keeping.from_:
        begun = find(keeping.from_)
        return replace(agreed(read_config(begun)[1], task, begun), dropout=settings.body["dropout"])
    known = {field.name for field in fields(config)}
    made = config(**settings.body, **{name: value for name, value in task.sizes().items() if name in known})
    must_have_room(made, MODELS[settings.model].bodies[settings.ability])
    return made


def window_for(settings: Settings, task: Any, config: Any, examples: Examples) -> int:
    """How many tokens of a model's context the training uses: what is asked for, or, of a text that is cut into
    windows, as many as its longest document has, or as a batch holds."""
    whole = int(getattr(config, "context", 0))
    if settings.body.get("context", whole) is not None or not isinstance(examples, Windows):
        return settings.body.get("context") or whole
    ends = np.flatnonzero(examples.ids == task.tokenizer.begin)
    longest = int(np.diff(ends, append=len(examples.ids)).max()) if len(ends) > 1 else len(examples.ids)
    return min(whole, settings.plan.batch_tokens, -(-longest // WINDOW) * WINDOW)


def use_window(model: Model, context: int) -> None:
    """Let the tasks see a context of this length. What the model is made of stays: positions, and what is saved."""
    if context:
        model.body.config = replace(model.body.config, context=context)


def must_have_room(config: Any, body: Any) -> None:
    """Refuse sizes that no memory holds, before anything of that size is made."""
    for name, size in ((field.name, getattr(config, field.name)) for field in fields(config) if field.type == "int"):
        most = DEEPEST if name.endswith("layers") or name == "stages" else WIDEST
        if size > most:
            raise ValueError(f"{name.replace('_', '-')} must be at most {most:,}, not {size:,}")
    try:
        with torch.device("meta"):  # tensors there have a shape and no numbers
            made = body(config)
    except (RuntimeError, ArithmeticError) as error:
        raise ValueError(f"no model can have these sizes: {error}") from None
    numbers = sum(tensor.numel() for tensor in (*made.parameters(), *made.buffers()))
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    if 8 * numbers > memory:  # four bytes for each, and as many for its gradient
        largest = max((f.name for f in fields(config) if f.type == "int"), key=lambda name: getattr(config, name))
        raise ValueError(
            f"a model of these sizes has {numbers:,} numbers, too many for the {memory >> 30} GB of this machine: "
            f"take smaller ones; the largest is {largest.replace('_', '-')}, {getattr(config, largest):,}"
        )


def fitted(settings: Settings, rows: Any) -> tuple[Settings, Task]:
    """The task, fitted to its rows. A model that it starts from reads as before, and keeps a head for the same task."""
    keeping = settings.keeping
    begun = find(keeping.from_) if keeping.from_ else None
    readers = read_readers(begun, {*READERS}) if begun else {}
    if begun and "tokenizer" not in readers and settings.ability not in ("sees", "hears", "bonds", "foresees"):
        raise ValueError(f"{begun} has no tokenizer, and with another one its model could not read")
    task = TASKS[settings.task].fit(rows, settings.ability, settings.reading, readers, **settings.aim)
    if begun is None or keeping.new_head:
        return settings, task
    if task_of(begun) != settings.task:
        return replace(settings, keeping=replace(keeping, new_head=True)), task
    return settings, under_its_head(task, begun, settings.ability)


def under_its_head(task: Task, folder: Path, ability: str) -> Task:
    """The task, for the answers that the head in a folder knows."""
    began: Any = read_task(folder)
    for answers in {"labels", "tags"} & set(task.of_the_head):
        known = getattr(began, answers)
        if strange := [one for one in getattr(task, answers) if one not in known]:
            raise ValueError(
                f"the head of {folder} tells apart {len(known)} {answers}, and {strange[0]!r} is none of them: "
                f"--new-head puts a new one on its body"
            )
    usual = {field.name: field.default for field in fields(began)} | task.usual(ability)
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
