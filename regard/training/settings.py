"""Settings: the fields of a few dataclasses, under one flat set of names; each option is a field of exactly one.

defaults < named size < options of the user          or, with --from, the config of that model

An unknown name is refused with the nearest known one. The comment beside a field is its help text.
"""

from __future__ import annotations

import inspect
import re
from dataclasses import MISSING, asdict, dataclass, fields, replace
from functools import cache
from pathlib import Path
from typing import Any, Literal, get_args, get_origin, get_type_hints

from regard.data.audio_files import detect_media
from regard.data.splits import DataOptions
from regard.hub.folder import read_config, read_json
from regard.hub.infer_task import FAMILIES_WITH_HEADS, family_pooling
from regard.hub.remote import find_model
from regard.json_files import lexists
from regard.models import MODELS, ability_for
from regard.tasks import TASKS
from regard.training.checkpoint import BACKUP_PREFIX, list_checkpoints
from regard.training.loop import TrainOptions
from regard.training.provenance import comparable_settings, differing_keys, format_value, option_flag, read_train_json
from regard.training.run_folder import LOCK_FILE
from regard.training.task_aliases import resolve_task
from regard.validate import Option, check_choice, check_fields, check_type


@dataclass(frozen=True)
class RunOptions:
    """Where a run starts from, what it saves, and what it runs on."""

    output_dir: str | None = None  # run folder; default: runs/TASK
    from_: str | None = None  # model to start from: a folder, or a repository on the Hugging Face hub
    download: bool = False  # download the model of --from if it is not on this machine
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
    average_checkpoints: int = 0  # at the end, also evaluate the mean of this many last checkpoints; 0 = off
    device: str = "auto"  # cpu, cuda or mps; auto = the best available
    threads: int | None = None  # CPU threads; default: all cores
    compile: bool = False  # compile the model with torch.compile, which takes half a minute

    def __post_init__(self) -> None:
        check_fields(
            self,
            evals=(self.evals >= 1, "at least 1"),
            eval_examples=(self.eval_examples is None or self.eval_examples >= 1, "at least 1"),
            keep=(self.keep >= 1, "at least 1"),
            patience=(self.patience >= 0, "0 or more"),
            average_checkpoints=(self.average_checkpoints >= 0, "0 or more"),
            threads=(self.threads is None or self.threads >= 1, "at least 1"),
        )


@dataclass(frozen=True)
class Settings:
    task: str
    model: str
    size: str
    files: DataOptions
    input_options: dict[str, Any]  # fields of the task's option groups
    body: dict[str, Any]  # fields of the model's config
    task_options: dict[str, Any]  # fields of the task
    train_options: TrainOptions
    run_options: RunOptions

    @property
    def ability(self) -> str:
        """What the task requires of the body."""
        return ability_for(self.model, self.task, TASKS[self.task].requires)

    @property
    def folder(self) -> Path:
        return Path(self.run_options.output_dir or f"runs/{self.task}")

    def to_dict(self) -> dict[str, Any]:
        """As train.json stores them, and as `resolve` accepts them."""
        named = asdict(self.files) | asdict(self.train_options) | asdict(self.run_options)
        values = self.body | self.task_options | self.input_options | named
        excluded = TASKS[self.task].excluded_options(self.ability)
        used = {name: value for name, value in values.items() if name not in excluded}
        return {"task": self.task, "model": self.model, "size": self.size, **used}


RESUME_OPTIONS = ("resume", "output_dir", "device", "threads", "allow_changed")  # may change when a run resumes
MULTI_VALUE_OPTIONS = ("data", "valid", "test", "fields", "freeze", "revisions")  # one text or several
DERIVED_FIELDS = {  # fields of a config that follow from the data
    *("vocab", "pad", "sep", "segment_start", "image_size", "channels", "mels", "stride"),
    *("observation_dim", "observation_tokens", "num_actions", "atom_features", "pair_kinds"),
}


@cache
def options_of(group: Any) -> dict[str, Option]:
    """The fields of a dataclass, each with the comment beside it as its help."""
    kinds = get_type_hints(group, include_extras=True)
    sources = [inspect.getsource(kind) for kind in reversed(group.__mro__) if hasattr(kind, "__dataclass_fields__")]
    lines = re.finditer(r"^    (\w+): [^#\n]*  # (.*)$", "\n".join(sources), re.MULTILINE)
    helps = {line[1]: line[2] for line in lines}
    return {f.name: Option(kinds[f.name], f.default, helps.get(f.name, "")) for f in fields(group)}


