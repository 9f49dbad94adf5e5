"""Media files: in folders of their classes, and in tables (.tsv) of file names and texts."""

import os
from collections.abc import Callable, Collection, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Generic, NamedTuple, TypeVar

from regard.data.fields import file_suffixes
from regard.data.lines import BadRow, Dialect, Note, Reason
from regard.data.records import Record, RecordFormat, read_records
from regard.data.rows import Labels
from regard.data.text_checks import check_text

R = TypeVar("R")
Y = TypeVar("Y")
NO_SUCH_FILE = "no such file"
SYSTEM_FILES = ("Thumbs.db", "desktop.ini")  # written by operating systems; ignored, as are names that start with a dot
MAX_ENTRIES = 1000  # entries of a folder that `is_folder_of` looks at


class MediaFile(NamedTuple, Generic[Y]):
    """A file to decode, and the place that names it: a line of a table, or the file itself."""

    path: Path
    target: Y
    file: str
    line: int = 1
    name: str = ""  # as in the table

    def bad_row(self, problem: str, reason: Reason) -> BadRow:
        reason = "missing file" if problem == NO_SUCH_FILE else reason
        return BadRow(self.file, self.line, reason, f"{self.name}: {problem}" if self.name else problem)


def read_file_table(
    files: Sequence[Path],
    fields: Sequence[str] | None,
    nouns: tuple[str, str],
    dialect: Dialect,
    make_row: Callable[[MediaFile[str]], R | BadRow],
) -> Iterator[R | BadRow | Note]:
    """Names are relative to the table. `fields` are the two columns: numbers from 1, or names in the first line. In
    messages they are called `nouns`: image, caption."""
    if fields and len(fields) != 2:
        raise ValueError(f"fields are {' and '.join(nouns)}, not {' '.join(fields)}")
    if file_suffixes(files, dialect) not in ([".tsv"], [".txt"]):
        names = " ".join(map(str, files)) or "nothing"
        raise ValueError(f"{nouns[0]} files and {nouns[1]}s come from one .tsv file, not from {names}")

    def open_record(record: Record) -> R | BadRow:
        name, text, place = record.inputs[0], str(record.answer), (record.file, record.line)
        bad = check_text(nouns[0], name, *place) or check_text(nouns[1], text, *place)
        return bad or make_row(MediaFile(files[0].parent / name, text, *place, name))

    return read_records(files, fields, RecordFormat(f"{nouns[0]} files", width=2), dialect, open_record)


def class_files(folder: Path, classes: Sequence[Path], noun: str, plural: str) -> Iterator[MediaFile[Labels] | BadRow]:
    """The files in the folders of their classes."""
    if not classes:
        raise ValueError(f"{folder}: it has no folders; put the {plural} of each class into a folder with its name")
    for place in classes:
        files = [file for file in sorted(place.iterdir()) if file.name[0] != "." and file.name not in SYSTEM_FILES]
        if files and all(file.is_dir() for file in files):
            detail = f"folders, but no {plural}; if this is one of several sets, name it, not {folder}"
            raise ValueError(f"{place}: {detail}")
        if not files:
            yield BadRow(str(place), 1, "empty", f"this class has no {noun}")
        yield from (MediaFile(file, Labels((place.name,)), str(file)) for file in files)


def file_problem(file: Path, plural: str, formats: Collection[str]) -> str | None:
    """Why a file cannot be decoded, if its name or its kind tells."""
    if not os.path.exists(file):
        return NO_SUCH_FILE
    if file.suffix.lower() not in formats:
        return f"{plural} are named {', '.join(formats)}, not {file.suffix!r}"
    return None if file.is_file() else "it is a folder, a pipe or a device, not a file"


def is_folder_of(path: str, matches: Callable[[str], bool]) -> bool:
    """Whether most files of a folder and of its subfolders match, by their names in lower case."""
    if not os.path.isdir(path):
        return False
    names: list[str] = []
    for folder in (path, *(entry.path for entry in islice(os.scandir(path), MAX_ENTRIES) if entry.is_dir())):
        files = (entry.name.lower() for entry in islice(os.scandir(folder), MAX_ENTRIES) if entry.is_file())
        names += [name for name in files if name[0] != "." and name not in map(str.lower, SYSTEM_FILES)]
    return 2 * sum(map(matches, names)) > len(names)
