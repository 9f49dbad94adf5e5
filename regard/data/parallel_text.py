"""Pairs of sentences from files: a table (TSV, CSV), two parallel files, or JSON lines; each plain or gzip.

Every line gives exactly one `Pair` or one `BadRow`. What spoils a whole file (it is missing, cut off, of no known kind)
is a `ValueError` at once. The readers of other rows are built on the same `parallel` and `objects`.
"""

import json
import os
from collections.abc import Iterable, Iterator, Sequence
from hashlib import blake2b
from itertools import zip_longest
from pathlib import Path
from typing import Any, NamedTuple, Protocol, TypeVar

from regard.data.lines import BINARY, UTF8, BadRow, Dialect, Lines, Note, to_convert
from regard.data.tables import columns, csv_cells, missing_columns, quote_names, split_columns
from regard.data.text_checks import check_text
from regard.hub.files import once

COLUMNS = (".tsv", ".txt", ".csv")  # files with a separator


class Row(Protocol):
    """What every reader makes of a line; it may also offer `texts`, those that must not be too long."""

    @property
    def input_key(self) -> str: ...  # the input, as one string: never both trained on and held out
    @property
    def row_key(self) -> str: ...  # input and answer, as one string
    @property
    def file(self) -> str: ...  # as given by the user
    @property
    def line(self) -> int: ...  # counted from 1


R = TypeVar("R", bound=Row)


class TextPair(NamedTuple):
    source: str
    target: str
    file: str
    line: int

    @property
    def input_key(self) -> str:
        return self.source

    @property
    def row_key(self) -> str:
        return f"{self.source}\t{self.target}"

    @property
    def texts(self) -> tuple[str, ...]:
        return self.source, self.target


def read_all_pairs(
    files: Sequence[str | Path], fields: tuple[str, str] | None = None
) -> tuple[list[TextPair], list[BadRow]]:
    """All that can be used of the files, and all that cannot."""
    items = list(read_pairs(files, fields))
    return [item for item in items if isinstance(item, TextPair)], [item for item in items if isinstance(item, BadRow)]


def read_pairs(
    files: Sequence[str | Path], fields: tuple[str, str] | None = None, dialect: Dialect = UTF8
) -> Iterator[TextPair | BadRow | Note]:
    """One file is a table (.tsv, .txt, .csv) or JSON lines (.jsonl, .json); two are parallel, a sentence a line.

    `fields` are the names of source and target: keys in JSON ("source" and "target" unless given, as in a .csv file;
    a path with dots goes into objects; languages find the form {"translation": {"en": ..., "de": ...}} too), column
    numbers from 1 or names in the first line of a table.
    """
    kinds, parts = file_suffixes(files, dialect), [Lines(file, dialect.encoding) for file in files]
    match kinds:
        case [".jsonl" | ".json"]:
            yield from json_lines(parts[0], fields or ("source", "target"))
        case [".tsv" | ".txt"]:
            yield from table(parts[0], fields, dialect.separator)
        case [".csv"]:
            yield from csv_pairs(parts[0], fields or ("source", "target"), dialect.separator)
        case [other]:
            raise ValueError(
                f"{files[0]}: a single file must be named .tsv, .txt, .csv or .jsonl (or these with .gz), "
                f"not {other!r}; rename it, or give two parallel files"
            )
        case [_, _] if {".jsonl", ".json", ".tsv", ".csv"} & {*kinds}:
            raise ValueError(
                f"{files[0]} {files[1]}: two files are read as parallel, a sentence a line in each, "
                "but .tsv, .csv and .jsonl hold whole pairs; join them into one file"
            )
        case [_, _] if fields:
            raise ValueError(f"{files[0]} {files[1]}: parallel files have no fields like {' and '.join(fields)}")
        case [_, _]:
            for row in parallel(*parts):
                yield row if isinstance(row, BadRow) else checked(row[1], row[2], parts[0].file, parts[1].file, row[0])
        case _:
            raise ValueError(f"pairs come from one file or from two parallel ones, not from {len(files)}")
    for part in parts:
        yield from part.notes()


def file_suffixes(files: Sequence[str | Path], dialect: Dialect = UTF8) -> list[str]:
    """How the files' names end, .gz aside; what is no file is refused, and a separator where there are no columns."""
    for file in files:
        if not os.path.exists(file):  # Path.exists raises where it may not look
            raise ValueError(f"{file}: no such file")
        if os.path.isdir(file):
            raise ValueError(f"{file}: this is a folder; name the file or the two parallel files in it")
    kinds = [Path(str(file).lower().removesuffix(".gz")).suffix for file in files]
    readers = dict(BINARY.values())
    for file, kind in zip(files, kinds, strict=True):
        if kind in readers:
            raise ValueError(f"{file}: {kind} files are not read; {to_convert(str(file), readers[kind])}")
    if dialect.separator and (len(files) != 1 or kinds[0] not in COLUMNS):
        names = " ".join(map(str, files))
        raise ValueError(f"{names}: no columns, so no --separator: it is for one file named {', '.join(COLUMNS)}")
    return kinds


def pairs_from_memory(pairs: Iterable[tuple[str, str]], name: str = "pairs") -> Iterator[TextPair | BadRow]:
    """Pairs made in Python, checked like those from a file; `name` stands where the file would."""
    return (checked(source, target, name, name, line) for line, (source, target) in enumerate(pairs, 1))


