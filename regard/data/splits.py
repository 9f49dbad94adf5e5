"""Which files to learn from, and what they become: checked rows in sets named train, valid and test."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from shlex import quote
from typing import Any, NamedTuple

from regard.choose import fits, must
from regard.data.lines import Dialect, validate_encoding
from regard.data.lint import LintReport, lint
from regard.data.parallel_text import train_valid_split
from regard.data.tables import separator_of
from regard.hub.files import read_json

READ_OPTIONS: dict[str, Any] = {"fields": list[str], "separator": str, "encoding": str}  # with their types in JSON
NAMES = ("data", "valid", "test", "fields")  # options that name several things
USUAL, ENOUGH, MOST = 0.02, 300, 0.2  # share to validate on, the examples that it should be, and the share it may take


@dataclass(frozen=True)
class DataOptions:
    """What to learn from."""

    data: tuple[str, ...] = ()  # the files to learn from; the bundled data if none
    valid: tuple[str, ...] = ()  # files to validate on; a share of the data is held out if none
    test: tuple[str, ...] = ()  # files to score the finished model on
    fields: tuple[str, ...] | None = None  # columns or keys to read (data.text is a key in another), answer last
    separator: str | None = None  # between columns: one character, or tab; of a .csv file it is found unless given
    encoding: str = "utf-8"  # of text files: utf-8, cp1252, utf-16 ...
    valid_share: float | None = None  # share to validate on without --valid; 2 %, but 300 examples if a fifth allows it
    max_words: int = 250  # words of a sentence above which it is a bad line
    skip_bad: bool = False  # go on without the bad lines

    def __post_init__(self) -> None:
        must(
            self,
            **{name: (all(getattr(self, name) or ()), "names, none of them empty") for name in NAMES},
            valid_share=(self.valid_share is None or 0 < self.valid_share < 1, "above 0 and below 1"),
            max_words=(self.max_words >= 1, "at least 1"),
        )
        validate_encoding(self.encoding)
        if self.separator is not None:
            object.__setattr__(self, "separator", separator_of(self.separator))

    def valid_share_for(self, examples: float) -> float:
        """How much of so many examples is held out: what is asked for, or enough to tell better weights from worse."""
        return self.valid_share or max(USUAL, min(ENOUGH / max(examples, 1), MOST))

    @property
    def dialect(self) -> Dialect:
        return Dialect(self.encoding, self.separator)


def data_options_from_run(folder: Path, paths: tuple[str, ...], **typed: Any) -> tuple[DataOptions, str]:
    """How to read files for a trained model: as `typed`; what is not typed (None) as in training, if that was on files
    of the same kind. Also what was taken from there, as options."""
    file = folder / "train.json"
    trained = read_json(file) if file.is_file() else {}
    chosen: dict[str, Any] = {name: value for name, value in typed.items() if value is not None}
    words = []
    if endings(trained.get("data")) == endings(paths):
        for name, kind in READ_OPTIONS.items():
            value = trained.get(name)
            if name in chosen or value in (None, getattr(DataOptions, name)):
                continue
            if not fits(value, kind):
                raise ValueError(f"{file}: {name} cannot be {value!r:.80}: put it back, or say it with --{name}")
            chosen[name] = tuple(value) if isinstance(value, list) else value
            words.append(f"--{name} {' '.join(map(quote, value if isinstance(value, list) else [value]))}")
    return DataOptions(data=paths, **chosen), " ".join(words)


def endings(paths: Any) -> set[str]:
    """Of the names of files, .gz aside."""
    return {Path(str(path).lower().removesuffix(".gz")).suffix for path in paths or ()}


class Data(NamedTuple):
    sets: dict[str, Any]  # train and valid, and test if there is one
    report: LintReport | None
    fingerprint: str  # the same for the same rows, wherever their files lie


Rows = Iterator[Any] | Iterable[Any]


def read_sets(
    files: DataOptions, rows: Callable[[tuple[str, ...]], Rows], bundled: Callable[[], dict[str, Rows]]
) -> Data:
    """Every set that was asked for, linted. `rows` reads files, `bundled` makes what ships with the package."""
    sets = {"train": rows(files.data)} if files.data else bundled()
    for name, given in (("valid", files.valid), ("test", files.test)):
        if given:
            sets[name] = rows(given)
    found, report = lint(sets, files.max_words, files.skip_bad)
    if "valid" not in found:
        found["train"], found["valid"] = train_valid_split(found["train"], files.valid_share_for(len(found["train"])))
    return Data(found, report, fingerprint(row.row_key for name in ("train", "valid") for row in found[name]))


def fingerprint(said: Iterable[str]) -> str:
    digest = hashlib.blake2b(digest_size=16)
    for text in said:
        digest.update(f"{text}\n".encode())
    return digest.hexdigest()
