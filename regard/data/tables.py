"""Columns of a text file: plain (.tsv, .txt), or CSV with quotes and a header line.

The separator of a CSV file is sniffed from its first rows unless --separator names it.
"""

import csv
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from difflib import get_close_matches
from itertools import chain, islice
from shlex import quote

from regard.data.lines import ENCODING_HINT, BadRow, Lines, is_encoding_error

TAB = "\t"
SEPARATORS = (",", ";", TAB, "|")  # candidates when a CSV file is sniffed
SEPARATOR_NAMES = {"tab": TAB, "\\t": TAB, "comma": ",", "semicolon": ";", "pipe": "|"}
SNIFF_ROWS = 20  # rows that are sniffed after the header

Cells = tuple[int, list[str]] | BadRow  # the number of the first line of a row, and its cells


def parse_separator(value: str) -> str:
    """The separator that --separator names: one character, or its name."""
    separator = SEPARATOR_NAMES.get(value.lower(), value)
    if len(separator) != 1 or separator in '"\r\n\0':
        raise ValueError(f"--separator is one character, e.g. ';' or ',', or the word tab, not {value!r}")
    return separator


def quote_names(names: Iterable[str]) -> str:
    return ", ".join(repr(name) for name in names)


def split_columns(lines: Lines, separator: str | None = None) -> Iterator[Cells]:
    """Plain columns; the separator is a tab unless given, and quotes have no meaning."""
    for number, line in enumerate(lines, 1):
        yield line if isinstance(line, BadRow) else (number, line.split(separator or TAB))


def missing_columns(cells: list[str], needed: int, file: str, number: int, separator: str | None = None) -> BadRow:
    if not "".join(cells).strip():
        return BadRow(file, number, "empty", "the line is empty")
    character = "a tab" if separator in (None, TAB) else repr(separator)
    detail = f"the line has {len(cells)} of the {needed} columns needed, separated by {character}"
    return BadRow(file, number, "missing column", f"{detail}; --separator sets another separator")


def columns(rows: Iterator[Cells], file: str, fields: Sequence[str]) -> list[int]:
    """The indices of `fields`: column numbers from 1, or names; names consume the first row, the header."""
    if all(field.isdecimal() for field in fields):
        return parse_column_numbers(fields, file)
    return find_columns(fields, read_header(rows, file), file)


def read_header(rows: Iterator[Cells], file: str) -> list[str]:
    header = next(rows)
    if isinstance(header, BadRow):
        remedy = f": {ENCODING_HINT}" if is_encoding_error(header) else ""
        raise ValueError(f"{file}:1: {header.reason} in the header: {header.detail}{remedy}")
    return header[1]


def parse_column_numbers(fields: Sequence[str], file: str) -> list[int]:
    indices = [int(field) - 1 for field in fields]
    if min(indices) < 0:
        raise ValueError(f"{file}: there is no column 0; columns are counted from 1")
    return indices


def find_columns(fields: Sequence[str], header: list[str], file: str) -> list[int]:
    for field in fields:
        if field not in header:
            matches = get_close_matches(field, header, 1)
            suggestion = f" (did you mean {matches[0]!r}?)" if matches else ""
            detail = f"{file}:1: no column is named {field!r}{suggestion}; the header names {quote_names(header)}"
            example = f", e.g. --fields {' '.join(map(quote, header))}" if len(header) == len(fields) else ""
            remedy = f"name the columns to read with --fields, input first and answer last{example}"
            raise ValueError(f"{detail}: {remedy}")
    return [header.index(field) for field in fields]


def csv_cells(
    lines: Lines, separator: str | None, candidates: Sequence[str], choose: Callable[[list[str]], Sequence[str]]
) -> Iterator[Cells]:
    """The selected cells of every row of a CSV file with a header. `choose` selects fields from the header;
    `candidates` are the fields that it may select."""
    rows = csv_rows(lines, separator, candidates)
    header = read_header(rows, lines.file)
    fields = choose(header)
    by_number = all(field.isdecimal() for field in fields)
    indices = parse_column_numbers(fields, lines.file) if by_number else find_columns(fields, header, lines.file)
    if max(indices) >= len(header):
        detail = f"the header names {len(header)}: {quote_names(header)}"
        raise ValueError(f"{lines.file}:1: there is no column {max(indices) + 1}: {detail}")
    for row in rows:
        if isinstance(row, BadRow):
            yield row
            continue
        number, cells = row
        if len(cells) == len(header):
            yield number, [cells[i] for i in indices]
        elif not "".join(cells).strip():
            yield BadRow(lines.file, number, "empty", "the line is empty")
        else:
            detail = f"the row has {len(cells)} columns, the header names {len(header)}"
            yield BadRow(lines.file, number, "unequal counts", detail)


def csv_rows(lines: Lines, separator: str | None = None, fields: Sequence[str] = ()) -> Iterator[Cells]:
    """Rows of a CSV file. `fields` are names that the header should contain; they help to sniff the separator."""
    bad_lines: list[BadRow] = []

    def feed() -> Iterator[str]:
        for line in lines:
            if isinstance(line, BadRow):
                bad_lines.append(line)
            yield "\n" if isinstance(line, BadRow) else f"{line}\n"

    rest = feed()
    first = [] if separator else [*islice(rest, SNIFF_ROWS + 1)]
    reader = csv.reader(chain(first, rest), strict=True, delimiter=separator or sniff_separator(first, fields))
    while True:
        number = reader.line_num + 1
        try:
            cells = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            if reader.line_num > number:  # the start of the next row is unknown
                raise ValueError(f"{lines.file}:{number}: a quote opened here is not closed ({error})") from error
            yield BadRow(lines.file, number, "not CSV", str(error))
            continue
        bad = [row for row in bad_lines if row.line <= reader.line_num]
        if bad:
            yield from bad
            bad_lines[:] = bad_lines[len(bad) :]
        else:
            yield number, cells


def sniff_separator(lines: Sequence[str], fields: Sequence[str]) -> str:
    """The separator that gives a header with most of `fields`, then most rows as long as the header."""

    def fitness(separator: str) -> tuple[int, bool, int, int]:
        rows: list[list[str]] = []
        with suppress(csv.Error):  # a field beyond the limit of csv: use the rows before it
            rows.extend(csv.reader(lines, delimiter=separator))
        header = rows[0] if rows else []
        same_length = sum(len(row) == len(header) for row in rows)
        return sum(field in header for field in fields), len(header) > 1, same_length, len(header)

    return max(SEPARATORS, key=fitness)
