"""Texts with labels, or with a number, from files: a table (TSV, CSV), JSON lines or two parallel files; plain or gzip.

Every line gives one row or one `BadRow` (a quoted field of a CSV may go over several lines). A second text beside
the first makes a pair: premise and hypothesis, question and answer.
"""

import json
import math
import re
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from regard.data.lines import UTF8, BadRow, Dialect, Lines, Note
from regard.data.parallel_text import file_suffixes, json_objects, parallel, strings, value_at
from regard.data.tables import columns, csv_cells, missing_columns, quote_names, split_columns
from regard.data.text_checks import check_text, misnamed

WHOLE = {".tsv", ".csv", ".jsonl", ".json"}  # such a file holds texts and answers together


class LabelledText(NamedTuple):
    text: str
    pair: str | None
    labels: tuple[str, ...]
    file: str
    line: int

    @property
    def input_key(self) -> str:
        return "\t".join(self.texts)

    @property
    def row_key(self) -> str:
        return "\t".join((*self.texts, *self.labels))

    @property
    def texts(self) -> tuple[str, ...]:
        return (self.text,) if self.pair is None else (self.text, self.pair)


class RegressionText(NamedTuple):
    text: str
    pair: str | None
    value: float
    file: str
    line: int

    @property
    def input_key(self) -> str:
        return "\t".join(self.texts)

    @property
    def row_key(self) -> str:
        return f"{self.input_key}\t{self.value!r}"

    @property
    def texts(self) -> tuple[str, ...]:
        return (self.text,) if self.pair is None else (self.text, self.pair)


class RawRow(NamedTuple):
    """Texts that are checked, and an answer that is not yet."""

    text: str
    pair: str | None
    answer: Any  # a string, or whatever JSON holds
    file: str
    line: int
    answer_file: str


def read_labelled(
    files: Sequence[str | Path], fields: Sequence[str] | None = None, many: bool = False, dialect: Dialect = UTF8
) -> Iterator[LabelledText | BadRow | Note]:
    """One file is a table (.tsv, .txt, .csv) or JSON lines (.jsonl, .json); two are parallel: texts, labels.

    `fields` are text and label, or text, second text and label: keys in JSON (data.text is one in an object), column
    numbers from 1 or names in the first line of a table. Unless given, a .tsv has two columns or, for pairs, three, and
    no line of names; .csv and JSON name them text, text2 or pair, label or labels. `many`: any number of labels a text,
    a list in JSON, else with , or | between them.
    """
    for raw in read_raw_rows(files, fields, ("label", "labels"), dialect=dialect):
        if not isinstance(raw, RawRow):
            yield raw
            continue
        labels = parse_labels(raw, many)
        yield labels if isinstance(labels, BadRow) else LabelledText(raw.text, raw.pair, labels, raw.file, raw.line)


def read_regression(
    files: Sequence[str | Path], fields: Sequence[str] | None = None, dialect: Dialect = UTF8
) -> Iterator[RegressionText | BadRow | Note]:
    """As `read_labelled`, with a number, named value, in place of the label."""
    for raw in read_raw_rows(files, fields, ("value",), dialect=dialect):
        if not isinstance(raw, RawRow):
            yield raw
            continue
        value = parse_value(raw)
        yield value if isinstance(value, BadRow) else RegressionText(raw.text, raw.pair, value, raw.file, raw.line)


def parse_labels(raw: RawRow, many: bool) -> tuple[str, ...] | BadRow:
    parts: list[Any]
    if isinstance(raw.answer, list):
        parts = raw.answer
    elif many and isinstance(raw.answer, str):
        parts = [part for part in re.split("[,|]", raw.answer) if part.strip()]
    else:
        parts = [raw.answer]
    if not many and len(parts) != 1:
        return BadRow(raw.answer_file, raw.line, "wrong type", f"{len(parts)} labels, where a text has exactly one")
    for part in parts:
        if not isinstance(part, str | int):
            detail = f"the label is a {type(part).__name__}, not a string"
            return BadRow(raw.answer_file, raw.line, "wrong type", detail)
    labels = [part.strip() if isinstance(part, str) else json.dumps(part) for part in parts]
    bad = next((bad for label in labels if (bad := misnamed("label", label, raw.answer_file, raw.line))), None)
    return bad or tuple(dict.fromkeys(labels))


def parse_value(raw: RawRow) -> float | BadRow:
    said = raw.answer
    if isinstance(said, bool) or not isinstance(said, str | int | float):
        return BadRow(raw.answer_file, raw.line, "wrong type", f"the value is a {type(said).__name__}, not a number")
    if isinstance(said, str) and not said.strip():
        return BadRow(raw.answer_file, raw.line, "empty", "the value is empty")
    try:
        value = math.nan if isinstance(said, str) and "_" in said else float(said)  # to Python, 1_0 is 10
    except (ValueError, OverflowError):
        value = math.nan
    if math.isfinite(value):
        return value
    return BadRow(raw.answer_file, raw.line, "not a number", f"{str(said)[:40]!r} is no finite number")


