"""task.json: the task of a model folder and its fitted fields, beside the files of its preprocessors.

A folder without task.json is a Hugging Face folder, whose task hub/infer_task.py infers.
"""

from __future__ import annotations

from dataclasses import MISSING, fields, replace
from pathlib import Path
from typing import Any, get_type_hints

from regard.atomic import write_json
from regard.hub.family_map import Fields
from regard.hub.folder import read_config
from regard.hub.infer_task import (
    check_clip_eos,
    infer_task,
    supported_generation_settings,
    task_fields,
    warn_unsupported_settings,
)
from regard.json_files import lexists, read_json
from regard.modalities import MODALITIES
from regard.modalities.protocols import Modality, Preprocessor
from regard.models import MODELS
from regard.tasks import TASKS
from regard.tasks.compatibility import output_modality, structure_of
from regard.tasks.task import Task
from regard.validate import check_choice, matches_type

FORMAT = 2  # of task.json; readers refuse other numbers
PREPROCESSOR_FIELDS = ("preprocessor", "output")  # of a task; each has files of its own


def write_task(folder: Path, task: Task) -> None:
    content: dict[str, object] = {"task": task_name(task), "format": FORMAT, "modality": task.preprocessor.modality}
    for field in fields(task):
        value = getattr(task, field.name)
        if field.name not in PREPROCESSOR_FIELDS:
            content[field.name] = value
        elif value is not None:
            content |= value.save(folder)
    write_json(folder / "task.json", content)
    task.write_extras(folder)


def task_name(task: Task) -> str:
    return next(name for name, kind in TASKS.items() if type(task) is kind)


def task_config_keys(task: Task) -> dict[str, object]:
    """The keys of config.json that a task determines: its labels, and the tokens that start and end a text."""
    return label_keys(task) | token_keys(task)


def label_keys(task: Task) -> dict[str, object]:
    names = getattr(task, "labels", None) or getattr(task, "tags", None)
    return {"id2label": dict(enumerate(names)), "label2id": {n: i for i, n in enumerate(names)}} if names else {}


def token_keys(task: Task) -> dict[str, object]:
    if not task.generates:
        return {}
    begin, end, pad = task.tokenizer.bos_token_id, task.tokenizer.eos_token_id, task.tokenizer.pad_token_id
    if (start := getattr(task, "start_token", None)) is not None:
        return {"eos_token_id": end, "decoder_start_token_id": start}
    ends = [end, *(token for token in getattr(task, "eos_tokens", ()) if token != end)]
    return {"bos_token_id": begin, "eos_token_id": ends if len(ends) > 1 else end, "pad_token_id": pad}


def read_task_file(folder: Path) -> dict[str, object] | None:
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


def read_decode_defaults(folder: Path) -> dict[str, object]:
    """Decoding options that have another default for this folder."""
    stored, task = read_task_file(folder), read_task_name(folder)
    if not TASKS[task].generates:
        return {}
    if stored is None:
        config = read_json(folder / "config.json")
        return TASKS[task].decode_defaults(supported_generation_settings(folder, config, task))
    settings = stored.get("generation_config")
    return TASKS[task].decode_defaults(settings) if isinstance(settings, dict) else {}


def read_task(folder: Path) -> Task:
    """The task of a folder: fields from task.json or inferred from config.json, and its preprocessors."""
    stored, name = read_task_file(folder), read_task_name(folder)
    kind: Any = TASKS[name]
    if stored is None and kind.generates:
        warn_unsupported_settings(folder, name)
    values = task_fields(name, folder) if stored is None else stored
    names = {field.name for field in fields(kind)} - {*PREPROCESSOR_FIELDS}
    preprocessors = read_preprocessors(folder, stored or {}, kind)
    tokenizer = preprocessors["preprocessor"].tokenizer
    arguments = {key: value for key, value in values.items() if key in names} | preprocessors
    if stored is not None:
        check_fields(folder / "task.json", kind, stored)
    elif tokenizer is not None and read_json(folder / "config.json").get("model_type") == "clip_text_model":
        check_clip_eos(folder, tokenizer)
    if missing := [field.name for field in fields(kind) if field.default is MISSING and field.name not in arguments]:
        raise ValueError(f"{folder} lacks what its task needs: {', '.join(missing)}")
    try:
        return kind(**arguments)
    except (ValueError, TypeError) as error:
        file = folder / ("config.json" if stored is None else "task.json")
        raise ValueError(str(error) if str(folder) in str(error) else f"{file}: {error}") from None


