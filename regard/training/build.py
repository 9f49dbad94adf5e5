"""Build the task and the model of a run, from scratch or from an existing model.

from scratch        the sizes of the settings, random weights
--from MODEL        sizes, weights and preprocessors of the model; its head as well, if it is for the same task
--resume            the sizes of the run; the newest checkpoint holds its weights
"""

from __future__ import annotations

import os
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from regard.data.batches import Examples
from regard.data.documents import RowSet
from regard.data.splits import Data
from regard.data.token_corpus import TokenWindows
from regard.data.word_vectors import read_word_vectors
from regard.device import resolve_device
from regard.hub.dataset_files import resolve_data
from regard.hub.family_map import FamilyMap, IdentityMap
from regard.hub.folder import read_config, read_weights
from regard.hub.remote import find_model
from regard.hub.task_config import find_preprocessor, read_task, read_task_file, read_task_name, reconcile_config
from regard.modalities.protocols import FitOptions, Modality, Preprocessor, ReadOptions
from regard.models import MODELS
from regard.options import option_flag
from regard.parts.heads import Model
from regard.tasks import TASKS
from regard.tasks.task import Task
from regard.training.optimizer import freeze
from regard.training.passes import apply_passes
from regard.training.settings import Settings, default_overrides

WINDOW_MULTIPLE = 64  # tokens
MAX_LAYERS, MAX_SIZE = 2**12, 2**24  # the largest number of layers, and of any other size


def read_data(settings: Settings) -> Data:
    """The linted sets train, valid and test."""
    files, fit = resolve_data(settings.files, settings.run_options.download or None), settings.fit
    groups = settings.input_options
    multi_label = bool(settings.task_options.get("multi_label"))
    how = ReadOptions(TASKS[settings.task].target, files.fields, files.dialect, multi_label, groups=groups)
    return fit.modality.read_sets(files, how, fit.output)


def make_model(settings: Settings, task: Task) -> Model:
    run_options = settings.run_options
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(settings.train_options.seed)
        body = settings.fit.body(config_for(settings, task))
        model = task.head(body)
    if run_options.from_ and not run_options.resume:
        folder = find_model(run_options.from_)
        names = read_config(folder)[0]
        if run_options.new_head:
            init_head(model, names, read_weights(folder, names, Model(body, nn.Identity()), only="body.").preserved)
        else:
            read_weights(folder, names, model)
    freeze(model, run_options.freeze)
    if run_options.vectors and not run_options.resume:
        init_embeddings(body, task, run_options.vectors)
    apply_passes(model, run_options.recompute, run_options.compile)
    return model.to(resolve_device(run_options.device))


@torch.no_grad()
def init_head(model: Model, names: FamilyMap | IdentityMap, unused: dict[str, Tensor]) -> None:
    """Initialise those weights of a new head that the folder of a body holds: BERT's pooler."""
    names = names.with_head(model.head)
    if not isinstance(names, FamilyMap) or names.head is None:
        return
    for hf_name, name_in_model in names.head.weights.items():
        for name in {hf_name, hf_name.removeprefix(names.prefix)} & unused.keys():
            model.get_parameter(str(name_in_model)).copy_(unused[name])


def config_for(settings: Settings, task: Task) -> Any:
    """The config of the settings, of the resumed run, or of the model of --from. A new model must fit into memory."""
    config, run_options = any_config_for(settings, task), settings.run_options
    if not run_options.resume and not run_options.from_:
        check_memory(config, settings.fit.body)
    return config


def any_config_for(settings: Settings, task: Task) -> Any:
    """The same for a model of any size."""
    config_class, run_options = MODELS[settings.model].config, settings.run_options
    if run_options.resume:
        return reconcile_config(read_config(settings.folder, weights=False)[1], task, settings.folder)
    if run_options.from_:
        folder = find_model(run_options.from_)
        return replace(reconcile_config(read_config(folder)[1], task, folder), dropout=settings.body["dropout"])
    names = {field.name for field in fields(config_class)}
    return config_class(**settings.body, **{name: value for name, value in task.sizes().items() if name in names})


def encode_examples(settings: Settings, task: Task, context: int, rows: RowSet) -> tuple[Settings, Examples]:
    """The training examples, and settings with the context that they use, of the model's `context`."""
    examples = task.encode(rows, settings.context or context)
    window = window_for(settings, task, context, examples)
    if settings.body.get("context", window) != window:
        settings = replace(settings, body=settings.body | {"context": window})
        examples = task.encode(rows, window) if window < context else examples
    return settings, examples