def options(task: str, model: str, size: str) -> dict[str, Option]:
    """All options of this task and model, by name, with their defaults."""
    task_class, family = TASKS[task], MODELS[model]
    ability = ability_for(model, task, task_class.requires)
    groups = (DataOptions, TrainOptions, RunOptions, *task_class.option_groups(ability), task_class, family.config)
    available: dict[str, Option] = {}
    for group in groups:
        for name, option in options_of(group).items():
            if not is_derived(group, name) and name not in task_class.excluded_options(ability):
                assert name not in available, f"two options are named {name}"
                available[name] = option
    for name, value in {**MODELS[model].sizes[size], **task_class.default_overrides(ability)}.items():
        available[name] = available[name]._replace(default=value)
    return available


def default_size(model: str, acts: bool = False) -> str:
    """The first size, or the one for observations of few numbers if the model acts in an environment."""
    sizes = MODELS[model].sizes
    return "state" if acts and "state" in sizes else next(iter(sizes))


def choices_of(kind: Any) -> tuple[str, ...]:
    """The values of a Literal, also within a union; empty for any other type."""
    if get_origin(kind) is Literal:
        return get_args(kind)
    return tuple(word for part in get_args(kind) for word in choices_of(part))


def is_derived(group: Any, name: str) -> bool:
    """Whether a field follows from the data, so that it is not an option."""
    if any(group is family.config for family in MODELS.values()):
        return name in DERIVED_FIELDS
    return bool(group.__dataclass_fields__[name].kw_only)


def resolve(task: str, model: str | None = None, size: str | None = None, **values: Any) -> Settings:
    """The settings of a run: `values` over the defaults of the task, the model and its size."""
    check_choice("task", task, TASKS)
    task_class = TASKS[task]
    values = {name: normalize_value(name, value) for name, value in values.items()}
    has_source = values.get("from_") and not values.get("resume")  # a resumed run has all it needs
    source = read_config(find_model(str(values["from_"]), values.get("download") or None)) if has_source else None
    if source and model not in (None, source[0].model):
        raise ValueError(f"{values['from_']} is a {source[0].model} model, not {model}: leave out --model")
    model = source[0].model if source else model or task_class.default
    check_choice("model", model, MODELS)
    family = MODELS[model]
    size = size or default_size(model, bool(values.get("env")))
    check_choice(f"size of {model}", size, family.sizes)
    ability = ability_for(model, task, task_class.requires)
    available = options(task, model, size)
    for name, value in values.items():
        check_choice("option", name, (*available, "model", "size"))
        check_option(name, value, available[name].kind)

    def select(group: Any, source: dict[str, Any] = values) -> dict[str, Any]:
        return {f.name: source[f.name] for f in fields(group) if f.name in source and not is_derived(group, f.name)}

    task_defaults = task_class.default_overrides(ability)
    named = dict(family.sizes[size])
    if "image_size" in named:  # the option that resizes images; the config follows the images
        values.setdefault("image_size", named.pop("image_size"))
    body = default_fields(family.config) | named | select(family.config, task_defaults)
    if source:
        fixed = {name: value for name, value in asdict(source[1]).items() if not is_derived(family.config, name)}
        for name, value in select(family.config).items():
            if name == "context" and not 1 <= value <= fixed[name]:
                raise ValueError(f"{values['from_']} has context {fixed[name]}: --context must be 1 to {fixed[name]}")
            if name not in ("dropout", "context") and value != fixed[name]:
                raise ValueError(f"{values['from_']} has {name} {fixed[name]}: leave out {option_flag(name)}")
        body |= fixed | ({"context": None} if "context" in fixed else {})  # None: as long as the data needs
    check_media(str((values.get("data") or ("",))[0]), task, model, ability)
    groups = [group(**select(group)) for group in task_class.option_groups(ability)]
    input_options = {name: value for group in groups for name, value in asdict(group).items()}
    head_defaults = select(task_class, family_head(task, values) if source else {})
    task_options = default_fields(task_class) | select(task_class, task_defaults) | head_defaults | select(task_class)
    return Settings(
        task, model, size, DataOptions(**select(DataOptions)), input_options, body | select(family.config),
        task_options, TrainOptions(**select(TrainOptions)), RunOptions(**select(RunOptions)),
    )  # fmt: skip


def family_head(task: str, values: dict[str, Any]) -> dict[str, Any]:
    """The pooling of a foreign body's family, so that its own library can load the trained head."""
    folder = find_model(str(values["from_"]))
    if task not in ("classify", "regress") or lexists(folder / "task.json") or lexists(folder / "modules.json"):
        return {}
    config = read_json(folder / "config.json")
    return {"pooling": family_pooling(config, folder)} if config.get("model_type") in FAMILIES_WITH_HEADS else {}


