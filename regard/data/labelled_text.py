"""Texts with labels or a number, from files: a table (TSV, CSV), JSON lines or two parallel files; plain or gzip.

Every line gives exactly one row or one `BadRow`; only a quoted CSV field may span lines. A second text makes a pair:
premise and hypothesis, question and answer.
"""

import json
import math
import re
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from regard.data.lines import UTF8, BadRow, Dialect, Lines, Note
from regard.data.parallel_text import field_value, file_suffixes, json_objects, parallel_lines, string_fields
from regard.data.tables import columns, csv_cells, missing_columns, quote_names, split_columns
from regard.data.text_checks import check_label, check_text

SINGLE_FILE_SUFFIXES = {".tsv", ".csv", ".jsonl", ".json"}  # such a file contains texts and answers


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
    """Checked texts, and an answer that is not parsed yet."""

    text: str
    pair: str | None
    answer: Any  # a string, or any JSON value
    file: str
    line: int
    answer_file: str


def read_labelled(
    files: Sequence[str | Path], fields: Sequence[str] | None = None, multi_label: bool = False, dialect: Dialect = UTF8
) -> Iterator[LabelledText | BadRow | Note]:
    """One file is a table (.tsv, .txt, .csv) or JSON lines (.jsonl, .json); two files are parallel: texts, labels.

    `fields` are text and label, or text, second text and label: keys in JSON (data.text is a key in a nested object),
    column numbers from 1, or names in the header of a table. By default a .tsv has two columns, or three for pairs, and
    no header; .csv and JSON use the names text, text2 or pair, label or labels. With `multi_label` a text has any
    number of labels: a list in JSON, elsewhere separated by , or |.
    """
    for raw in read_raw_rows(files, fields, ("label", "labels"), dialect=dialect):
        if not isinstance(raw, RawRow):
            yield raw
            continue
        labels = parse_labels(raw, multi_label)
        yield labels if isinstance(labels, BadRow) else LabelledText(raw.text, raw.pair, labels, raw.file, raw.line)


def read_regression(
    files: Sequence[str | Path], fields: Sequence[str] | None = None, dialect: Dialect = UTF8
) -> Iterator[RegressionText | BadRow | Note]:
    """As `read_labelled`, with a number in the field value instead of a label."""
    for raw in read_raw_rows(files, fields, ("value",), dialect=dialect):
        if not isinstance(raw, RawRow):
            yield raw
            continue
        value = parse_value(raw)
        yield value if isinstance(value, BadRow) else RegressionText(raw.text, raw.pair, value, raw.file, raw.line)


def parse_labels(raw: RawRow, multi_label: bool) -> tuple[str, ...] | BadRow:
    parts: list[Any]
    if isinstance(raw.answer, list):
        parts = raw.answer
    elif multi_label and isinstance(raw.answer, str):
        parts = [part for part in re.split("[,|]", raw.answer) if part.strip()]
    else:
        parts = [raw.answer]
    if not multi_label and len(parts) != 1:
        return BadRow(raw.answer_file, raw.line, "wrong type", f"{len(parts)} labels, but a text has exactly one")
    for part in parts:
        if not isinstance(part, str | int):
            detail = f"the label is a {type(part).__name__}, not a string"
            return BadRow(raw.answer_file, raw.line, "wrong type", detail)
    labels = [part.strip() if isinstance(part, str) else json.dumps(part) for part in parts]
    bad = next((bad for label in labels if (bad := check_label("label", label, raw.answer_file, raw.line))), None)
    return bad or tuple(dict.fromkeys(labels))


def parse_value(raw: RawRow) -> float | BadRow:
    answer = raw.answer
    if isinstance(answer, bool) or not isinstance(answer, str | int | float):
        return BadRow(raw.answer_file, raw.line, "wrong type", f"the value is a {type(answer).__name__}, not a number")
    if isinstance(answer, str) and not answer.strip():
        return BadRow(raw.answer_file, raw.line, "empty", "the value is empty")
    try:
        value = math.nan if isinstance(answer, str) and "_" in answer else float(answer)  # Python reads 1_0 as 10
    except (ValueError, OverflowError):
        value = math.nan
    if math.isfinite(value):
        return value
    return BadRow(raw.answer_file, raw.line, "not a number", f"{str(answer)[:40]!r} is not a finite number")


