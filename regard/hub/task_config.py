"""task.json: the task of a model folder and its fitted fields, beside the files of its preprocessors.

A folder without task.json is a Hugging Face folder, whose task hub/infer_task.py infers.
"""

from __future__ import annotations

from dataclasses import MISSING, fields, replace
from pathlib import Path
from typing import Any, get_type_hints

from regard.atomic import write_json
from regard.data.audio_augment import AudioAugment
from regard.data.image_augment import ImageAugment
from regard.data.image_transform import ImageTransform
from regard.data.logmel import FILE as LOGMEL_FILE
from regard.data.logmel import LogMel
from regard.data.molecules import FILE as MOLECULES_FILE
from regard.data.molecules import MoleculeFeaturizer
from regard.data.tokenizer import Tokenizer
from regard.hub.infer_task import (
    IMAGE_FAMILIES,
    check_clip_eos,
    infer_task,
    supported_generation_settings,
    task_fields,
    warn_unsupported_settings,
)
from regard.json_files import lexists, read_json
from regard.tasks import TASKS
from regard.tasks.task import Task
from regard.tasks.translate import Translate
from regard.tasks.write import Write
from regard.validate import check_choice, matches_type

FORMAT = 2  # of task.json; readers refuse other numbers
PREPROCESSORS: dict[str, Any] = {
    "tokenizer": Tokenizer,
    "image_processor": ImageTransform,
    "feature_extractor": LogMel,
    "molecules": MoleculeFeaturizer,
}
PREPROCESSOR_FILES = {
    "tokenizer": "tokenizer.json",
    "image_processor": "preprocessor_config.json",
    "feature_extractor": LOGMEL_FILE,
    "molecules": MOLECULES_FILE,
}
AUGMENTATIONS: dict[str, Any] = {"image_augment": ImageAugment, "audio_augment": AudioAugment}


def write_task(folder: Path, task: Task) -> None:
    content: dict[str, Any] = {"task": next(n for n, kind in TASKS.items() if type(task) is kind), "format": FORMAT}
    for field in fields(task):  # type: ignore[arg-type]
        value = getattr(task, field.name)
        if field.name not in PREPROCESSORS:
            content[field.name] = value
        elif value is not None:
            value.save(folder)
    write_json(folder / "task.json", content)
    task.write_extras(folder)


def task_config_keys(task: Task) -> dict[str, Any]:
    """The keys of config.json that a task determines: its labels, and the tokens that start and end a text."""
    return label_keys(task) | token_keys(task)


def label_keys(task: Task) -> dict[str, Any]:
    names = getattr(task, "labels", None) or getattr(task, "tags", None)
    return {"id2label": dict(enumerate(names)), "label2id": {n: i for i, n in enumerate(names)}} if names else {}


def token_keys(task: Task) -> dict[str, Any]:
    if isinstance(task, Translate):
        return {"eos_token_id": task.tokenizer.eos_token_id, "decoder_start_token_id": task.start_token}
    if not isinstance(task, Write):
        return {}
    begin, end, pad = task.tokenizer.bos_token_id, task.tokenizer.eos_token_id, task.tokenizer.pad_token_id
    ends = [end, *(token for token in task.eos_tokens if token != end)]
    return {"bos_token_id": begin, "eos_token_id": ends if len(ends) > 1 else end, "pad_token_id": pad}


def read_task_file(folder: Path) -> dict[str, Any] | None:
    """The content of task.json; None if regard did not write the folder."""
    file = folder / "task.json"
    if not lexists(file):
        return None
    content = read_json(file)
    if content.get("format") != FORMAT:
        raise ValueError(
            f"{file} has format {content.get('format')!r:.80} instead of {FORMAT}: an older, unreleased version of "
            "regard wrote this folder; train again"
        )
    check_choice(f"task (in {file})", content.get("task"), TASKS)
    return content


def read_task_name(folder: Path) -> str:
    """The name of the task that the model of a folder is for."""
    stored = read_task_file(folder)
    return infer_task(folder) if stored is None else str(stored["task"])


