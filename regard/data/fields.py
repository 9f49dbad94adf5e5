"""Fields of files: suffixes, parallel lines, and the objects of JSON lines, Parquet and Arrow files."""

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from itertools import zip_longest
from pathlib import Path

from regard.data.arrow_tables import ARROW_SUFFIXES, Select, arrow_rows, is_arrow_file
from regard.data.lines import PANDAS_READERS, UTF8, BadRow, Dialect, Lines, conversion_hint
from regard.data.tables import quote_names
from regard.json_files import reject_duplicate_keys

TABLE_SUFFIXES = (".tsv", ".txt", ".csv")  # files with a separator
OBJECT_SUFFIXES = (".jsonl", ".json", *ARROW_SUFFIXES)  # files of objects: rows whose fields have names


def file_suffixes(files: Sequence[str | Path], dialect: Dialect = UTF8) -> list[str]:
    """The suffixes of the files, without .gz. Refuses a missing file, a folder, a binary format, and a separator for
    files without columns."""
    for file in files:
        if not os.path.exists(file):  # Path.exists raises without permission
            raise ValueError(f"{file}: no such file")
        if os.path.isdir(file):
            raise ValueError(f"{file}: this is a folder; name the file or the two parallel files in it")
    suffixes = [Path(str(file).lower().removesuffix(".gz")).suffix for file in files]
    for file, suffix in zip(files, suffixes, strict=True):
        if suffix in PANDAS_READERS:
            hint = conversion_hint(str(file), PANDAS_READERS[suffix])
            raise ValueError(f"{file}: {suffix} files are not read; {hint}")
        if suffix in ARROW_SUFFIXES and not is_arrow_file(str(file)):
            raise ValueError(f"{file}: {suffix} files are compressed inside; unpack it with gunzip")
    if dialect.separator and (len(files) != 1 or suffixes[0] not in TABLE_SUFFIXES):
        names = " ".join(map(str, files))
        raise ValueError(f"{names}: --separator is for one file with columns, named {', '.join(TABLE_SUFFIXES)}")
    return suffixes


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


def read_objects(lines: Lines, select: Select) -> Iterator[tuple[int, dict[str, object]] | BadRow]:
    """The objects of a file with their numbers: of its lines of JSON, or of its rows. Of a Parquet or Arrow file, whose
    columns are known before its rows, `select` chooses the fields to read."""
    return arrow_rows(lines.file, select) if is_arrow_file(lines.file) else json_objects(lines)


def json_objects(lines: Lines) -> Iterator[tuple[int, dict[str, object]] | BadRow]:
    """One JSON object per line."""
    for number, line in enumerate(lines, 1):
        if isinstance(line, BadRow):
            yield line
            continue
        if not line.strip():
            yield BadRow(lines.file, number, "empty", "the line is empty")
            continue
        try:
            row: object = json.loads(line, object_pairs_hook=reject_duplicate_keys)
        except (ValueError, RecursionError) as error:
            yield BadRow(lines.file, number, "not JSON", str(error))
            continue
        if isinstance(row, dict):
            yield number, row
        else:
            yield BadRow(lines.file, number, "wrong type", f"the line is a {type(row).__name__}, not an object")


def string_fields(row: Mapping[str, object], fields: Sequence[str], file: str, number: int) -> list[str] | BadRow:
    """The values of the fields of a JSON object."""
    texts: list[str] = []
    for field in fields:
        value = field_value(row, field, file, number)
        if isinstance(value, BadRow):
            return value
        if not isinstance(value, str):
            return BadRow(file, number, "wrong type", f"field {field!r} is a {type(value).__name__}, not a string")
        texts.append(value)
    return texts


def field_value(row: Mapping[str, object], field: str, file: str, number: int) -> object:
    """The value of a field, or a `BadRow`. A dotted field descends into objects, and into lists by index: data.text,
    choices.0.text. A key that contains the dot takes precedence."""
    if field in row:
        return row[field]
    value: object = row
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
