"""regard score MODEL files: the scores of a model on test files."""

from __future__ import annotations

import json
import sys
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Literal

from regard.batch_invariant import reproducible
from regard.cli.model_argument import FetchOptions, fetch_model, model_in_args
from regard.cli.options import parse
from regard.cli.run import decode_options_of, make_decoding
from regard.data.documents import DocumentOptions, DocumentStream, describe_amount
from regard.data.splits import READ_OPTIONS, DataOptions, data_options_from_run
from regard.hub.dataset_files import resolve_data
from regard.hub.task_config import read_task_name
from regard.load import load
from regard.options import Positional, make, options_of
from regard.tasks import TASKS
from regard.validate import check_fields


@dataclass
class ScoreOptions:
    """The model, the test files and how to read them."""

    model: Annotated[str, Positional]  # model folder, or a repository on the Hugging Face hub: owner/repo
    data: Annotated[tuple[str, ...], Positional] = ()  # test files, in the format of the training files
    fields: tuple[str, ...] | None = None  # columns or keys to read, target last; default: as in training
    separator: str | None = None  # column separator: one character, or tab; default: as in training
    encoding: str | None = None  # encoding of text files: utf-8, cp1252, utf-16 ...; default: as in training
    skip_bad: bool = False  # skip bad lines instead of refusing the file
    cache: str | None = None  # folder to cache the tokens of running text in; default: as in training
    predictions: str | None = None  # write the predictions to this file, one per line
    json: bool = False  # print the scores as one JSON object
    device: str = "auto"  # cpu, cuda or mps; auto = the best available
    speed: Literal["exact", "int8"] = "exact"  # exact = the tokens of float32; int8 = 8-bit weights, faster
    reproducible: bool = False  # batch-invariant kernels: each answer has the same bits in any batch; CPU only, slower

    def __post_init__(self) -> None:
        check_fields(self, speed=(not self.reproducible or self.speed == "exact", "exact with --reproducible"))


def main(args: list[str]) -> int:
    folder = model_in_args(args)
    kind = TASKS[read_task_name(folder) if folder else "translate"]
    command, decoding_options = options_of(ScoreOptions) | options_of(FetchOptions), decode_options_of(kind, folder)
    values = parse("regard score", args, command | decoding_options)
    decoding, options = make_decoding(kind, decoding_options, values), make(ScoreOptions, values)
    if not options.data:
        raise ValueError("score needs test files, in the format of the training files")
    speed = None if options.reproducible else options.speed
    folder = fetch_model(options.model, make(FetchOptions, values))
    read_options = {name: getattr(options, name) for name in READ_OPTIONS}
    files, from_training = data_options_from_run(folder, options.data, **read_options)
    if from_training:
        print(f"reading the files as in training: {from_training}", file=sys.stderr)
    fetching = make(FetchOptions, values)
    allowed = False if fetching.offline else fetching.download or None
    files = replace(files, data=resolve_data(DataOptions(test=files.data), allowed).test)
    loaded = load(folder, options.device, speed=speed)
    rows = loaded.rows(files.data, files.fields, options.skip_bad, files.dialect)
    if isinstance(rows, DocumentStream):
        rows.cache = Path(options.cache or DocumentOptions.cache).expanduser()
    elif options.cache:
        raise ValueError("--cache is for running text, whose tokens it stores: leave it out")
    with reproducible(loaded.model) if options.reproducible else nullcontext():
        scores = loaded.score(rows, decoding)
    answers = scores.pop("predictions")
    del scores["samples"]
    if options.predictions:
        with open(options.predictions, "w", encoding="utf-8") as stream:
            stream.writelines(f"{answer}\n" for answer in answers)
    if options.json:
        numbers = {name: None if value != value else value for name, value in scores.items()}  # JSON has no NaN
        print(json.dumps({"examples": len(answers), **numbers}))
    else:
        print(describe_amount(rows, loaded.modality.unit))
        for name, value in scores.items():
            print(f"{name:<24}{value:.2f}" if isinstance(value, float) else f"{name:<24}{value}")
    return 0
