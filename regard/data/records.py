"""Records: the fields of every line of a table (TSV, CSV), of JSON lines or of two parallel files, plain or gzip; of
every row of Parquet and Arrow files.

Every line gives exactly one `Record` or one `BadRow`; only a quoted CSV field may span lines. A defect of a whole file
(missing, truncated, unknown format) raises a `ValueError` at once.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple, TypeVar

from regard.data.fields import OBJECT_SUFFIXES, field_value, file_suffixes, parallel_lines, read_objects, string_fields
from regard.data.lines import BadRow, Dialect, Lines, Note
from regard.data.tables import columns, csv_cells, missing_columns, quote_names, split_columns

R = TypeVar("R")
SINGLE_FILE_SUFFIXES = {".tsv", ".csv", *OBJECT_SUFFIXES}  # such a file contains inputs and targets


class Record(NamedTuple):
    inputs: list[str]
    answer: object  # a string, or any JSON value; with `answer_columns` a list
    file: str
    line: int
    answer_file: str  # another one if the files are parallel


class RecordFormat(NamedTuple):
    """Which fields are read, and what they are called in messages."""

    contents: str  # e.g. "texts and labels"
    names: tuple[tuple[str, ...], ...] = ()  # default names of each field, input first: the first that exists is read
    second: tuple[str, ...] = ()  # names of a second input, if there may be one
    width: int | None = None  # columns that are read of a table without a header; None: all of them, two or three
    text_answer: bool = False  # the answer is a text too
    answer_columns: bool = False  # all fields but the first are the answer
    nested: str | None = None  # key of an object in which the fields may be

    def select(self, fields: Sequence[str] | None, columns: Collection[str]) -> list[str]:
        """The fields to read of a file with these columns."""
        names = [*(fields or self.choose(columns))]
        if self.nested and self.nested in columns and not {*columns} >= {*names}:
            return [self.nested, *(name for name in names if name in columns)]
        return [*names[:1], *(name for name in names[1:] if name in columns)] if self.answer_columns else names

    def choose(self, available: Collection[str]) -> list[str]:
        """The default fields among the names of a header or an object."""
        first, *rest = (next((name for name in names if name in available), names[0]) for names in self.names)
        return [first, *[name for name in self.second if name in available][:1], *rest]


def read_records(
    files: Sequence[str | Path],
    fields: Sequence[str] | None,
    form: RecordFormat,
    dialect: Dialect,
    make_row: Callable[[Record], R | BadRow],
) -> Iterator[R | BadRow | Note]:
    """The row of every record. One file is a table (.tsv, .txt, .csv); one or several are JSON lines (.jsonl, .json),
    Parquet or Arrow (.parquet, .arrow, .feather); two other files are parallel, inputs and answers.

    `fields` name the inputs, then the answer: keys in JSON (data.text is a key in a nested object), column numbers from
    1, or names in the header of a table.
    """
    suffixes, parts = file_suffixes(files, dialect), [Lines(file, dialect.encoding) for file in files]
    records: Iterator[Record | BadRow]
    match suffixes:
        case [_, *_] if {*suffixes} <= {*OBJECT_SUFFIXES}:
            records = (record for part in parts for record in records_from_objects(part, fields, form))
        case [".tsv" | ".txt"]:
            records = records_from_table(parts[0], fields, form, dialect.separator)
        case [".csv"]:
            records = records_from_csv(parts[0], fields, form, dialect.separator)
        case [suffix]:
            problem = (
                f"a single file must be named .tsv, .txt, .csv, .jsonl (or these with .gz) or .parquet, not {suffix!r}"
            )
            raise ValueError(f"{files[0]}: {problem}; rename it, or give two parallel files, of {form.contents}")
        case [_, _] if SINGLE_FILE_SUFFIXES & {*suffixes}:
            problem = f"two files are read as parallel, {form.contents}, one a line in each"
            remedy = "but .tsv, .csv and .jsonl contain both; join them into one file"
            raise ValueError(f"{files[0]} {files[1]}: {problem}, {remedy}")
        case [_, _] if fields:
            raise ValueError(f"{files[0]} {files[1]}: parallel files have no fields like {' and '.join(fields)}")
        case [_, _]:
            records = parallel_records(*parts)
        case _:
            raise ValueError(f"{form.contents} come from one file or two parallel ones, not from {len(files)}")
    for record in records:
        yield record if isinstance(record, BadRow) else make_row(record)
    for part in parts:
        yield from part.notes()


def parallel_records(inputs: Lines, answers: Lines) -> Iterator[Record | BadRow]:
    for row in parallel_lines(inputs, answers):
        yield row if isinstance(row, BadRow) else Record([row[1]], row[2], inputs.file, row[0], answers.file)


def make_record(cells: Sequence[str], form: RecordFormat, file: str, line: int) -> Record:
    if form.answer_columns:
        return Record([cells[0]], list(cells[1:]), file, line, file)
    return Record(list(cells[:-1]), cells[-1], file, line, file)


def records_from_objects(lines: Lines, fields: Sequence[str] | None, form: RecordFormat) -> Iterator[Record | BadRow]:
    for item in read_objects(lines, partial(form.select, fields)):
        yield item if isinstance(item, BadRow) else record_of(item[1], fields, form, lines.file, item[0])


def record_of(
    row: Mapping[str, object], fields: Sequence[str] | None, form: RecordFormat, file: str, line: int
) -> Record | BadRow:
    names, inner = fields or form.choose(row), row.get(form.nested or "")
    if isinstance(inner, dict) and not row.keys() >= {*names}:
        row = {**row, **inner}
    count = 1 if form.answer_columns else len(names) if form.text_answer else len(names) - 1  # of texts
    texts = string_fields(row, names[:count], file, line)
    if isinstance(texts, BadRow):
        return texts
    answers = [field_value(row, name, file, line) for name in names[count:]]
    if form.answer_columns:
        return Record(texts, [None if isinstance(answer, BadRow) else answer for answer in answers], file, line, file)
    parts: list[object] = [*texts, *answers]
    *inputs, answer = parts
    return answer if isinstance(answer, BadRow) else Record([*map(str, inputs)], answer, file, line, file)


def records_from_table(
    lines: Lines, fields: Sequence[str] | None, form: RecordFormat, separator: str | None
) -> Iterator[Record | BadRow]:
    rows = split_columns(lines, separator)
    indices = columns(rows, lines.file, fields) if fields else [*range(form.width or 0)]
    fixed = bool(indices)
    for row in rows:
        if isinstance(row, BadRow):
            yield row
            continue
        number, cells = row
        if not indices and len(cells) > 1:
            indices = [*range(len(cells))]
            if len(cells) > 3:
                detail = f"{len(cells)} columns ({quote_names(cell[:40] for cell in cells)})"
                remedy = "name those to read with --fields, e.g. --fields 1 2"
                raise ValueError(f"{lines.file}:{number}: {detail}: {remedy}")
        if len(cells) <= max(indices, default=1):
            yield missing_columns(cells, max(indices, default=1) + 1, lines.file, number, separator)
        elif not fixed and len(cells) > len(indices):
            detail = f"the line has {len(cells)} columns, the first has {len(indices)}; is there a tab in a text?"
            yield BadRow(lines.file, number, "unequal counts", detail)
        else:
            yield make_record([cells[i] for i in indices], form, lines.file, number)


def records_from_csv(
    lines: Lines, fields: Sequence[str] | None, form: RecordFormat, separator: str | None
) -> Iterator[Record | BadRow]:
    """The first row is the header."""
    candidates = fields or [name for names in form.names for name in names]
    for item in csv_cells(lines, separator, candidates, lambda header: fields or form.choose(header)):
        yield item if isinstance(item, BadRow) else make_record(item[1], form, lines.file, item[0])
