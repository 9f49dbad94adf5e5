"""Data files and splits: linted rows in sets named train, valid and test."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from shlex import quote
from typing import Any, NamedTuple

from regard.data.lines import BadRow, Dialect, Note, validate_encoding
from regard.data.lint import LintReport, RowCheck, lint
from regard.data.rows import Row, train_valid_split
from regard.data.tables import parse_separator
from regard.json_files import read_json
from regard.validate import check_fields, matches_type

READ_OPTIONS: dict[str, object] = {"fields": list[str], "separator": str, "encoding": str}  # and their JSON types
LIST_OPTIONS = ("data", "valid", "test", "fields")
VALID_SHARE, VALID_EXAMPLES, MAX_VALID_SHARE = 0.02, 300, 0.2  # defaults: at least this share, or so many examples


@dataclass(frozen=True)
class DataOptions:
    """The data files, and how to read them."""

    data: tuple[str, ...] = ()  # training files, or hf:owner/name@revision on the hub; default: the bundled data
    valid: tuple[str, ...] = ()  # validation files; default: a share of the training data (--valid-share)
    test: tuple[str, ...] = ()  # test files, to score the trained model; default: none
    fields: tuple[str, ...] | None = None  # columns or keys to read, target last; data.text = key of a nested object
    separator: str | None = None  # column separator: one character, or tab; default: sniffed for .csv, else a tab
    encoding: str = "utf-8"  # encoding of text files: utf-8, cp1252, utf-16 ...
    valid_share: float | None = None  # share of --data to validate on; default: that of 300 examples, from 0.02 to 0.2
    skip_bad: bool = False  # skip bad lines instead of refusing the data

    def __post_init__(self) -> None:
        check_fields(
            self,
            **{name: (all(getattr(self, name) or ()), "names, none of them empty") for name in LIST_OPTIONS},
            valid_share=(self.valid_share is None or 0 < self.valid_share < 1, "above 0 and below 1"),
        )
        validate_encoding(self.encoding)
        if self.separator is not None:
            object.__setattr__(self, "separator", parse_separator(self.separator))

    def valid_share_for(self, examples: float) -> float:
        """The share of so many examples to validate on: the option, or enough examples to compare checkpoints."""
        return self.valid_share or max(VALID_SHARE, min(VALID_EXAMPLES / max(examples, 1), MAX_VALID_SHARE))

    @property
    def dialect(self) -> Dialect:
        return Dialect(self.encoding, self.separator)


def data_options_from_run(folder: Path, paths: tuple[str, ...], **overrides: object) -> tuple[DataOptions, str]:
    """How to read files for a trained model: by `overrides`; where one is None, as the training run did, if it read
    files with the same suffixes. Also the options that were taken from the run."""
    file = folder / "train.json"
    trained = read_json(file) if file.is_file() else {}
    values: dict[str, Any] = {name: value for name, value in overrides.items() if value is not None}
    options = []
    if suffixes(trained.get("data")) == suffixes(paths):
        for name, kind in READ_OPTIONS.items():
            value = trained.get(name)
            if name in values or value in (None, getattr(DataOptions, name)):
                continue
            if not matches_type(value, kind):
                raise ValueError(f"{file}: {name} cannot be {value!r:.80}: restore it, or set it with --{name}")
            values[name] = tuple(value) if isinstance(value, list) else value
            options.append(f"--{name} {' '.join(map(quote, value if isinstance(value, list) else [value]))}")
    return DataOptions(data=paths, **values), " ".join(options)


def suffixes(paths: Iterable[object] | None) -> set[str]:
    """The suffixes of the files, without .gz."""
    return {Path(str(path).lower().removesuffix(".gz")).suffix for path in paths or ()}


class Data(NamedTuple):
    sets: dict[str, Any]  # train, valid, and test if there is one
    report: LintReport | None
    fingerprint: str  # a hash of the rows of train and valid; independent of file names


Rows = Iterable[Row[object, object] | BadRow | Note]  # as a reader yields them


def read_sets(
    files: DataOptions,
    read: Callable[[tuple[str, ...]], Rows],
    synthetic: Callable[[], Mapping[str, Rows]],
    checks: Iterable[RowCheck] = (),
) -> Data:
    """The linted sets. `read` reads files, `synthetic` returns the data that ships with the package."""
    sets: dict[str, Rows] = {"train": read(files.data)} if files.data else {**synthetic()}
    for name, paths in (("valid", files.valid), ("test", files.test)):
        if paths:
            sets[name] = read(paths)
    linted, report = lint(sets, files.skip_bad, checks)
    if "valid" not in linted:
        share = files.valid_share_for(len(linted["train"]))
        linted["train"], linted["valid"] = train_valid_split(linted["train"], share)
    return Data(linted, report, fingerprint(row.row_key for name in ("train", "valid") for row in linted[name]))


def fingerprint(texts: Iterable[str]) -> str:
    digest = hashlib.blake2b(digest_size=16)
    for text in texts:
        digest.update(f"{text}\n".encode())
    return digest.hexdigest()