def read_raw_rows(
    files: Sequence[str | Path],
    fields: Sequence[str] | None,
    answers: tuple[str, ...],
    text: str = "text",
    several: bool = False,
    dialect: Dialect = UTF8,
) -> Iterator[RawRow | BadRow | Note]:
    """`text` is the name of the text, and `answers` are those that the answer may have, where no fields are given. If
    `several`, all fields but the first are the answer, as a list."""
    if several:
        assert fields
        if len(fields) < 2:
            raise ValueError(f"fields are {text} and a column for each label, not {' '.join(fields)} alone")
    elif fields and len(fields) not in (2, 3):
        raise ValueError(f"fields are text and {answers[0]}, or text, text and {answers[0]}, not {' '.join(fields)}")
    kinds, parts = file_suffixes(files, dialect), [Lines(file, dialect.encoding) for file in files]
    match kinds:
        case [".jsonl" | ".json"]:
            yield from from_objects(parts[0], fields, (text, *answers), several)
        case [".tsv" | ".txt"]:
            yield from from_table(parts[0], fields, several, dialect.separator)
        case [".csv"]:
            yield from from_csv(parts[0], fields, (text, *answers), several, dialect.separator)
        case [other]:
            raise ValueError(
                f"{files[0]}: a single file must be named .tsv, .txt, .csv or .jsonl (or these with .gz), "
                f"not {other!r}; rename it, or give two parallel files, of texts and {answers[-1]}"
            )
        case [_, _] if WHOLE & {*kinds}:
            raise ValueError(
                f"{files[0]} {files[1]}: two files are read as parallel, texts and {answers[-1]}, "
                "but .tsv, .csv and .jsonl hold both; join them into one file"
            )
        case [_, _] if fields:
            raise ValueError(f"{files[0]} {files[1]}: parallel files have no fields like {' and '.join(fields)}")
        case [_, _]:
            for row in parallel(*parts):
                yield row if isinstance(row, BadRow) else raw_of([row[1]], row[2], parts[0].file, row[0], parts[1].file)
        case _:
            raise ValueError(f"texts and {answers[-1]} come from one file or two parallel ones, not from {len(files)}")
    for part in parts:
        yield from part.notes()


def raw_of(texts: Sequence[str], answer: Any, file: str, line: int, answer_file: str = "") -> RawRow | BadRow:
    bad = next((bad for text in texts if (bad := check_text("text", text, file, line))), None)
    return bad or RawRow(texts[0], texts[1] if len(texts) == 2 else None, answer, file, line, answer_file or file)


def parted(cells: Sequence[Any], several: bool) -> tuple[list[Any], Any]:
    """Texts and answer."""
    return ([cells[0]], list(cells[1:])) if several else (list(cells[:-1]), cells[-1])


def from_objects(
    lines: Lines, fields: Sequence[str] | None, names: tuple[str, ...], several: bool
) -> Iterator[RawRow | BadRow]:
    for item in json_objects(lines):
        if isinstance(item, BadRow):
            yield item
            continue
        number, row = item
        texts, answer = parted(fields or usual(row, names), several)
        found = strings(row, texts, lines.file, number)
        if isinstance(found, BadRow):
            yield found
        elif several:
            values = [value_at(row, name, lines.file, number) for name in answer]
            yield raw_of(found, [None if isinstance(value, BadRow) else value for value in values], lines.file, number)
        else:
            value = value_at(row, answer, lines.file, number)
            yield value if isinstance(value, BadRow) else raw_of(found, value, lines.file, number)


def usual(there: Collection[str], names: tuple[str, ...]) -> list[str]:
    text, *answers = names
    second = [name for name in ("text2", "pair") if name in there and text == "text"][:1]
    return [text, *second, next((name for name in answers if name in there), answers[0])]


def from_table(
    lines: Lines, fields: Sequence[str] | None, several: bool, separator: str | None
) -> Iterator[RawRow | BadRow]:
    rows = split_columns(lines, separator)
    chosen = columns(rows, lines.file, fields) if fields else []
    for row in rows:
        if isinstance(row, BadRow):
            yield row
            continue
        number, cells = row
        if not chosen and len(cells) > 1:
            chosen = [*range(len(cells))]
            if len(cells) > 3:
                what = f"{len(cells)} columns ({quote_names(cell[:40] for cell in cells)})"
                raise ValueError(f"{lines.file}:{number}: {what}: say which to read with --fields, e.g. --fields 1 2")
        if len(cells) <= max(chosen, default=1):
            yield missing_columns(cells, max(chosen, default=1) + 1, lines.file, number, separator)
        elif not fields and len(cells) > len(chosen):
            detail = f"the line has {len(cells)} columns, the first has {len(chosen)}; is there a tab in a text?"
            yield BadRow(lines.file, number, "unequal counts", detail)
        else:
            texts, answer = parted([cells[column] for column in chosen], several)
            yield raw_of(texts, answer, lines.file, number)


def from_csv(
    lines: Lines, fields: Sequence[str] | None, names: tuple[str, ...], several: bool, separator: str | None
) -> Iterator[RawRow | BadRow]:
    """The first line names the columns."""
    for item in csv_cells(lines, separator, fields or names, lambda header: fields or usual(header, names)):
        if isinstance(item, BadRow):
            yield item
        else:
            yield raw_of(*parted(item[1], several), lines.file, item[0])
