"""Settings of a run: the fields of a few dataclasses, under one flat set of names.

defaults < named size < options of the user          or, with --from, the config of that model

`resolve` reads no files: what the user named is read before (training/start.py). An unknown name is refused with the
nearest known one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import MISSING, asdict, dataclass, fields
from pathlib import Path
from typing import NamedTuple

from regard.data.splits import DataOptions
from regard.modalities import MODALITIES
from regard.modalities.protocols import Target
from regard.models import MODELS
from regard.options import Option, OptionGroups, make, normalize_value, option_flag, options_of
from regard.tasks import TASKS
from regard.tasks.compatibility import Fit, find_fit
from regard.training.loop import TrainOptions
from regard.training.trackers import TrackerName
from regard.validate import check_choice, check_minimum


@dataclass(frozen=True)
class RunOptions:
    """Where a run starts from, what it saves, and what it runs on."""

    output_dir: str | None = None  # run folder; default: runs/TASK
    from_: str | None = None  # model to start from: a folder, or a repository on the Hugging Face hub
    download: bool = False  # download --from and hf: files of --data that are not on this machine
    new_head: bool = False  # train a new head on the body of --from, even if it has one for this task
    freeze: tuple[str, ...] = ()  # modules whose weights are not trained: tokens, blocks.0, body ...
    vectors: str | None = None  # file of word vectors (word2vec text format) to initialise the token embeddings
    resume: bool = False  # continue the run in --output-dir from its newest intact checkpoint
    overwrite: bool = False  # replace the run in --output-dir
    allow_changed: bool = False  # resume even if data, settings, files or versions differ from those of the checkpoint
    evals: int = 10  # number of evaluations in the run; each one also saves a checkpoint
    eval_examples: int | None = None  # validation examples, or characters of text, per evaluation; default: by task
    keep: int = 2  # number of newest checkpoints to keep
    patience: int = 0  # stop after this many consecutive evaluations without improvement; 0 = never
    log: tuple[TrackerName, ...] = ()  # also send the metrics to: tensorboard, wandb, mlflow, trackio
    average_checkpoints: int = 0  # at the end, also evaluate the mean of this many last checkpoints; 0 = off
    device: str = "auto"  # cpu, cuda or mps; auto = the best available
    threads: int | None = None  # CPU threads; default: all cores
    shards: int = 1  # parts into which torchrun's ranks divide weights and optimizer state; 1 = each rank holds all
    recompute: bool = False  # keep only the inputs of the blocks, and compute the rest again for the gradients
    compile: bool = False  # compile the blocks with torch.compile, which takes half a minute

    def __post_init__(self) -> None:
        check_minimum(self, 1, "evals", "eval_examples", "keep", "threads", "shards")
        check_minimum(self, 0, "patience", "average_checkpoints")


class SourceModel(NamedTuple):
    """The model of --from."""

    name: str  # as the user named it
    model: str
    modality: str
    config: Mapping[str, object]
    head: Mapping[str, object]  # options of a task's head that the source's own library has


@dataclass(frozen=True)
class Settings:
    task: str
    model: str
    size: str
    modality: str
    files: DataOptions
    train_options: TrainOptions
    run_options: RunOptions
    input_options: OptionGroups  # of the modalities, and further ones of the task
    task_options: dict[str, object]  # fields of the task
    body: dict[str, object]  # fields of the model's config; a context of None is as long as the data needs

    @property
    def fit(self) -> Fit:
        return find_fit(self.task, TASKS[self.task], self.model, self.modality)

    @property
    def folder(self) -> Path:
        return run_folder(self.task, self.run_options.output_dir)

    @property
    def context(self) -> int | None:
        """Tokens of an input; None if the data or the model determine it."""
        context = self.body.get("context")
        return context if isinstance(context, int) else None

    def to_dict(self) -> dict[str, object]:
        """As train.json stores them, and as `resolve` accepts them."""
        groups = asdict(self.files) | asdict(self.train_options) | asdict(self.run_options)
        values = self.body | self.task_options | self.input_options.to_dict() | groups
        unused = MODALITIES[self.modality].unused_options
        names = {"task": self.task, "model": self.model, "size": self.size, "modality": self.modality}
        return names | {name: value for name, value in values.items() if name not in unused}


def run_folder(task: str, output_dir: object) -> Path:
    return Path(str(output_dir or f"runs/{task}"))


def derived_fields() -> set[str]:
    """Fields of a config that follow from the data."""
    return {name for modality in MODALITIES.values() for name in modality.size_names}


def config_options(model: str) -> dict[str, Option]:
    return {name: o for name, o in options_of(MODELS[model].config).items() if name not in derived_fields()}


def task_fields(task: str) -> dict[str, Option]:
    """The fields of a task that are options."""
    fitted_names = {field.name for field in fields(TASKS[task]) if field.kw_only}
    return {name: option for name, option in options_of(TASKS[task]).items() if name not in fitted_names}


def input_groups(task: str, fit: Fit) -> tuple[type, ...]:
    """Option dataclasses of the modalities and of the task."""
    target = TASKS[task].target
    groups = [*fit.modality.option_groups(target), *(fit.output.option_groups(target) if fit.output else ())]
    return (*dict.fromkeys(groups), *TASKS[task].option_groups)


def options(task: str, model: str, size: str, modality: str | None = None) -> dict[str, Option]:
    """All options of this task, model and modality, by name, with their defaults."""
    fit = find_fit(task, TASKS[task], model, modality)
    available: dict[str, Option] = {}
    groups = [options_of(group) for group in (DataOptions, TrainOptions, RunOptions, *input_groups(task, fit))]
    for group in (*groups, task_fields(task), config_options(model)):
        assert not group.keys() & available.keys(), f"two options are named {group.keys() & available.keys()}"
        available |= {name: option for name, option in group.items() if name not in fit.modality.unused_options}
    for name, value in (MODELS[model].sizes[size] | default_overrides(task, fit)).items():
        if name in available:
            available[name] = available[name]._replace(default=value)
    return available


def units_with_option(name: str, target: Target) -> list[str]:
    """The inputs, as texts or images, that have an option of this name."""
    kinds = MODALITIES.values()
    return [kind.unit for kind in kinds if any(name in options_of(group) for group in kind.option_groups(target))]


def default_overrides(task: str, fit: Fit) -> dict[str, object]:
    return {**fit.modality.default_overrides, **TASKS[task].default_overrides}


def default_size(model: str, acts: bool = False) -> str:
    """The first size, or the one for observations of few numbers if the model acts in an environment."""
    sizes = MODELS[model].sizes
    return "state" if acts and "state" in sizes else next(iter(sizes))


def with_defaults(
    task: str, model: str | None, size: str | None, modality: str | None, acts: bool
) -> tuple[str, str, Fit]:
    """The model, its size, and how it fits the task; where the user names none, those of the task."""
    check_choice("task", task, TASKS)
    model = model or TASKS[task].default
    check_choice("model", model, MODELS)
    size = size or default_size(model, acts)
    check_choice(f"size of {model}", size, MODELS[model].sizes)
    return model, size, find_fit(task, TASKS[task], model, modality)


def resolve(
    task: str,
    model: str | None = None,
    size: str | None = None,
    modality: str | None = None,
    source: SourceModel | None = None,
    **values: object,
) -> Settings:
    """The settings of a run: `values` over the defaults of the task, the model and its size, or over `source`."""
    model, size, fit = with_defaults(task, model, size, modality, bool(values.get("env")))
    available = options(task, model, size, modality)
    for name in values:
        if name not in available and (units := units_with_option(name, TASKS[task].target)):
            detail = f"{option_flag(name)} is for {' and '.join(units)}, not for {fit.modality.unit}"
            raise ValueError(f"unknown option {name!r}: {detail}")
        check_choice("option", name, (*available, "model", "size", "modality"))
    values = {name: normalize_value(name, value, available[name].kind) for name, value in values.items()}
    if sum(values.get(name) is not None for name in ("steps", "epochs", "minutes")) > 1 and "revisions" not in values:
        raise ValueError("choose one of --steps, --epochs and --minutes")

    own, config = task_fields(task), config_options(model)
    chosen = {name: option.default for name, option in available.items() if option.default is not MISSING}
    if source:
        chosen |= source_body(source, values, config) | {n: value for n, value in source.head.items() if n in own}
    chosen |= values
    return Settings(
        task,
        model,
        size,
        fit.modality.name,
        make(DataOptions, chosen),
        make(TrainOptions, chosen),
        make(RunOptions, chosen),
        OptionGroups(*(make(group, chosen) for group in input_groups(task, fit))),
        {name: chosen[name] for name in own if name in chosen},
        {name: chosen[name] for name in config if name in chosen},
    )


def source_body(source: SourceModel, values: Mapping[str, object], config: Iterable[str]) -> dict[str, object]:
    """The sizes of the model of --from, which the options cannot change, but for dropout and a smaller context."""
    fixed = {name: value for name, value in source.config.items() if name in config}
    for name in (name for name in values if name in fixed):
        value, context = values[name], fixed[name] if name == "context" else None
        if isinstance(context, int) and isinstance(value, int) and not 1 <= value <= context:
            raise ValueError(f"{source.name} has context {context}: --context must be 1 to {context}")
        if name not in ("dropout", "context") and value != fixed[name]:
            raise ValueError(f"{source.name} has {name} {fixed[name]}: leave out {option_flag(name)}")
    return fixed | ({"context": None} if "context" in fixed else {})
