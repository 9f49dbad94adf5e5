"""Pairs of sentences from files: a table (TSV), two parallel files, or JSON lines; each plain or gzip.

Every line gives exactly one `Pair` or one `Bad`. What spoils a whole file (it is missing, cut off, of no known kind)
is a `ValueError` at once.
"""

import json
import os
from collections.abc import Iterable, Iterator, Sequence
from hashlib import blake2b
from itertools import zip_longest
from pathlib import Path
from typing import Any, NamedTuple

from regard.data.lines import Bad, Lines, Note


class Pair(NamedTuple):
    source: str
    target: str
    file: str  # as given by the user
    line: int  # counted from 1


def read_pairs(files: Sequence[str | Path], fields: tuple[str, str] | None = None) -> tuple[list[Pair], list[Bad]]:
    """All that can be used of the files, and all that cannot."""
    items = list(read(files, fields))
    return [item for item in items if isinstance(item, Pair)], [item for item in items if isinstance(item, Bad)]


def read(files: Sequence[str | Path], fields: tuple[str, str] | None = None) -> Iterator[Pair | Bad | Note]:
    """One file is a table (.tsv, .txt) or JSON lines (.jsonl, .json); two are parallel: a sentence a line in each.

    `fields` are the names of source and target: keys in JSON ("source" and "target" unless given; languages find the
    form {"translation": {"en": ..., "de": ...}} too), column numbers from 1 or names in the first line of a table.
    """
    for file in files:
        if not os.path.exists(file):  # Path.exists raises where it may not look
            raise ValueError(f"{file}: no such file")
        if os.path.isdir(file):
            raise ValueError(f"{file}: this is a folder; name the file or the two parallel files in it")
    kinds = [Path(str(file).lower().removesuffix(".gz")).suffix for file in files]
    parts = [Lines(file) for file in files]
    match kinds:
        case [".jsonl" | ".json"]:
            yield from json_lines(parts[0], fields or ("source", "target"))
        case [".tsv" | ".txt"]:
            yield from table(parts[0], fields)
        case [other]:
            raise ValueError(
                f"{files[0]}: a single file must be named .tsv, .txt or .jsonl (or these with .gz), not {other!r}; "
                "rename it, or give two parallel files"
            )
        case [_, _] if {".jsonl", ".json", ".tsv"} & {*kinds}:
            raise ValueError(
                f"{files[0]} {files[1]}: two files are read as parallel, a sentence a line in each, "
                "but .tsv and .jsonl hold whole pairs; join them into one file"
            )
        case [_, _] if fields:
            raise ValueError(f"{files[0]} {files[1]}: parallel files have no fields like {' and '.join(fields)}")
        case [_, _]:
            yield from parallel(parts[0], parts[1])
        case _:
            raise ValueError(f"pairs come from one file or from two parallel ones, not from {len(files)}")
    for part in parts:
        yield from part.notes()


def from_memory(pairs: Iterable[tuple[str, str]], name: str = "pairs") -> Iterator[Pair | Bad]:
    """Pairs made in Python, checked like those from a file; `name` stands where the file would."""
    return (whole(source, target, name, line) for line, (source, target) in enumerate(pairs, 1))


def parallel(sources: Lines, targets: Lines) -> Iterator[Pair | Bad]:
    for line, (source, target) in enumerate(zip_longest(sources, targets), 1):
        if source is None or target is None:
            continue  # counted to the end, to name both numbers below
        if isinstance(source, Bad):
            yield source
        elif isinstance(target, Bad):
            yield target
        else:
            yield checked(source, target, sources.file, targets.file, line)
    shorter, longer = sorted((sources, targets), key=lambda lines: lines.count)
    detail = f"{longer.file} has {longer.count} lines, but {shorter.file} ends after {shorter.count}"
    for line in range(shorter.count + 1, longer.count + 1):
        yield Bad(longer.file, line, "unequal counts", detail)


def table(lines: Lines, fields: tuple[str, str] | None) -> Iterator[Pair | Bad]:
    """Plain columns between tabs; quotes are letters like others."""
    rows = enumerate(lines, 1)
    left, right = columns(rows, lines.file, fields) if fields else (0, 1)
    for number, line in rows:
        if isinstance(line, Bad):
            yield line
            continue
        cells = line.split("\t")
        if left < len(cells) and right < len(cells):
            yield checked(cells[left], cells[right], lines.file, lines.file, number)
        elif not line.strip():
            yield Bad(lines.file, number, "empty", "the line is empty")
        else:
            detail = f"the line has {len(cells)} of the {max(left, right) + 1} columns needed, with a tab between them"
            yield Bad(lines.file, number, "missing column", detail)