def parallel(left: Lines, right: Lines) -> Iterator[tuple[int, str, str] | BadRow]:
    for number, (one, other) in enumerate(zip_longest(left, right), 1):
        if one is None or other is None:
            continue  # counted to the end, to name both numbers below
        if isinstance(one, BadRow):
            yield one
        elif isinstance(other, BadRow):
            yield other
        else:
            yield number, one, other
    shorter, longer = sorted((left, right), key=lambda lines: lines.count)
    detail = f"{longer.file} has {longer.count} lines, but {shorter.file} ends after {shorter.count}"
    for number in range(shorter.count + 1, longer.count + 1):
        yield BadRow(longer.file, number, "unequal counts", detail)


def table(lines: Lines, fields: tuple[str, str] | None, separator: str | None = None) -> Iterator[TextPair | BadRow]:
    rows = split_columns(lines, separator)
    left, right = columns(rows, lines.file, fields) if fields else (0, 1)
    for row in rows:
        if isinstance(row, BadRow):
            yield row
            continue
        number, cells = row
        if left < len(cells) and right < len(cells):
            yield checked(cells[left], cells[right], lines.file, lines.file, number)
        else:
            yield missing_columns(cells, max(left, right) + 1, lines.file, number, separator)


def csv_pairs(lines: Lines, fields: tuple[str, str], separator: str | None) -> Iterator[TextPair | BadRow]:
    for item in csv_cells(lines, separator, fields, lambda _: fields):
        if isinstance(item, BadRow):
            yield item
        else:
            number, (source, target) = item
            yield checked(source, target, lines.file, lines.file, number)


def json_lines(lines: Lines, fields: tuple[str, str]) -> Iterator[TextPair | BadRow]:
    for item in json_objects(lines):
        yield item if isinstance(item, BadRow) else from_json(item[1], fields, lines.file, item[0])


def json_objects(lines: Lines) -> Iterator[tuple[int, dict[str, Any]] | BadRow]:
    """One JSON object a line."""
    for number, line in enumerate(lines, 1):
        if isinstance(line, BadRow):
            yield line
            continue
        if not line.strip():
            yield BadRow(lines.file, number, "empty", "the line is empty")
            continue
        try:
            row: Any = json.loads(line, object_pairs_hook=once)
        except (ValueError, RecursionError) as error:
            yield BadRow(lines.file, number, "not JSON", str(error))
            continue
        if isinstance(row, dict):
            yield number, row
        else:
            yield BadRow(lines.file, number, "wrong type", f"the line is a {type(row).__name__}, not an object")


def from_json(row: dict[str, Any], fields: tuple[str, str], file: str, number: int) -> TextPair | BadRow:
    if isinstance(row.get("translation"), dict) and not row.keys() >= {*fields}:
        row = row | row["translation"]
    found = strings(row, fields, file, number)
    return found if isinstance(found, BadRow) else checked(found[0], found[1], file, file, number)


def strings(row: dict[str, Any], fields: Sequence[str], file: str, number: int) -> list[str] | BadRow:
    """What stands in the fields of a JSON object."""
    values = [value_at(row, field, file, number) for field in fields]
    for field, value in zip(fields, values, strict=True):
        if isinstance(value, BadRow):
            return value
        if not isinstance(value, str):
            return BadRow(file, number, "wrong type", f"field {field!r} is a {type(value).__name__}, not a string")
    return values


def value_at(row: dict[str, Any], field: str, file: str, number: int) -> Any:
    """The value of a field, or a `BadRow`. A dot goes into an object, or into a list by number: data.text, choices.0.text;
    a key that has the dot itself goes first."""
    if field in row:
        return row[field]
    here: Any = row
    parts = field.split(".")
    for depth, part in enumerate(parts):
        if isinstance(here, dict) and part in here:
            here = here[part]
        elif isinstance(here, list) and part.isdecimal() and int(part) < len(here):
            here = here[int(part)]
        else:
            where = f"field {'.'.join(parts[:depth])!r}" if depth else "the line"
            has = quote_names(here) or "nothing" if isinstance(here, dict) else f"a {type(here).__name__}"
            detail = f"no field {field!r}; {where} has {has}: say which to read with --fields"
            return BadRow(file, number, "missing field", detail)
    return here


def checked(source: str, target: str, source_file: str, target_file: str, line: int) -> TextPair | BadRow:
    bad = check_text("source", source, source_file, line) or check_text("target", target, target_file, line)
    return bad or TextPair(source, target, source_file, line)


def normalize_text(sentence: str) -> str:
    """What two spellings of one sentence have in common: case and spaces do not count."""
    return " ".join(sentence.casefold().split())


def train_valid_split(rows: list[R], share: float, salt: str = "") -> tuple[list[R], list[R]]:
    """The rows to train on, and about `share` of them to hold out: nothing `asked` stands on both sides.

    A row is held out if the hash of what it asks is small. So it stays where it is when others come, go or change
    places.
    """
    if not 0 < share < 1:
        raise ValueError(f"the share to hold out must lie between 0 and 1, not {share}")
    places = [place(row.input_key, salt) for row in rows]
    if len({*places}) < 2:
        kind = "pairs" if all(isinstance(row, TextPair) for row in rows) else "examples"
        raise ValueError(f"cannot hold out {share} of {len(rows)} {kind} with {len({*places})} different inputs")
    limit = min(max(int(share * 2**64), min(places) + 1), max(places))  # neither side is empty
    kept = [row for row, hashed in zip(rows, places, strict=True) if hashed >= limit]
    held = [row for row, hashed in zip(rows, places, strict=True) if hashed < limit]
    return kept, held


def place(sentence: str, salt: str) -> int:
    return int.from_bytes(blake2b(f"{salt}\0{normalize_text(sentence)}".encode(), digest_size=8).digest())
