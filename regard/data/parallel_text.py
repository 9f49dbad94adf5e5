"""Sentence pairs from files: a table (TSV, CSV), two parallel files, or JSON lines; each plain or gzip.

Every line gives exactly one `TextPair` or one `BadRow`. A defect of a whole file (missing, truncated, unknown format)
raises a `ValueError` at once. The readers of other rows use `parallel_lines` and `json_objects` as well.
"""

import json
import os
from collections.abc import Iterable, Iterator, Sequence
from hashlib import blake2b
from itertools import zip_longest
from pathlib import Path
from typing import Any, NamedTuple, Protocol, TypeVar

from regard.data.lines import BINARY_FORMATS, UTF8, BadRow, Dialect, Lines, Note, conversion_hint
from regard.data.tables import columns, csv_cells, missing_columns, quote_names, split_columns
from regard.data.text_checks import check_text
from regard.json_files import reject_duplicate_keys

TABLE_SUFFIXES = (".tsv", ".txt", ".csv")  # files with a separator


class Row(Protocol):
    """One example, as the readers return it; a row of text also has `texts`, whose length lint limits."""

    @property
    def input_key(self) -> str: ...  # the input as a string; rows that share it stay in the same split
    @property
    def row_key(self) -> str: ...  # input and answer as a string; equal rows are duplicates
    @property
    def file(self) -> str: ...  # as the user named it
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


def read_pairs(
    files: Sequence[str | Path], fields: tuple[str, str] | None = None, dialect: Dialect = UTF8
) -> Iterator[TextPair | BadRow | Note]:
    """One file is a table (.tsv, .txt, .csv) or JSON lines (.jsonl, .json); two are parallel, one sentence per line.

    `fields` name source and target: keys in JSON, by default "source" and "target", as in a .csv file; a dotted key is
    looked up in nested objects, and language codes also match {"translation": {"en": ..., "de": ...}}. In a table they
    are column numbers from 1, or names in the header.
    """
    suffixes, parts = file_suffixes(files, dialect), [Lines(file, dialect.encoding) for file in files]
    match suffixes:
        case [".jsonl" | ".json"]:
            yield from pairs_from_json(parts[0], fields or ("source", "target"))
        case [".tsv" | ".txt"]:
            yield from pairs_from_table(parts[0], fields, dialect.separator)
        case [".csv"]:
            yield from pairs_from_csv(parts[0], fields or ("source", "target"), dialect.separator)
        case [suffix]:
            raise ValueError(
                f"{files[0]}: a single file must be named .tsv, .txt, .csv or .jsonl (or these with .gz), "
                f"not {suffix!r}; rename it, or give two parallel files"
            )
        case [_, _] if {".jsonl", ".json", ".tsv", ".csv"} & {*suffixes}:
            raise ValueError(
                f"{files[0]} {files[1]}: two files are read as parallel, one sentence per line in each, "
                "but .tsv, .csv and .jsonl contain pairs; join them into one file"
            )
        case [_, _] if fields:
            raise ValueError(f"{files[0]} {files[1]}: parallel files have no fields like {' and '.join(fields)}")
        case [_, _]:
            for row in parallel_lines(*parts):
                yield (
                    row if isinstance(row, BadRow) else check_pair(row[1], row[2], parts[0].file, parts[1].file, row[0])
                )
        case _:
            raise ValueError(f"pairs come from one file or from two parallel ones, not from {len(files)}")
    for part in parts:
        yield from part.notes()


def file_suffixes(files: Sequence[str | Path], dialect: Dialect = UTF8) -> list[str]:
    """The suffixes of the files, without .gz. Refuses a missing file, a folder, a binary format, and a separator for
    files without columns."""
    for file in files:
        if not os.path.exists(file):  # Path.exists raises without permission
            raise ValueError(f"{file}: no such file")
        if os.path.isdir(file):
            raise ValueError(f"{file}: this is a folder; name the file or the two parallel files in it")
    suffixes = [Path(str(file).lower().removesuffix(".gz")).suffix for file in files]
    pandas_readers = dict(BINARY_FORMATS.values())
    for file, suffix in zip(files, suffixes, strict=True):
        if suffix in pandas_readers:
            raise ValueError(
                f"{file}: {suffix} files are not read; {conversion_hint(str(file), pandas_readers[suffix])}"
            )
    if dialect.separator and (len(files) != 1 or suffixes[0] not in TABLE_SUFFIXES):
        names = " ".join(map(str, files))
        raise ValueError(f"{names}: --separator is for one file with columns, named {', '.join(TABLE_SUFFIXES)}")
    return suffixes


def pairs_from_memory(pairs: Iterable[tuple[str, str]], name: str = "pairs") -> Iterator[TextPair | BadRow]:
    """Check pairs as those of a file; `name` takes the place of the file name."""
    return (check_pair(source, target, name, name, line) for line, (source, target) in enumerate(pairs, 1))


def parallel_lines(left: Lines, right: Lines) -> Iterator[tuple[int, str, str] | BadRow]:
    for number, (left_line, right_line) in enumerate(zip_longest(left, right), 1):
        if left_line is None or right_line is None:
            continue  # go on counting, for the message below
        if isinstance(left_line, BadRow):
            yield left_line
        elif isinstance(right_line, BadRow):
            yield right_line
        else:
            yield number, left_line, right_line
    shorter, longer = sorted((left, right), key=lambda lines: lines.count)
    detail = f"{longer.file} has {longer.count} lines, but {shorter.file} ends after {shorter.count}"
    for number in range(shorter.count + 1, longer.count + 1):
        yield BadRow(longer.file, number, "unequal counts", detail)


