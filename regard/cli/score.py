"""regard score MODEL files: how good a model is on pairs it has not seen."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Annotated

import tyro

from regard.cli.options import parse
from regard.data.lint import lint
from regard.data.text import read
from regard.generate import Decoding
from regard.load import load
from regard.training.settings import options_of


@dataclass
class Measure:
    """What to measure, and on what."""

    model: Annotated[str, tyro.conf.Positional]  # a model folder
    data: Annotated[tuple[str, ...], tyro.conf.Positional]  # one file of pairs (.tsv, .jsonl) or two parallel ones
    fields: tuple[str, str] | None = None  # columns or keys of source and target
    skip_bad: bool = False  # go on without the bad lines
    answers: str | None = None  # write the translations to this file, one a line
    json: bool = False  # the scores as one JSON object
    device: str = "auto"  # cpu, cuda or mps; the best there is if auto


def main(args: list[str]) -> int:
    given = parse("regard score", args, options_of(Measure) | options_of(Decoding))
    how = Decoding(**{name: given.pop(name) for name in Decoding.__dataclass_fields__})
    measure = Measure(**given)
    if not measure.data:
        raise ValueError("name the file of pairs, or the two parallel files, to score on")
    loaded = load(measure.model, measure.device)
    pairs, _ = lint({"test": read(measure.data, measure.fields)}, skip_bad=measure.skip_bad)
    scores = loaded.task.score(loaded.model, pairs["test"], how)
    answers = scores.pop("answers")
    if measure.answers:
        with open(measure.answers, "w", encoding="utf-8") as stream:
            stream.writelines(f"{answer}\n" for answer in answers)
    if measure.json:
        print(json.dumps({"pairs": len(answers), **scores}))
    else:
        print(f"{len(answers)} pairs")
        for name, value in scores.items():
            print(f"{name:<20}{value:.2f}" if isinstance(value, float) else f"{name:<20}{value}")
    return 0
