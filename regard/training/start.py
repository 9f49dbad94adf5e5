"""What a run starts from: the model of --from, the files of --data, or the folder of a run that resumes or repeats."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path

from regard.data.splits import DataOptions
from regard.hub.dataset_files import resolve_data
from regard.hub.folder import read_config
from regard.hub.infer_task import FAMILIES_WITH_HEADS, family_pooling
from regard.hub.remote import find_model
from regard.hub.task_config import find_preprocessor, read_task_file
from regard.json_files import lexists, read_json
from regard.modalities import MODALITIES
from regard.modalities.protocols import Modality
from regard.models import MODELS
from regard.options import option_flag
from regard.tasks import TASKS
from regard.tasks.compatibility import default_model, fits, fitting_models
from regard.training.checkpoint import BACKUP_PREFIX, list_checkpoints
from regard.training.provenance import comparable_settings, differing_keys, format_value, read_train_json
from regard.training.run_folder import LOCK_FILE
from regard.training.settings import Settings, SourceModel, resolve, run_folder, with_defaults
from regard.training.task_aliases import resolve_task
from regard.training.trackers import check_trackers
from regard.validate import check_choice

RESUME_OPTIONS = (
    "resume",
    "output_dir",
    "device",
    "threads",
    "shards",
    "recompute",
    "log",
    "allow_changed",
    "download",
)  # may change when a run resumes


def make_settings(
    task: str, model: str | None = None, size: str | None = None, modality: str | None = None, **values: object
) -> Settings:
    """The settings of a new run, or of the run that is resumed. `task` may be Hugging Face's name of it."""
    if values.get("resume"):
        named = {"model": model, "size": size, "modality": modality}
        values |= {name: value for name, value in named.items() if value is not None}
        settings = resume_settings(task, **values)
    elif values.get("revisions") and values.get("steps") is None:
        raise ValueError("--revisions repeats a run of --minutes: add the number of --steps that it first planned")
    else:
        settings = new_settings(task, model, size, modality, **values)
        settings = settings if settings.run_options.overwrite else resume_if_same(settings, values)
    check_trackers(settings.run_options.log)
    return settings


def new_settings(
    task: str, model: str | None = None, size: str | None = None, modality: str | None = None, **values: object
) -> Settings:
    """The settings of a run, whatever the run folder holds."""
    task, model, size, modality, source = choose(task, model, size, modality, **values)
    return resolve(task, model, size, modality, source, **values)


def choose(
    task: str, model: str | None = None, size: str | None = None, modality: str | None = None, **values: object
) -> tuple[str, str, str, str, SourceModel | None]:
    """Task, model, size, modality and model of --from, on which the other options depend. Where the user names none,
    the run to resume, the model of --from or the files of --data show them, or they are the defaults."""
    task, alias_model = resolve_task(task)
    check_choice("task", task, TASKS)
    if modality is not None:
        check_choice("modality", modality, MODALITIES)
    if values.get("resume"):
        stored = read_train_json(run_folder(task, values.get("output_dir")))
        model, modality = model or stored.get("model"), modality or stored.get("modality")
    source = read_source(task, str(values["from_"]), bool(values.get("download"))) if values.get("from_") else None
    if source and model not in (None, source.model):
        raise ValueError(f"{source.name} is a {source.model} model, not {model}: leave out --model")
    model = source.model if source else model or alias_model
    modality = modality or (source.modality if source else None)
    paths = local_paths(values.get("data"), bool(values.get("download")))
    recognized = recognize(task, paths)
    if recognized and modality != recognized.name:
        if modality or (model and not (model in MODELS and fits(TASKS[task], model, recognized))):
            models = fitting_models(TASKS[task], recognized)
            remedy = f"add --model {' or --model '.join(models)}" if models else f"no model for {task} can"
            raise ValueError(f"{paths[0]}: {recognized.unit}, which {model or modality} does not read: {remedy}")
        modality = recognized.name
    if modality and not model:
        model = default_model(TASKS[task], MODALITIES[modality])
    model, size, fit = with_defaults(task, model, size, modality, bool(values.get("env")))
    return task, model, size, fit.modality.name, source


def local_paths(value: object, download: bool) -> list[str]:
    """The files of --data; those of the hub are downloaded, because their names decide the modality."""
    paths = as_paths(value)
    return [*resolve_data(DataOptions(data=tuple(paths)), download or None).data] if all(paths) else paths


def as_paths(value: object) -> list[str]:
    items = value if isinstance(value, list | tuple) else (value,)
    return [str(item) for item in items if isinstance(item, str | Path)]


def read_source(task: str, name: str, download: bool) -> SourceModel:
    """The model of --from, with the pooling of its family, so that its own library can load the trained head."""
    folder = find_model(name, download or None)
    family_map, config = read_config(folder)
    stored, head = read_task_file(folder), dict[str, object]()
    modality = find_preprocessor(folder, stored or {}, family_map.model)[0].name
    if task in ("classify", "regress") and stored is None and not lexists(folder / "modules.json"):
        values = read_json(folder / "config.json")
        head = {"pooling": family_pooling(values, folder)} if values.get("model_type") in FAMILIES_WITH_HEADS else {}
    return SourceModel(name, family_map.model, modality, asdict(config), head)


def recognize(task: str, paths: list[str]) -> Modality | None:
    """The modality of the files, by their names; None if they do not tell, as a table does not."""
    matches = [modality for modality in MODALITIES.values() if paths and modality.recognizes(paths[0])]
    readable = [modality for modality in matches if TASKS[task].target in modality.formats]
    return next(reversed(readable or matches), None)


def resume_if_same(settings: Settings, values: Mapping[str, object]) -> Settings:
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
    resume_values = {name: value for name, value in values.items() if name in RESUME_OPTIONS} | {"resume": True}
    return resume_settings(settings.task, **resume_values)


def resume_settings(task: str, **values: object) -> Settings:
    for name in values:
        if name not in RESUME_OPTIONS:
            raise ValueError(f"--resume uses the settings of the run: leave out {option_flag(name)}, or start another")
    task = resolve_task(task)[0]
    check_choice("task", task, TASKS)
    folder = run_folder(task, values.get("output_dir"))
    stored = read_train_json(folder)
    for name in ("fingerprint", "requested_options"):
        stored.pop(name, None)
    try:
        if "modality" not in stored:  # of a folder of an earlier version
            stored["modality"] = choose(task, stored["model"], data=stored["data"])[3]
        return resolve(**{**stored, **values})
    except (TypeError, KeyError) as error:
        raise ValueError(f"{folder / 'train.json'} does not hold the settings of a run: {error}") from None