def pairs_from_table(
    lines: Lines, fields: tuple[str, str] | None, separator: str | None = None
) -> Iterator[TextPair | BadRow]:
    rows = split_columns(lines, separator)
    left, right = columns(rows, lines.file, fields) if fields else (0, 1)
    for row in rows:
        if isinstance(row, BadRow):
            yield row
            continue
        number, cells = row
        if left < len(cells) and right < len(cells):
            yield check_pair(cells[left], cells[right], lines.file, lines.file, number)
        else:
            yield missing_columns(cells, max(left, right) + 1, lines.file, number, separator)


def pairs_from_csv(lines: Lines, fields: tuple[str, str], separator: str | None) -> Iterator[TextPair | BadRow]:
    for item in csv_cells(lines, separator, fields, lambda _: fields):
        if isinstance(item, BadRow):
            yield item
        else:
            number, (source, target) = item
            yield check_pair(source, target, lines.file, lines.file, number)


def pairs_from_json(lines: Lines, fields: tuple[str, str]) -> Iterator[TextPair | BadRow]:
    for item in json_objects(lines):
        yield item if isinstance(item, BadRow) else pair_from_object(item[1], fields, lines.file, item[0])


def json_objects(lines: Lines) -> Iterator[tuple[int, dict[str, Any]] | BadRow]:
    """One JSON object per line."""
    for number, line in enumerate(lines, 1):
        if isinstance(line, BadRow):
            yield line
            continue
        if not line.strip():
            yield BadRow(lines.file, number, "empty", "the line is empty")
            continue
        try:
            row: Any = json.loads(line, object_pairs_hook=reject_duplicate_keys)
        except (ValueError, RecursionError) as error:
            yield BadRow(lines.file, number, "not JSON", str(error))
            continue
        if isinstance(row, dict):
            yield number, row
        else:
            yield BadRow(lines.file, number, "wrong type", f"the line is a {type(row).__name__}, not an object")


def pair_from_object(row: dict[str, Any], fields: tuple[str, str], file: str, number: int) -> TextPair | BadRow:
    if isinstance(row.get("translation"), dict) and not row.keys() >= {*fields}:
        row = row | row["translation"]
    texts = string_fields(row, fields, file, number)
    return texts if isinstance(texts, BadRow) else check_pair(texts[0], texts[1], file, file, number)


def string_fields(row: dict[str, Any], fields: Sequence[str], file: str, number: int) -> list[str] | BadRow:
    """The values of the fields of a JSON object."""
    values = [field_value(row, field, file, number) for field in fields]
    for field, value in zip(fields, values, strict=True):
        if isinstance(value, BadRow):
            return value
        if not isinstance(value, str):
            return BadRow(file, number, "wrong type", f"field {field!r} is a {type(value).__name__}, not a string")
    return values


def field_value(row: dict[str, Any], field: str, file: str, number: int) -> Any:
    """The value of a field, or a `BadRow`. A dotted field descends into objects, and into lists by index: data.text,
    choices.0.text. A key that contains the dot takes precedence."""
    if field in row:
        return row[field]
    value: Any = row
    keys = field.split(".")
    for depth, key in enumerate(keys):
        if isinstance(value, dict) and key in value:
            value = value[key]
        elif isinstance(value, list) and key.isdecimal() and int(key) < len(value):
            value = value[int(key)]
        else:
            parent = f"field {'.'.join(keys[:depth])!r}" if depth else "the line"
            content = quote_names(value) or "nothing" if isinstance(value, dict) else f"a {type(value).__name__}"
            detail = f"no field {field!r}; {parent} has {content}: name the fields to read with --fields"
            return BadRow(file, number, "missing field", detail)
    return value


def check_pair(source: str, target: str, source_file: str, target_file: str, line: int) -> TextPair | BadRow:
    bad = check_text("source", source, source_file, line) or check_text("target", target, target_file, line)
    return bad or TextPair(source, target, source_file, line)


def normalize_text(sentence: str) -> str:
    """Case-folded, with single spaces: spellings that differ only in case and white space become equal."""
    return " ".join(sentence.casefold().split())


def train_valid_split(rows: list[R], share: float, salt: str = "") -> tuple[list[R], list[R]]:
    """The rows to train on, and about `share` of them to validate on. No `input_key` is on both sides.

    The hash of a row's input decides its side, so a row stays on its side when other rows are added, removed or
    reordered.
    """
    if not 0 < share < 1:
        raise ValueError(f"the share to validate on must lie between 0 and 1, not {share}")
    hashes = [hash_input(row.input_key, salt) for row in rows]
    if len({*hashes}) < 2:
        kind = "pairs" if all(isinstance(row, TextPair) for row in rows) else "examples"
        raise ValueError(f"cannot hold out {share} of {len(rows)} {kind} with {len({*hashes})} different inputs")
    limit = min(max(int(share * 2**64), min(hashes) + 1), max(hashes))  # neither side is empty
    train = [row for row, value in zip(rows, hashes, strict=True) if value >= limit]
    valid = [row for row, value in zip(rows, hashes, strict=True) if value < limit]
    return train, valid


def hash_input(text: str, salt: str) -> int:
    return int.from_bytes(blake2b(f"{salt}\0{normalize_text(text)}".encode(), digest_size=8).digest())
