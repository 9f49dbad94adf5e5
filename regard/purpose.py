"""A task in a folder: task.json says what it is and what it learnt, and beside it stand its tokenizer or pictures."""

from __future__ import annotations

from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any

from regard.choose import choose
from regard.data.images import Pictures
from regard.data.tokens import Tokenizer
from regard.hub.folder import read_json, write_json
from regard.tasks import TASKS
from regard.tasks.task import Task

READERS: dict[str, Any] = {
    "tokenizer": (Tokenizer, "tokenizer.json"),
    "pictures": (Pictures, "preprocessor_config.json"),
}


def write_task(folder: Path, task: Task) -> None:
    told: dict[str, Any] = {"task": next(name for name, kind in TASKS.items() if type(task) is kind)}
    for field in fields(task):  # type: ignore[arg-type]
        value = getattr(task, field.name)
        if field.name not in READERS:
            told[field.name] = value
        elif value is not None:
            value.save(folder)
    write_json(folder / "task.json", told)


def facts_of(task: Task) -> dict[str, Any]:
    """What a config.json says about the answers: their names."""
    names = getattr(task, "labels", None) or getattr(task, "tags", None)
    return {"id2label": dict(enumerate(names)), "label2id": {n: i for i, n in enumerate(names)}} if names else {}


def read_task(folder: Path) -> Task:
    told: dict[str, Any] = read_json(folder / "task.json") if (folder / "task.json").exists() else {"task": "translate"}
    choose(f"task (in {folder / 'task.json'})", told.get("task"), TASKS)
    kind: Any = TASKS[told.pop("task")]
    known = {field.name for field in fields(kind)}
    made = {name: value for name, value in told.items() if name in known} | read_readers(folder, known)
    lacks = [field.name for field in fields(kind) if field.default is MISSING and field.name not in made]
    if lacks:
        raise ValueError(f"{folder} lacks what its task needs: {', '.join(lacks)}")
    return kind(**made)


def read_readers(folder: Path, wanted: set[str]) -> dict[str, Any]:
    """Tokenizer and pictures of a folder, if the task wants them and the folder has them."""
    return {
        name: kind.load(folder)
        for name, (kind, file) in READERS.items()
        if name in wanted and (folder / file).is_file()
    }
