"""Which files to learn from, and what they become: checked rows in sets named train, valid and test."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from shlex import quote
from typing import Any, NamedTuple

from regard.data.lines import Dialect, must_be_encoding
from regard.data.lint import Report, lint
from regard.data.tables import separator_of
from regard.data.text import hold_out
from regard.hub.files import read_json
from regard.validate import check_fields, matches_type

READ_BY: dict[str, Any] = {"fields": list[str], "separator": str, "encoding": str}  # with their types in JSON
NAMES = ("data", "valid", "test", "fields")  # options that name several things
USUAL, ENOUGH, MOST = 0.02, 300, 0.2  # share to validate on, the examples that it should be, and the share it may take


@dataclass(frozen=True)
class Files:
    """What to learn from."""

    data: tuple[str, ...] = ()  # the files to learn from; the bundled data if none
    valid: tuple[str, ...] = ()  # files to validate on; a share of the data is held out if none
    test: tuple[str, ...] = ()  # files to score the finished model on
    fields: tuple[str, ...] | None = None  # columns or keys to read (data.text is a key in another), answer last
    separator: str | None = None  # between columns: one character, or tab; of a .csv file it is found unless given
    encoding: str = "utf-8"  # of text files: utf-8, cp1252, utf-16 ...
    held_out: float | None = None  # share to validate on without --valid; 2 %, but 300 examples if a fifth allows it
    longest: int = 250  # words of a sentence above which it is a bad line
    skip_bad: bool = False  # go on without the bad lines

    def __post_init__(self) -> None:
        check_fields(
            self,
            **{name: (all(getattr(self, name) or ()), "names, none of them empty") for name in NAMES},
            held_out=(self.held_out is None or 0 < self.held_out < 1, "above 0 and below 1"),
            longest=(self.longest >= 1, "at least 1"),
        )
        must_be_encoding(self.encoding)
        if self.separator is not None:
            object.__setattr__(self, "separator", separator_of(self.separator))

    def share(self, examples: float) -> float:
        """How much of so many examples is held out: what is asked for, or enough to tell better weights from worse."""
        return self.held_out or max(USUAL, min(ENOUGH / max(examples, 1), MOST))

    @property
    def dialect(self) -> Dialect:
        return Dialect(self.encoding, self.separator)


def as_in_training(folder: Path, paths: tuple[str, ...], **typed: Any) -> tuple[Files, str]:
    """How to read files for a trained model: as `typed`; what is not typed (None) as in training, if that was on files
    of the same kind. Also what was taken from there, as options."""
    file = folder / "train.json"
    trained = read_json(file) if file.is_file() else {}
    chosen: dict[str, Any] = {name: value for name, value in typed.items() if value is not None}
    words = []
    if endings(trained.get("data")) == endings(paths):
        for name, kind in READ_BY.items():
            value = trained.get(name)
            if name in chosen or value in (None, getattr(Files, name)):
                continue
            if not matches_type(value, kind):
                raise ValueError(f"{file}: {name} cannot be {value!r:.80}: put it back, or say it with --{name}")
            chosen[name] = tuple(value) if isinstance(value, list) else value
            words.append(f"--{name} {' '.join(map(quote, value if isinstance(value, list) else [value]))}")
    return Files(data=paths, **chosen), " ".join(words)


def endings(paths: Any) -> set[str]:
    """Of the names of files, .gz aside."""
    return {Path(str(path).lower().removesuffix(".gz")).suffix for path in paths or ()}


class Data(NamedTuple):
    sets: dict[str, Any]  # train and valid, and test if there is one
    report: Report | None
    fingerprint: str  # the same for the same rows, wherever their files lie


Rows = Iterator[Any] | Iterable[Any]


def read_sets(files: Files, rows: Callable[[tuple[str, ...]], Rows], bundled: Callable[[], dict[str, Rows]]) -> Data:
    """Every set that was asked for, linted. `rows` reads files, `bundled` makes what ships with the package."""
    sets = {"train": rows(files.data)} if files.data else bundled()
    for name, given in (("valid", files.valid), ("test", files.test)):
        if given:
            sets[name] = rows(given)
    found, report = lint(sets, files.longest, files.skip_bad)
    if "valid" not in found:
        found["train"], found["valid"] = hold_out(found["train"], files.share(len(found["train"])))
    return Data(found, report, fingerprint(row.said for name in ("train", "valid") for row in found[name]))


def fingerprint(said: Iterable[str]) -> str:
    digest = hashlib.blake2b(digest_size=16)
    for text in said:
        digest.update(f"{text}\n".encode())
    return digest.hexdigest()
