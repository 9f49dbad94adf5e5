"""regard check MODEL: check properties that every model of its kind must have, with advice for each failure."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from textwrap import wrap
from typing import Annotated

from regard.check.check_result import CheckResult
from regard.check.run_checks import check_folder, to_json
from regard.cli.model_argument import parse_command
from regard.data.lines import ENCODING_HINT, BadRow, Lines, validate_encoding
from regard.options import Positional

WIDTH, INDENT = 100, 30  # columns of the advice
MAX_LINES = 1000  # read from a file; the first that are not empty are used


@dataclass
class CheckOptions:
    """The model to check, and the texts."""

    model: Annotated[str, Positional]  # model folder, or a repository on the Hugging Face hub: owner/repo
    text: str | None = None  # file of texts to check the model with, one per line; default: bundled texts for its task
    encoding: str = "utf-8"  # encoding of --text: utf-8, cp1252, utf-16 ...
    json: bool = False  # print the results as one JSON object
    no_peers: bool = False  # skip the comparison with transformers, even where it is installed
    device: str = "auto"  # cpu, cuda or mps; auto = the best available


def main(args: list[str]) -> int:
    options, folder = parse_command("check", args, CheckOptions)
    lines = None if options.text is None else [*read_documents(options.text, options.encoding)]
    results = []
    for result in check_folder(folder, lines, options.device, options.no_peers):
        results.append(result)
        if not options.json:
            print(format_result(result), flush=True)
    failures = sum(result.status == "FAILS" for result in results)
    if options.json:
        print(json.dumps({"model": str(folder), "failures": failures, "checks": [to_json(row) for row in results]}))
    else:
        notes = sum(result.status == "note" for result in results)
        print(f"\n{len(results)} checks: {failures} failed, {notes} with a note")
    return 1 if failures else 0


def read_documents(file: str, encoding: str) -> Iterator[str]:
    """The first `MAX_LINES` lines. Raises ValueError at a line that does not decode."""
    validate_encoding(encoding)
    for line in islice(Lines(file, encoding), MAX_LINES):
        if isinstance(line, BadRow):
            raise ValueError(f"{line.file}:{line.line}: {line.reason}, {line.detail}: {ENCODING_HINT}")
        yield line


def format_result(result: CheckResult) -> str:
    """One line, and the advice below it."""
    line = f"{result.check:<23}{result.status:<7}{result.message}"
    return "\n".join([line, *(f"{'':<{INDENT}}{part}" for part in wrap(result.advice, WIDTH - INDENT))])