def read_decode_defaults(folder: Path) -> dict[str, Any]:
    """Decoding options that have another default for this folder."""
    stored, task = read_task_file(folder), read_task_name(folder)
    if task not in ("write", "translate"):
        return {}
    if stored is None:
        return TASKS[task].decode_defaults(
            supported_generation_settings(folder, read_json(folder / "config.json"), task)
        )
    settings = stored.get("generation_config")
    return TASKS[task].decode_defaults(settings) if isinstance(settings, dict) else {}


def read_task(folder: Path) -> Task:
    """The task of a folder: fields from task.json or inferred from config.json, and its preprocessors."""
    stored, name = read_task_file(folder), read_task_name(folder)
    if stored is None and name in ("write", "translate"):
        warn_unsupported_settings(folder, name)
    values = task_fields(name, folder) if stored is None else stored
    family = read_json(folder / "config.json").get("model_type")
    kind: Any = TASKS[name]
    names = {field.name for field in fields(kind)}
    if name == "embed":
        names.remove("tokenizer" if family in IMAGE_FAMILIES else "image_processor")
    arguments = {key: value for key, value in values.items() if key in names} | load_preprocessors(folder, names)
    check_complete(folder, kind, names, {*arguments})
    if stored is not None:
        check_fields(folder / "task.json", kind, stored)
    elif family == "clip_text_model":
        check_clip_eos(folder, arguments["tokenizer"])
    try:
        for key, options in AUGMENTATIONS.items():
            if arguments.get(key):
                check_fields(folder / "task.json", options, arguments[key])
                options(**arguments[key])
        return kind(**arguments)
    except (ValueError, TypeError) as error:
        file = folder / ("config.json" if stored is None else "task.json")
        raise ValueError(str(error) if str(folder) in str(error) else f"{file}: {error}") from None


def check_complete(folder: Path, kind: Any, names: set[str], available: set[str]) -> None:
    """Refuse a folder that lacks a required field, or, of a task whose preprocessors are all optional, every one."""
    missing = [field.name for field in fields(kind) if field.default is MISSING and field.name not in available]
    preprocessors = [field for field in fields(kind) if field.name in PREPROCESSORS and field.name in names]
    alternatives = [field.name for field in preprocessors if all(f.default is None for f in preprocessors)]
    if not {*alternatives} & available:
        missing += alternatives
    if missing:
        files = [f"{name} ({PREPROCESSOR_FILES[name]})" if name in PREPROCESSOR_FILES else name for name in missing]
        raise ValueError(f"{folder} lacks what its task needs: {' or '.join(files)}")


def check_fields(file: Path, kind: Any, values: dict[str, Any]) -> None:
    """Refuse missing fields and values of another type; only fields whose default is None may be missing."""
    types = get_type_hints(kind)
    for field in fields(kind):
        if field.name in PREPROCESSORS:
            continue
        if field.name not in values and field.default is not None:
            raise ValueError(f"{file} has no {field.name}: restore it, or train again")
        if not matches_type(values.get(field.name), types[field.name]):
            raise ValueError(f"{file}: {field.name} cannot be {values[field.name]!r:.80}: restore it, or train again")


def load_preprocessors(folder: Path, names: set[str]) -> dict[str, Any]:
    """The preprocessors of these names that a folder has."""
    return {name: kind.load(folder) for name, kind in PREPROCESSORS.items() if name in names and kind.exists_in(folder)}


def reconcile_config(config: Any, task: Task, folder: Path) -> Any:
    """The config with what only the tokenizer knows: the separator token, and the start of the second segment of a
    pair. Refused if tokenizer and config contradict each other.

    The vocabulary of a Hugging Face model may be larger than its tokenizer's, and its padding id another one.
    """
    updates: dict[str, Any] = {}
    for field, value in task.sizes().items():
        configured = getattr(config, field, value)
        if field == "segment_start" or (field == "sep" and configured < 0):
            updates[field], agrees = value, True
        elif isinstance(task, Translate):
            agrees = configured == value
        else:
            agrees = field in ("pad", "sep") or (configured >= value if field == "vocab" else configured == value)
        if not agrees:
            files = [file for name, file in PREPROCESSOR_FILES.items() if getattr(task, name, None) is not None]
            raise ValueError(f"{folder}: {' or '.join(files)} has {field} {value}, but config.json says {configured}")
    return replace(config, **{field: value for field, value in updates.items() if hasattr(config, field)})
