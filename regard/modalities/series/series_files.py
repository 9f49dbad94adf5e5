"""Reads number series: channels over time, each an array (T,C).

.csv .tsv    one series a file: a line a time step, a column a channel. A first column of dates is left out
.npy         (T,) or (T,C), one series; (N,T,C), several
tables       with targets: files or numbers in one column and the target in another, or, as in the UCR archive, the
             target in the first column and the values in all others
folders      with labels: one folder for each label
"""

from __future__ import annotations

import json
import math
import os
import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import partial
from itertools import islice
from pathlib import Path
from tokenize import TokenError
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from regard.data.arrays import LOAD_LOCK
from regard.data.episodes import digest
from regard.data.fields import file_suffixes
from regard.data.lines import BadRow, Dialect, Lines, Note
from regard.data.media_files import class_files
from regard.data.records import Record, RecordFormat, read_records
from regard.data.rows import Labels, Row
from regard.data.tables import columns, csv_rows, split_columns
from regard.data.targets import LABEL_NAMES, VALUE_NAMES, parse_labels, parse_value
from regard.json_files import MAX_ARRAYS
from regard.modalities.protocols import ReadOptions, Target
from regard.validate import MAX_FLOAT

Values = npt.NDArray[np.float32]  # (T,C)
Y = TypeVar("Y")

SERIES_FORMATS = (".csv", ".tsv", ".txt", ".npy")
INPUT_NAMES = ("series", "values", "file", "path", "x")  # default names of the column of a table
MIN_UCR_COLUMNS = 4  # of a table whose columns are time steps
TIME = re.compile(r"\s*\d[\dT:+ .Z/-]*[:/-][\dT:+ .Z/-]*$")  # a date or a time of day


class SeriesError(ValueError):
    """A defect in one series, at a line of its file."""

    def __init__(self, detail: str, line: int = 1):
        super().__init__(detail)
        self.line = line


def parse_number(text: str) -> float:
    """NaN if it is no finite number; Python itself reads 1_0 as 10."""
    with suppress(ValueError):
        if "_" not in text and abs(value := float(text)) < MAX_FLOAT:
            return value
    return math.nan


def as_values(array: npt.NDArray[np.generic]) -> Values:
    values = array[:, None] if array.ndim == 1 else array
    if values.ndim != 2 or 0 in values.shape:
        raise SeriesError(f"a series has steps, or steps and channels, not the shape {array.shape}")
    if values.dtype.kind not in "iuf":
        raise SeriesError("the values are not numbers")
    if not (np.abs(values) < MAX_FLOAT).all():  # also refuses NaN
        raise SeriesError(f"a value is NaN, or beyond ±{MAX_FLOAT:g}: fill gaps first")
    return values.astype(np.float32)


def read_table(path: str | Path, fields: Sequence[str] | None, dialect: Dialect) -> Values:
    """One series; `fields` are its channels. Without them, all columns but a first one of dates."""
    lines = Lines(path, dialect.encoding)
    is_csv = str(path).lower().removesuffix(".gz").endswith(".csv")
    rows = csv_rows(lines, dialect.separator) if is_csv else split_columns(lines, dialect.separator)
    indices = columns(rows, lines.file, fields) if fields else None
    table: list[list[float]] = []
    for row in rows:
        if isinstance(row, BadRow):
            raise SeriesError(row.detail, row.line)
        number, cells = row
        if indices is None:
            if not cells:
                raise SeriesError("the line is empty", number)
            numbers = [not math.isnan(parse_number(cell)) for cell in cells]
            first = 1 if TIME.match(cells[0]) else 0
            if not all(numbers[first:]) and not table and number == 1:
                continue  # the header
            indices = [*range(first, len(cells))]
        if len(cells) <= max(indices, default=0):
            raise SeriesError(f"the line has {len(cells)} columns, but {max(indices) + 1} are needed", number)
        values = [parse_number(cells[i]) for i in indices]
        if (bad := next((i for i, value in zip(indices, values, strict=True) if math.isnan(value)), None)) is not None:
            raise SeriesError(f"{cells[bad][:40]!r} is not a finite number: fill gaps first", number)
        table.append(values)
    if not table:
        raise SeriesError("the file has no numbers")
    return as_values(np.array(table))


def read_npy(path: str | Path) -> list[Values]:
    try:
        with LOAD_LOCK:
            array = np.load(path, mmap_mode="r", allow_pickle=False)
        if array.nbytes > MAX_ARRAYS:
            raise SeriesError(f"over {MAX_ARRAYS >> 30} GB")
    except (ValueError, EOFError, SyntaxError, TokenError) as error:  # the header is parsed as Python
        raise SeriesError(f"not a .npy file of numbers: {str(error)[:80]}") from None
    return [as_values(series) for series in (array if array.ndim == 3 else array[None])]


def read_file(path: str | Path, fields: Sequence[str] | None, dialect: Dialect) -> list[Values]:
    [suffix] = file_suffixes([path])
    if suffix not in SERIES_FORMATS:
        raise ValueError(f"{path}: a series comes from a {', '.join(SERIES_FORMATS[:2])} or .npy file, not {suffix!r}")
    return read_npy(path) if suffix == ".npy" else [read_table(path, fields, dialect)]


