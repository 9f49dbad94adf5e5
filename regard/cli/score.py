"""regard score MODEL files: how good a model is on what it has not seen."""

from __future__ import annotations

import json
import sys
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro

from regard.batch_invariant import reproducible
from regard.cli.model import Fetching, found, named_in
from regard.cli.options import parse
from regard.cli.run import folder_defaults
from regard.data.documents import Documents
from regard.data.files import READ_BY, as_in_training
from regard.load import load
from regard.purpose import task_of
from regard.tasks import TASKS
from regard.training.settings import options_of
from regard.validate import check_fields


@dataclass
class Measure:
    """What to measure, and on what."""

    model: Annotated[str, tyro.conf.Positional]  # a model folder, or the name of one on the hub: owner/repo
    data: Annotated[tuple[str, ...], tyro.conf.Positional]  # files in the form that the model was trained on
    fields: tuple[str, ...] | None = None  # columns or keys to read, answer last; as in training unless given
    separator: str | None = None  # between columns: one character, or tab; as in training unless given
    encoding: str | None = None  # of text files: utf-8, cp1252, utf-16 ...; as in training unless given
    skip_bad: bool = False  # go on without the bad lines
    answers: str | None = None  # write the answers to this file, one a line
    json: bool = False  # the scores as one JSON object
    device: str = "auto"  # cpu, cuda or mps; the best there is if auto
    speed: Literal["exact", "int8"] = "exact"  # the same tokens as ever, or weights of 8 bits: sooner, almost the same
    reproducible: bool = False  # each answer has the same bits whatever else is in the files; on the CPU, and slower

    def __post_init__(self) -> None:
        check_fields(self, speed=(not self.reproducible or self.speed == "exact", "exact with --reproducible"))


def main(args: list[str]) -> int:
    folder = named_in(args)
    kind = TASKS[task_of(folder) if folder else "translate"]
    ways: Any = kind.ways
    kept = {"cache": options_of(Documents)["cache"]} if Documents in kind.groups(kind.asks[0]) else {}
    asked = options_of(ways) | folder_defaults(ways, folder)
    given = parse("regard score", args, options_of(Measure) | options_of(Fetching) | asked | kept)
    how_found = Fetching(**{name: given.pop(name) for name in options_of(Fetching)})
    cache = given.pop("cache", None)
    how = ways(**{name: given.pop(name) for name in options_of(ways)})
    measure = Measure(**given)
    if not measure.data:
        raise ValueError("name the files to score on, in the form that the model was trained on")
    speed = None if measure.reproducible else measure.speed
    folder = found(measure.model, how_found)
    files, remembered = as_in_training(folder, measure.data, **{name: getattr(measure, name) for name in READ_BY})
    if remembered:
        print(f"reading the files as in training: {remembered}", file=sys.stderr)
    loaded = load(folder, measure.device, speed=speed)
    rows = loaded.rows(files.data, files.fields, measure.skip_bad, files.dialect)
    if cache is not None:
        rows.cache = Path(cache).expanduser()
    with reproducible(loaded.model) if measure.reproducible else nullcontext():
        scores = loaded.score(rows, how)
    answers = scores.pop("answers")
    del scores["samples"]
    if measure.answers:
        with open(measure.answers, "w", encoding="utf-8") as stream:
            stream.writelines(f"{answer}\n" for answer in answers)
    if measure.json:
        numbers = {name: None if value != value else value for name, value in scores.items()}  # JSON has no NaN
        print(json.dumps({"examples": len(answers), **numbers}))
    else:
        print(loaded.task.amount(rows))
        for name, value in scores.items():
            print(f"{name:<24}{value:.2f}" if isinstance(value, float) else f"{name:<24}{value}")
    return 0