def read_preprocessors(folder: Path, stored: Fields, kind: type[Task]) -> dict[str, Preprocessor]:
    """The preprocessor of the inputs, and that of the outputs if they are of another modality."""
    model = read_config(folder, weights=False)[0].model
    modality, preprocessor = find_preprocessor(folder, stored, model)
    preprocessors, structure = {"preprocessor": require(folder, modality, preprocessor)}, structure_of(kind, model)
    output = output_modality(model, structure) if structure else None
    if output is not None and output is not modality:
        preprocessors["output"] = require(folder, output, output.load(folder, stored))
    return preprocessors


def find_preprocessor(folder: Path, stored: Fields, model: str) -> tuple[Modality, Preprocessor | None]:
    """That of the modality in task.json; None if the folder lacks it. A folder that names no modality is read by the
    most special one that its model reads and its files allow."""
    own = MODALITIES[MODELS[model].inputs[0]]
    if (name := stored.get("modality")) is not None:
        check_choice(f"modality (in {folder / 'task.json'})", name, MODALITIES)
        return MODALITIES[str(name)], MODALITIES[str(name)].load(folder, stored)
    for modality in reversed([other for other in MODALITIES.values() if own.name in other.like]):
        if (preprocessor := modality.load(folder, stored)) is not None:
            return modality, preprocessor
    return own, own.load(folder, stored)


def require(folder: Path, modality: Modality, preprocessor: Preprocessor | None) -> Preprocessor:
    if preprocessor is None:
        raise ValueError(f"{folder} lacks what its task needs to read {modality.unit}: {modality.file}")
    return preprocessor


def check_fields(file: Path, kind: type[Task], values: Fields) -> None:
    """Refuse missing fields and values of another type; only fields whose default is None may be missing."""
    types = get_type_hints(kind)
    for field in fields(kind):
        if field.name in PREPROCESSOR_FIELDS:
            continue
        if field.name not in values and field.default is not None:
            raise ValueError(f"{file} has no {field.name}: restore it, or train again")
        if not matches_type(values.get(field.name), types[field.name]):
            raise ValueError(f"{file}: {field.name} cannot be {values[field.name]!r:.80}: restore it, or train again")


def reconcile_config(config: Any, task: Task, folder: Path) -> Any:
    """The config with what only the tokenizer knows: the separator token, and the start of the second segment of a
    pair. Refused if preprocessor and config contradict each other.

    The vocabulary of a Hugging Face model may be larger than its tokenizer's, and its padding id another one.
    """
    updates: dict[str, int] = {}
    is_exact = "encoder-decoder" in task.structures
    for field, value in task.sizes().items():
        configured = getattr(config, field, value)
        if field == "segment_start" or (field == "sep" and configured < 0):
            updates[field], agrees = value, True
        elif is_exact:
            agrees = configured == value
        else:
            agrees = field in ("pad", "sep") or (configured >= value if field == "vocab" else configured == value)
        if not agrees:
            kinds = {task.preprocessor.modality, *([task.output.modality] if task.output else [])}
            files = " or ".join(MODALITIES[name].file for name in sorted(kinds))
            raise ValueError(f"{folder}: {files} has {field} {value}, but config.json says {configured}")
    return replace(config, **{field: value for field, value in updates.items() if hasattr(config, field)})