def window_for(settings: Settings, task: Task, context: int, examples: Examples) -> int:
    """How many tokens of the model's context the training uses: --context or, for running text, the length of the
    longest document, at most a batch."""
    if settings.context or not context or not isinstance(examples, TokenWindows):
        return settings.context or context
    longest = examples.corpus.longest_document(task.tokenizer.bos_token_id)
    return min(context, settings.train_options.batch_tokens, -(-longest // WINDOW_MULTIPLE) * WINDOW_MULTIPLE)


def use_window(model: Model, context: int) -> None:
    """Set the context that the tasks use. The position weights, and what the run saves, do not change."""
    if context:
        model.body.config = replace(model.body.config, context=context)


def check_memory(config: Any, body_class: type[nn.Module]) -> None:
    """Raises ValueError for sizes that do not fit into memory, before it allocates anything."""
    count = check_sizes(config, body_class)
    memory = memory_bytes()
    if 8 * count > memory:  # 4 bytes for a parameter, and 4 for its gradient
        largest = max((f.name for f in fields(config) if f.type == "int"), key=lambda name: getattr(config, name))
        raise ValueError(
            f"a model of these sizes has {count:,} parameters, too many for the {memory >> 30} GB of this machine: "
            f"reduce the sizes; the largest is {largest.replace('_', '-')}, {getattr(config, largest):,}"
        )


def memory_bytes() -> int:
    """Memory of this machine."""
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def check_sizes(config: Any, body_class: type[nn.Module]) -> int:
    """The numbers in weights and buffers of a body. Raises ValueError for sizes with which none can be built."""
    for name, size in ((field.name, getattr(config, field.name)) for field in fields(config) if field.type == "int"):
        maximum = MAX_LAYERS if name.endswith("layers") or name == "stages" else MAX_SIZE
        if size > maximum:
            raise ValueError(f"{name.replace('_', '-')} must be at most {maximum:,}, not {size:,}")
    try:
        with torch.device("meta"):  # tensors with a shape and no storage
            body = body_class(config)
    except (RuntimeError, ArithmeticError) as error:
        raise ValueError(f"invalid sizes: {error}") from None
    return sum(tensor.numel() for tensor in (*body.parameters(), *body.buffers()))


def fit_task(settings: Settings, rows: RowSet) -> tuple[Settings, Task]:
    """The task, fitted to its rows. With --from it has the model's preprocessors, and its head for the same task."""
    run_options, kind = settings.run_options, TASKS[settings.task]
    folder = find_model(run_options.from_) if run_options.from_ else None
    preprocessor, *output = fit_preprocessors(settings, rows, folder)
    task = kind.fit(rows, preprocessor, output[0] if output else None, **settings.task_options)
    if folder is None or run_options.new_head:
        return settings, task
    if read_task_name(folder) != settings.task:
        return replace(settings, run_options=replace(run_options, new_head=True)), task
    return settings, with_head_of(task, folder, settings)


def fit_preprocessors(settings: Settings, rows: RowSet, folder: Path | None) -> list[Preprocessor]:
    """Those of inputs and, if they are of another modality, of outputs; new or from a folder."""
    fit, task, start = settings.fit, TASKS[settings.task], dict[Modality, Preprocessor | None]()
    if folder is not None:
        stored = read_task_file(folder) or {}
        modality, start[fit.modality] = find_preprocessor(folder, stored, settings.model)
        if fit.modality is not modality:
            raise ValueError(f"the model of --from reads {modality.unit}, but --data are {fit.modality.unit}")
        if fit.output and fit.output is not modality:
            start[fit.output] = fit.output.load(folder, stored)
        if any(start[modality] is None and "vocab" in modality.size_names for modality in start):
            raise ValueError(f"{folder} has no tokenizer, and a new one would not match its embeddings: add its files")
    layout, groups = task.token_layout(**settings.task_options), settings.input_options
    modalities = dict.fromkeys((fit.modality, fit.output or fit.modality))
    return [kind.fit(rows, FitOptions(task.target, groups, start.get(kind), layout)) for kind in modalities]


def with_head_of(task: Task, folder: Path, settings: Settings) -> Task:
    """The task, with the labels and options of the head in a folder."""
    source = read_task(folder)
    for labels in {"labels", "tags"} & set(task.head_fields):
        head_labels = getattr(source, labels)
        if unknown := [label for label in getattr(task, labels) if label not in head_labels]:
            problem = f"the head of {folder} has {len(head_labels)} {labels}, and {unknown[0]!r} is none of them"
            raise ValueError(f"{problem}: add --new-head to train a new head")
    defaults = {field.name: field.default for field in fields(source)} | default_overrides(settings.task, settings.fit)
    for option in {"pooling", "multi_label"} & set(task.head_fields):
        value, head_value = getattr(task, option), getattr(source, option)
        if value not in (head_value, defaults[option]):
            remedy = f"leave out {option_flag(option)}, or add --new-head"
            raise ValueError(f"the head of {folder} has {option} {head_value}: {remedy}")
    return replace(task, **{name: getattr(source, name) for name in task.head_fields})


@torch.no_grad()
def init_embeddings(body: nn.Module, task: Task, file: str) -> None:
    """Initialise the embeddings of words that are one token with pre-trained vectors, scaled to the same spread."""
    tokens = getattr(body, "tokens", None)
    if tokens is None or (task.output or task.preprocessor).tokenizer is None:
        raise ValueError("--vectors initialises embeddings of words, but this model has none: leave it out")
    names = task.tokenizer.convert_ids_to_tokens(range(len(task.tokenizer)))
    words = {name.lstrip("▁Ġ"): i for i, name in enumerate(names) if name[:1] in "▁Ġ" and len(name) > 1}
    vectors = read_word_vectors(file, set(words))
    if not vectors:
        raise ValueError(f"{file}: none of its words is a token: use vectors of the language of --data")
    table, size = tokens.weight, len(next(iter(vectors.values())))
    if size != table.size(1):
        raise ValueError(f"{file}: its vectors have {size} dimensions, embeddings {table.size(1)}: add --dim {size}")
    stacked = torch.stack([torch.from_numpy(vector) for vector in vectors.values()]).to(table)
    table[[words[word] for word in vectors]] = stacked * (table.std() / stacked.std())
