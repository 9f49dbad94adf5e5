"""Columns of a text file: plain ones (.tsv, .txt), and CSV with quotes and a line that names them, whose separator is
sniffed from that line unless it is given.
"""

import csv
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from difflib import get_close_matches
from itertools import chain, islice
from shlex import quote

from regard.data.lines import ENCODING_HINT, BadRow, Lines, is_encoding_error

TAB = "\t"
SEPARATORS = (",", ";", TAB, "|")  # those of a CSV file that are looked for
SPELLED = {"tab": TAB, "\\t": TAB, "comma": ",", "semicolon": ";", "pipe": "|"}  # as they may be typed
SNIFFED = 20  # rows, beside that of the names

Cells = tuple[int, list[str]] | BadRow  # the cells of a row, with the number of its first line


def separator_of(typed: str) -> str:
    """One character, or its name."""
    separator = SPELLED.get(typed.lower(), typed)
    if len(separator) != 1 or separator in '"\r\n\0':
        raise ValueError(f"--separator is one character, e.g. ';' or ',', or tab, and not {typed!r}")
    return separator


def quote_names(names: Iterable[str]) -> str:
    return ", ".join(repr(name) for name in names)


def split_columns(lines: Lines, separator: str | None = None) -> Iterator[Cells]:
    """Plain columns between tabs, or another separator; quotes are letters like others."""
    for number, line in enumerate(lines, 1):
        yield line if isinstance(line, BadRow) else (number, line.split(separator or TAB))


def missing_columns(cells: list[str], needed: int, file: str, number: int, separator: str | None = None) -> BadRow:
    if not "".join(cells).strip():
        return BadRow(file, number, "empty", "the line is empty")
    between = "a tab" if separator in (None, TAB) else repr(separator)
    detail = f"the line has {len(cells)} of the {needed} columns needed, with {between} between them"
    return BadRow(file, number, "missing column", f"{detail}; --separator names another character")


def columns(rows: Iterator[Cells], file: str, fields: Sequence[str]) -> list[int]:
    """Numbers are taken as they are; for names the first line is read away, as the header."""
    if all(field.isdecimal() for field in fields):
        return numbered(fields, file)
    return named(fields, header_of(rows, file), file)


def header_of(rows: Iterator[Cells], file: str) -> list[str]:
    header = next(rows)
    if isinstance(header, BadRow):
        remedy = f": {ENCODING_HINT}" if is_encoding_error(header) else ""
        raise ValueError(f"{file}:1: {header.reason} in the line that names the columns: {header.detail}{remedy}")
    return header[1]


def numbered(fields: Sequence[str], file: str) -> list[int]:
    chosen = [int(field) - 1 for field in fields]
    if min(chosen) < 0:
        raise ValueError(f"{file}: there is no column 0; columns are counted from 1")
    return chosen


def named(fields: Sequence[str], names: list[str], file: str) -> list[int]:
    for field in fields:
        if field not in names:
            near = get_close_matches(field, names, 1)
            meant = f" (did you mean {near[0]!r}?)" if near else ""
            what = f"{file}:1: no column is named {field!r}{meant}; the first line names {quote_names(names)}"
            raise ValueError(f"{what}: {which(names, len(fields))}")
    return [names.index(field) for field in fields]


def which(names: Sequence[str], count: int) -> str:
    """How to say which columns or keys to read."""
    example = f", e.g. --fields {' '.join(map(quote, names))}" if len(names) == count else ""
    return f"say which to read, input first and answer last, with --fields{example}"


def csv_cells(
    lines: Lines, separator: str | None, known: Sequence[str], choose: Callable[[list[str]], Sequence[str]]
) -> Iterator[Cells]:
    """The chosen cells of every row of a CSV file, whose first line names the columns. `choose` picks fields from these
    names, and `known` are those that it may pick."""
    rows = csv_rows(lines, separator, known)
    names = header_of(rows, lines.file)
    fields = choose(names)
    by_number = all(field.isdecimal() for field in fields)
    chosen = numbered(fields, lines.file) if by_number else named(fields, names, lines.file)
    if max(chosen) >= len(names):
        what = f"the first line names {len(names)}: {quote_names(names)}"
        raise ValueError(f"{lines.file}:1: there is no column {max(chosen) + 1}: {what}")
    for row in rows:
        if isinstance(row, BadRow):
            yield row
            continue
        number, cells = row
        if len(cells) == len(names):
            yield number, [cells[column] for column in chosen]
        elif not "".join(cells).strip():
            yield BadRow(lines.file, number, "empty", "the line is empty")
        else:
            detail = f"the row has {len(cells)} columns, the first line names {len(names)}"
            yield BadRow(lines.file, number, "unequal counts", detail)


def csv_rows(lines: Lines, separator: str | None = None, fields: Sequence[str] = ()) -> Iterator[Cells]:
    """Rows of a CSV file. `fields` are names that the first row should have: they help to find the separator."""
    broken: list[BadRow] = []

    def feed() -> Iterator[str]:
        for line in lines:
            if isinstance(line, BadRow):
                broken.append(line)
            yield "\n" if isinstance(line, BadRow) else f"{line}\n"

    rest = feed()
    first = [] if separator else [*islice(rest, SNIFFED + 1)]
    reader = csv.reader(chain(first, rest), strict=True, delimiter=separator or sniffed(first, fields))
    while True:
        number = reader.line_num + 1
        try:
            cells = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            if reader.line_num > number:  # where the next row begins, nobody knows
                raise ValueError(f"{lines.file}:{number}: a quote opened here is not closed ({error})") from error
            yield BadRow(lines.file, number, "not CSV", str(error))
            continue
        bad = [one for one in broken if one.line <= reader.line_num]
        if bad:
            yield from bad
            broken[:] = broken[len(bad) :]
        else:
            yield number, cells


def sniffed(lines: Sequence[str], fields: Sequence[str]) -> str:
    """The separator that cuts the first line into the names asked for, or into columns that the next rows have too."""

    def fitness(separator: str) -> tuple[int, bool, int, int]:
        rows: list[list[str]] = []
        with suppress(csv.Error):  # a field beyond csv's limit: the rows before it tell
            rows.extend(csv.reader(lines, delimiter=separator))
        names = rows[0] if rows else []
        alike = sum(len(row) == len(names) for row in rows)
        return sum(field in names for field in fields), len(names) > 1, alike, len(names)

    return max(SEPARATORS, key=fitness)
