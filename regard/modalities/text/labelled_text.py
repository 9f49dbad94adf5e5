"""Texts with labels or a number, from the files of `read_records`. A second text makes a pair: premise and hypothesis,
question and answer."""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TypeVar

from regard.data.lines import UTF8, BadRow, Dialect, Note
from regard.data.records import Record, RecordFormat, read_records
from regard.data.rows import Labels, Row
from regard.data.targets import LABEL_NAMES, VALUE_NAMES, parse_labels, parse_value
from regard.data.text_checks import check_text
from regard.modalities.text.parallel_text import Texts

Y = TypeVar("Y")
PAIR_NAMES = ("text2", "pair")  # of a second text


def read_labelled(
    files: Sequence[str | Path], fields: Sequence[str] | None = None, multi_label: bool = False, dialect: Dialect = UTF8
) -> Iterator[Row[Texts, Labels] | BadRow | Note]:
    """`fields` are text and label, or text, second text and label. By default a .tsv has two columns, or three for
    pairs, and no header; .csv and JSON use the names text, text2 or pair, label or labels."""
    return read_texts(files, fields, LABEL_NAMES, partial(parse_labels, multi_label=multi_label), dialect)


def read_regression(
    files: Sequence[str | Path], fields: Sequence[str] | None = None, dialect: Dialect = UTF8
) -> Iterator[Row[Texts, float] | BadRow | Note]:
    """As `read_labelled`, with a number in the field value instead of a label."""
    return read_texts(files, fields, VALUE_NAMES, parse_value, dialect)


def read_texts(
    files: Sequence[str | Path],
    fields: Sequence[str] | None,
    names: tuple[str, ...],
    parse: Callable[[Record], Y | BadRow],
    dialect: Dialect,
) -> Iterator[Row[Texts, Y] | BadRow | Note]:
    if fields and len(fields) not in (2, 3):
        raise ValueError(f"fields are text and {names[0]}, or text, text and {names[0]}, not {' '.join(fields)}")

    def make_row(record: Record) -> Row[Texts, Y] | BadRow:
        checks = (check_text("text", text, record.file, record.line) for text in record.inputs)
        target = next((bad for bad in checks if bad), None) or parse(record)
        if isinstance(target, BadRow):
            return target
        return Row(tuple(record.inputs), target, record.file, record.line, "\t".join(record.inputs))

    form = RecordFormat(f"texts and {names[-1]}", (("text",), names), PAIR_NAMES)
    return read_records(files, fields, form, dialect, make_row)
