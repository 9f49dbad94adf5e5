"""regard check MODEL: whether a model does what every model of its kind promises, and what to do if it does not."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from textwrap import wrap
from typing import Annotated

import tyro

from regard.check.check_result import Verdict
from regard.check.run_checks import examine, told
from regard.cli.model import Fetching, found
from regard.cli.options import parse
from regard.data.lines import SUGGESTED, Bad, Lines, must_be_encoding
from regard.training.settings import options_of

WIDTH = 100  # of advice
READ = 1000  # lines of a file, of which the first that are not empty are used


@dataclass
class Check:
    """What to examine, and with what."""

    model: Annotated[str, tyro.conf.Positional]  # a model folder, or the name of one on the hub: owner/repo
    text: str | None = None  # a file of texts to examine it with, one a line; those that ship for its task unless given
    encoding: str = "utf-8"  # of that file: utf-8, cp1252, utf-16 ...
    json: bool = False  # the findings as one JSON object
    alone: bool = False  # do not compare with transformers, even where it is installed
    device: str = "auto"  # cpu, cuda or mps; the best there is if auto


def main(args: list[str]) -> int:
    given = parse("regard check", args, options_of(Check) | options_of(Fetching))
    wish = Check(**{name: given.pop(name) for name in options_of(Check)})
    folder = found(wish.model, Fetching(**given))
    lines = None if wish.text is None else [*texts_of(wish.text, wish.encoding)]
    verdicts = []
    for verdict in examine(folder, lines, wish.device, wish.alone):
        verdicts.append(verdict)
        if not wish.json:
            print(spelled(verdict), flush=True)
    fails = sum(verdict.status == "FAILS" for verdict in verdicts)
    if wish.json:
        print(json.dumps({"model": str(folder), "fails": fails, "checks": [told(verdict) for verdict in verdicts]}))
    else:
        notes = sum(verdict.status == "note" for verdict in verdicts)
        print(f"\n{len(verdicts)} checks: {fails} fail, {notes} worth a note")
    return 1 if fails else 0


def texts_of(file: str, encoding: str) -> Iterator[str]:
    """As many lines as there can be use for."""
    must_be_encoding(encoding)
    for line in islice(Lines(file, encoding), READ):
        if isinstance(line, Bad):
            raise ValueError(f"{line.file}:{line.line}: {line.why}, {line.detail}: {SUGGESTED}")
        yield line


def spelled(verdict: Verdict) -> str:
    """A line, and below it the advice if there is some."""
    line = f"{verdict.check:<16}{verdict.status:<7}{verdict.says}"
    return "\n".join([line, *(f"{'':<23}{part}" for part in wrap(verdict.advice, WIDTH - 23))])
