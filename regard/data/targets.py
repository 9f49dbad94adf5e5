"""Targets of records: labels and numbers, from a cell of a table or a JSON value."""

import json
import math
import re
from collections.abc import Sequence

from regard.data.lines import BadRow
from regard.data.records import Record
from regard.data.rows import Labels
from regard.data.text_checks import check_label

LABEL_NAMES, VALUE_NAMES = ("label", "labels"), ("value",)  # default names of the field
TRUTH = {"1": True, "1.0": True, "0": False, "0.0": False, "": None}  # the values of a label column


def parse_labels(record: Record, multi_label: bool = False) -> Labels | BadRow:
    """One label; with `multi_label` any number: a list in JSON, elsewhere separated by , or |."""
    answer, parts = record.answer, [record.answer]
    if isinstance(answer, list):
        parts = answer
    elif multi_label and isinstance(answer, str):
        parts = [part for part in re.split("[,|]", answer) if part.strip()]
    if not multi_label and len(parts) != 1:
        detail = f"{len(parts)} labels, but an input has exactly one"
        return BadRow(record.answer_file, record.line, "wrong type", detail)
    for part in parts:
        if not isinstance(part, str | int):
            detail = f"the label is a {type(part).__name__}, not a string"
            return BadRow(record.answer_file, record.line, "wrong type", detail)
    names = [part.strip() if isinstance(part, str) else json.dumps(part) for part in parts]
    bad = next((bad for name in names if (bad := check_label("label", name, record.answer_file, record.line))), None)
    return bad or Labels(tuple(dict.fromkeys(names)))


def parse_label_columns(record: Record, names: Sequence[str], labels: Sequence[str] = ()) -> Labels | BadRow:
    """Labels of one column each: 1, 0, or empty if it is unknown, as are those of `labels` that have no column."""
    assert isinstance(record.answer, list)
    truths = [parse_truth(cell) for cell in record.answer]
    for name, truth in zip(names, truths, strict=True):
        if isinstance(truth, str):
            detail = f"{name} is {truth!r:.40}, but a label is 1, 0 or empty"
            return BadRow(record.file, record.line, "wrong type", detail)
    named = list(zip(names, truths, strict=True))
    unknown = (*(name for name, truth in named if truth is None), *(name for name in labels if name not in names))
    return Labels(tuple(name for name, truth in named if truth is True), unknown)


def parse_truth(cell: object) -> bool | str | None:
    """Whether a label applies; None if unknown, the cell itself if invalid."""
    if isinstance(cell, bool):
        return cell
    text = "" if cell is None else str(cell).strip()
    return TRUTH.get(text, text)


def parse_value(record: Record) -> float | BadRow:
    answer, place = record.answer, (record.answer_file, record.line)
    if isinstance(answer, bool) or not isinstance(answer, str | int | float):
        return BadRow(*place, "wrong type", f"the value is a {type(answer).__name__}, not a number")
    if isinstance(answer, str) and not answer.strip():
        return BadRow(*place, "empty", "the value is empty")
    try:
        value = math.nan if isinstance(answer, str) and "_" in answer else float(answer)  # Python reads 1_0 as 10
    except (ValueError, OverflowError):
        value = math.nan
    if math.isfinite(value):
        return value
    return BadRow(*place, "not a number", f"{str(answer)[:40]!r} is not a finite number")