def read_raw_rows(
    files: Sequence[str | Path],
    fields: Sequence[str] | None,
    answer_names: tuple[str, ...],
    text: str = "text",
    label_columns: bool = False,
    dialect: Dialect = UTF8,
) -> Iterator[RawRow | BadRow | Note]:
    """By default the text is in the field `text` and the answer in one of `answer_names`. With `label_columns`, the
    answer is the list of all fields but the first."""
    if label_columns:
        assert fields
        if len(fields) < 2:
            raise ValueError(f"fields are {text} and one column per label, not {' '.join(fields)} alone")
    elif fields and len(fields) not in (2, 3):
        raise ValueError(
            f"fields are text and {answer_names[0]}, or text, text and {answer_names[0]}, not {' '.join(fields)}"
        )
    suffixes, parts = file_suffixes(files, dialect), [Lines(file, dialect.encoding) for file in files]
    match suffixes:
        case [".jsonl" | ".json"]:
            yield from raw_from_json(parts[0], fields, (text, *answer_names), label_columns)
        case [".tsv" | ".txt"]:
            yield from raw_from_table(parts[0], fields, label_columns, dialect.separator)
        case [".csv"]:
            yield from raw_from_csv(parts[0], fields, (text, *answer_names), label_columns, dialect.separator)
        case [suffix]:
            raise ValueError(
                f"{files[0]}: a single file must be named .tsv, .txt, .csv or .jsonl (or these with .gz), "
                f"not {suffix!r}; rename it, or give two parallel files, of texts and {answer_names[-1]}"
            )
        case [_, _] if SINGLE_FILE_SUFFIXES & {*suffixes}:
            raise ValueError(
                f"{files[0]} {files[1]}: two files are read as parallel, texts and {answer_names[-1]}, "
                "but .tsv, .csv and .jsonl contain both; join them into one file"
            )
        case [_, _] if fields:
            raise ValueError(f"{files[0]} {files[1]}: parallel files have no fields like {' and '.join(fields)}")
        case [_, _]:
            for row in parallel_lines(*parts):
                yield (
                    row if isinstance(row, BadRow) else make_raw([row[1]], row[2], parts[0].file, row[0], parts[1].file)
                )
        case _:
            raise ValueError(
                f"texts and {answer_names[-1]} come from one file or two parallel ones, not from {len(files)}"
            )
    for part in parts:
        yield from part.notes()


def make_raw(texts: Sequence[str], answer: Any, file: str, line: int, answer_file: str = "") -> RawRow | BadRow:
    bad = next((bad for text in texts if (bad := check_text("text", text, file, line))), None)
    return bad or RawRow(texts[0], texts[1] if len(texts) == 2 else None, answer, file, line, answer_file or file)


def split_cells(cells: Sequence[Any], label_columns: bool) -> tuple[list[Any], Any]:
    """The texts and the answer."""
    return ([cells[0]], list(cells[1:])) if label_columns else (list(cells[:-1]), cells[-1])


def raw_from_json(
    lines: Lines, fields: Sequence[str] | None, names: tuple[str, ...], label_columns: bool
) -> Iterator[RawRow | BadRow]:
    for item in json_objects(lines):
        if isinstance(item, BadRow):
            yield item
            continue
        number, row = item
        texts, answer = split_cells(fields or default_fields(row, names), label_columns)
        values = string_fields(row, texts, lines.file, number)
        if isinstance(values, BadRow):
            yield values
        elif label_columns:
            labels = [field_value(row, name, lines.file, number) for name in answer]
            yield make_raw(
                values, [None if isinstance(label, BadRow) else label for label in labels], lines.file, number
            )
        else:
            value = field_value(row, answer, lines.file, number)
            yield value if isinstance(value, BadRow) else make_raw(values, value, lines.file, number)


def default_fields(available: Collection[str], names: tuple[str, ...]) -> list[str]:
    text, *answer_keys = names
    second = [name for name in ("text2", "pair") if name in available and text == "text"][:1]
    return [text, *second, next((name for name in answer_keys if name in available), answer_keys[0])]


def raw_from_table(
    lines: Lines, fields: Sequence[str] | None, label_columns: bool, separator: str | None
) -> Iterator[RawRow | BadRow]:
    rows = split_columns(lines, separator)
    indices = columns(rows, lines.file, fields) if fields else []
    for row in rows:
        if isinstance(row, BadRow):
            yield row
            continue
        number, cells = row
        if not indices and len(cells) > 1:
            indices = [*range(len(cells))]
            if len(cells) > 3:
                detail = f"{len(cells)} columns ({quote_names(cell[:40] for cell in cells)})"
                raise ValueError(
                    f"{lines.file}:{number}: {detail}: name those to read with --fields, e.g. --fields 1 2"
                )
        if len(cells) <= max(indices, default=1):
            yield missing_columns(cells, max(indices, default=1) + 1, lines.file, number, separator)
        elif not fields and len(cells) > len(indices):
            detail = f"the line has {len(cells)} columns, the first has {len(indices)}; is there a tab in a text?"
            yield BadRow(lines.file, number, "unequal counts", detail)
        else:
            texts, answer = split_cells([cells[i] for i in indices], label_columns)
            yield make_raw(texts, answer, lines.file, number)


def raw_from_csv(
    lines: Lines, fields: Sequence[str] | None, names: tuple[str, ...], label_columns: bool, separator: str | None
) -> Iterator[RawRow | BadRow]:
    """The first row is the header."""
    for item in csv_cells(lines, separator, fields or names, lambda header: fields or default_fields(header, names)):
        if isinstance(item, BadRow):
            yield item
        else:
            yield make_raw(*split_cells(item[1], label_columns), lines.file, item[0])