def make_settings(task: str, model: str | None = None, size: str | None = None, **values: Any) -> Settings:
    """The settings of a new run, or of the run that is resumed. `task` may be Hugging Face's name of it."""
    task, alias_model = resolve_task(task)
    if values.get("resume"):
        return resume_settings(task, **values)
    if sum(values.get(name) is not None for name in ("steps", "epochs", "minutes")) > 1:
        raise ValueError("choose one of --steps, --epochs and --minutes")
    if values.get("revisions") and values.get("steps") is None:
        raise ValueError("--revisions repeats a run of --minutes: add the number of --steps that it first planned")
    settings = resolve(task, model or (None if values.get("from_") else alias_model), size, **values)
    return settings if settings.run_options.overwrite else resume_if_same(settings, values)


def resume_if_same(settings: Settings, values: dict[str, Any]) -> Settings:
    """Resume the run if its settings are the same; otherwise raise ValueError with the differences."""
    folder, file = settings.folder, settings.folder / "train.json"
    outputs = [*list_checkpoints(folder), *folder.glob(f"{BACKUP_PREFIX}*"), *folder.glob("README.md")]
    restart = replace(settings, run_options=replace(settings.run_options, overwrite=True))
    if not file.is_file():
        return settings
    if (folder / LOCK_FILE).exists() and not outputs and not file.stat().st_size:  # a crash may leave an empty file
        return restart
    stored, current = read_train_json(folder).get("requested_options"), comparable_settings(settings.to_dict())
    if not isinstance(stored, dict):
        return settings
    if names := differing_keys(stored, current):
        pairs = {name: (format_value(stored.get(name)), format_value(current.get(name))) for name in names}
        lines = [f"  {option_flag(n)} {old} in the folder, {new} in this command" for n, (old, new) in pairs.items()]
        raise ValueError(
            f"{folder} holds a run with other settings:\n" + "\n".join(lines) + "\ncontinue it with --resume, replace "
            "it with --overwrite, or choose another --output-dir"
        )
    if not outputs:  # neither saved nor finished: nothing is lost
        return restart
    resume_values = {name: value for name, value in values.items() if name in RESUME_OPTIONS}
    return resume_settings(settings.task, **resume_values, resume=True)


def resume_settings(task: str, **values: Any) -> Settings:
    for name in values:
        if name not in RESUME_OPTIONS:
            raise ValueError(f"--resume uses the settings of the run: leave out {option_flag(name)}, or start another")
    folder = Path(values.get("output_dir") or f"runs/{task}")
    stored = read_train_json(folder)
    for name in ("fingerprint", "requested_options"):
        stored.pop(name, None)
    try:
        return resolve(**{**stored, **values})
    except (TypeError, KeyError) as error:
        raise ValueError(f"{folder / 'train.json'} does not hold the settings of a run: {error}") from None


def normalize_value(name: str, value: Any) -> Any:
    """Paths as strings, and options of several values as tuples."""
    if name not in MULTI_VALUE_OPTIONS or value is None:
        value = tuple(value) if name == "hide" and isinstance(value, list) else value  # JSON has lists
        return str(value) if isinstance(value, Path) else value
    if isinstance(value, str | Path):
        return (str(value),)
    if not isinstance(value, list | tuple) or not all(isinstance(item, str | Path) for item in value):
        raise ValueError(f"{name} must be one text or several, not {value!r}")
    return tuple(map(str, value))


def check_option(name: str, value: Any, kind: Any) -> None:
    """Raises ValueError if the value is not one of the option's choices, or not of its type."""
    if choices := choices_of(kind):
        if value is not None or type(None) not in get_args(kind):
            check_choice(name, value, choices)
    elif name not in MULTI_VALUE_OPTIONS:
        check_type(name, value, kind)


MEDIA_ABILITIES = {"images": ("sees", "matches"), "audio": ("hears", "transcribes")}  # of bodies that read them


def check_media(path: str, task: str, model: str, ability: str) -> None:
    """Raises ValueError for a folder of images or audio that the model does not read; names the models that do."""
    media = detect_media(path)
    if media is None or ability in MEDIA_ABILITIES[media]:
        return
    abilities = {*TASKS[task].requires} & {*MEDIA_ABILITIES[media]}
    models = [name for name, family in MODELS.items() if abilities & {*family.bodies}]
    remedy = f"add --model {' or --model '.join(models)}" if models else f"no model for {task} can"
    raise ValueError(f"{path}: a folder of {media}, which {model} cannot read: {remedy}")


def default_fields(group: Any) -> dict[str, Any]:
    return {f.name: f.default for f in fields(group) if not is_derived(group, f.name) and f.default is not MISSING}