def parse_values(text: str, folder: Path | None = None) -> Values:
    """JSON ([1, 2, 3], or [[1, 2], [3, 4]] with two channels), numbers with spaces, or a file, relative to `folder`."""
    if text.lstrip().startswith("["):
        try:
            return as_values(np.array(json.loads(text)))
        except (ValueError, RecursionError, OverflowError) as error:
            raise SeriesError(f"not a series: {str(error)[:100]}") from None
    cells = re.split(r"\s*[,\s]\s*", text.strip())
    numbers = [parse_number(cell) for cell in cells]
    if not any(map(math.isnan, numbers)):
        return as_values(np.array(numbers))
    if "" in cells:
        raise SeriesError("a number is missing: fill gaps first")
    [values, *rest] = read_file(text if folder is None else folder / text, None, Dialect())
    if rest:
        raise SeriesError(f"{text}: {len(rest) + 1} series, but one is needed")
    return values


def is_series_file(path: str) -> bool:
    """Whether a file holds numbers over time: .npy, or a table whose second line is numbers, perhaps after a date."""
    if path.lower().endswith(".npy"):
        return True
    if not path.lower().endswith(SERIES_FORMATS) or not os.path.isfile(path):
        return False
    lines = [line for line in islice(Lines(path), 2) if isinstance(line, str)]
    cells = re.split(r"[,;\t]", lines[-1]) if lines else [""]
    numbers = cells[1:] if TIME.match(cells[0]) and len(cells) > 1 else cells
    return not any(math.isnan(parse_number(cell)) for cell in numbers)


def read_series(
    paths: Sequence[str], fields: Sequence[str] | None, dialect: Dialect
) -> Iterator[Row[Values, None] | BadRow]:
    """Every series of every file, without targets."""
    file_suffixes(paths, dialect)
    for path in paths:
        try:
            for number, values in enumerate(read_file(path, fields, dialect), 1):
                yield series_row(values, None, str(path), number)
        except SeriesError as error:
            yield BadRow(str(path), error.line, "not a number", str(error))


def read_targets(paths: Sequence[str], how: ReadOptions) -> Iterator[Row[Values, object] | BadRow | Note]:
    """Series with labels or numbers."""
    if len(paths) == 1 and os.path.isdir(paths[0]):
        if how.target is Target.NUMBER or how.fields:
            raise ValueError(f"{paths[0]}: a folder has labels, and neither numbers nor fields: give a table of files")
        return read_folders(Path(paths[0]), how.dialect)
    is_number = how.target is Target.NUMBER
    parse = parse_value if is_number else partial(parse_labels, multi_label=how.multi_label)

    def make_row(record: Record) -> Row[Values, object] | BadRow:
        target = parse(record)
        if isinstance(target, BadRow):
            return target
        try:
            return series_row(parse_values(record.inputs[0], Path(paths[0]).parent), target, record.file, record.line)
        except ValueError as error:
            return BadRow(record.file, record.line, "not a number", str(error))

    if is_ucr(paths, how):
        return (make_row(row) if isinstance(row, Record) else row for row in ucr_records(paths[0], how.dialect))
    form = RecordFormat("series and targets", (INPUT_NAMES, VALUE_NAMES if is_number else LABEL_NAMES), width=2)
    return read_records(paths, how.fields, form, how.dialect, make_row)


def read_folders(folder: Path, dialect: Dialect) -> Iterator[Row[Values, Labels] | BadRow]:
    classes = sorted(path for path in folder.iterdir() if path.is_dir() and not path.name.startswith("."))
    for item in class_files(folder, classes, "series", "series"):
        if isinstance(item, BadRow):
            yield item
            continue
        for row in read_series([str(item.path)], None, dialect):
            yield row if isinstance(row, BadRow) else series_row(row.input, item.target, row.file, row.line)


def is_ucr(paths: Sequence[str], how: ReadOptions) -> bool:
    """Whether a table has a target and at least three values in every line."""
    if how.fields or len(paths) != 1 or file_suffixes(paths, how.dialect)[0] not in SERIES_FORMATS[:3]:
        return False
    line = next(iter(Lines(paths[0], how.dialect.encoding)), "")
    cells = re.split(r"[,\t]", line) if isinstance(line, str) else []
    return len(cells) >= MIN_UCR_COLUMNS and not any(math.isnan(parse_number(cell)) for cell in cells[1:])


def ucr_records(path: str, dialect: Dialect) -> Iterator[Record | BadRow]:
    for number, line in enumerate(Lines(path, dialect.encoding), 1):
        if isinstance(line, BadRow):
            yield line
        else:
            target, _, values = line.replace("\t", ",").partition(",")
            yield Record([values], target, path, number, path)


def series_row(values: Values, target: Y, file: str, line: int) -> Row[Values, Y]:
    return Row(values, target, file, line, digest(values))