def columns(rows: Iterator[tuple[int, str | Bad]], file: str, fields: tuple[str, str]) -> tuple[int, int]:
    """Two numbers are taken as they are; for names the first line is read away, as the header."""
    if all(field.isdecimal() for field in fields):
        left, right = (int(field) - 1 for field in fields)
        if min(left, right) < 0:
            raise ValueError(f"{file}: there is no column 0; columns are counted from 1")
        return left, right
    _, header = next(rows)
    if isinstance(header, Bad):
        raise ValueError(f"{file}:1: {header.why} in the line that names the columns: {header.detail}")
    names = header.split("\t")
    for field in fields:
        if field not in names:
            raise ValueError(f"{file}:1: no column is named {field!r}; the first line names {', '.join(names)}")
    return names.index(fields[0]), names.index(fields[1])


def json_lines(lines: Lines, fields: tuple[str, str]) -> Iterator[Pair | Bad]:
    for number, line in enumerate(lines, 1):
        if isinstance(line, Bad):
            yield line
        elif not line.strip():
            yield Bad(lines.file, number, "empty", "the line is empty")
        else:
            yield from_json(line, fields, lines.file, number)


def from_json(line: str, fields: tuple[str, str], file: str, number: int) -> Pair | Bad:
    try:
        row: Any = json.loads(line)
    except (ValueError, RecursionError) as error:
        return Bad(file, number, "not JSON", str(error))
    if not isinstance(row, dict):
        return Bad(file, number, "wrong type", f"the line is a {type(row).__name__}, not an object")
    if isinstance(row.get("translation"), dict) and not row.keys() >= {*fields}:
        row = row["translation"]
    for field in fields:
        if field not in row:
            return Bad(file, number, "missing field", f"no field {field!r}; the line has {', '.join(row) or 'none'}")
        if not isinstance(row[field], str):
            return Bad(file, number, "wrong type", f"field {field!r} is a {type(row[field]).__name__}, not a string")
    return whole(row[fields[0]], row[fields[1]], file, number)


def whole(source: str, target: str, file: str, line: int) -> Pair | Bad:
    """JSON and Python can spell half a character; UTF-8 cannot."""
    try:
        (source + target).encode()
    except UnicodeEncodeError as error:
        return Bad(file, line, "bad UTF-8", f"lone surrogate \\u{ord(error.object[error.start]):04x}")
    return checked(source, target, file, file, line)


def checked(source: str, target: str, source_file: str, target_file: str, line: int) -> Pair | Bad:
    for side, text, file in ("source", source, source_file), ("target", target, target_file):
        if not text or text.isspace():
            return Bad(file, line, "empty", f"the {side} is empty")
        if "\0" in text or "\r" in text:
            return Bad(file, line, "control character", f"the {side} holds {'NUL' if chr(0) in text else 'a lone CR'}")
    return Pair(source, target, source_file, line)


def fold(sentence: str) -> str:
    """What two spellings of one sentence have in common: case and spaces do not count."""
    return " ".join(sentence.casefold().split())


def hold_out(pairs: list[Pair], share: float, salt: str = "") -> tuple[list[Pair], list[Pair]]:
    """The pairs to train on, and about `share` of them to hold out: no source sentence stands on both sides.

    A sentence is held out if its hash is small. So it stays where it is when other pairs come, go or change places.
    """
    if not 0 < share < 1:
        raise ValueError(f"the share to hold out must lie between 0 and 1, not {share}")
    places = [place(pair.source, salt) for pair in pairs]
    if len({*places}) < 2:
        raise ValueError(f"cannot hold out {share} of {len(pairs)} pairs with {len({*places})} different sources")
    limit = min(max(int(share * 2**64), min(places) + 1), max(places))  # neither side is empty
    kept = [pair for pair, hashed in zip(pairs, places, strict=True) if hashed >= limit]
    held = [pair for pair, hashed in zip(pairs, places, strict=True) if hashed < limit]
    return kept, held


def place(sentence: str, salt: str) -> int:
    return int.from_bytes(blake2b(f"{salt}\0{fold(sentence)}".encode(), digest_size=8).digest())
