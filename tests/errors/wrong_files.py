"""Every field of every data file, broken in every way, and every file as a whole."""

from __future__ import annotations

import gzip
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from run_command import CommandResult, find_fault, folder_content, run_command
from valid_files import BROKEN, FORMS, Blob, Form, Objects, Part, Table, cache_options, tiny_options, write_form
from wrong_json import changed_documents
from wrong_places import REPLACEMENTS, replace_file, restore_file

from regard.json_files import read_json

LONG = "word " * 200_000  # 1 MB
BAD_CELLS = {"empty": b"", "blank": b" ", "no UTF-8": b"a\xffb", "zero byte": b"a\0b", "long": LONG.encode()}
FREE_TEXT_TASKS = ("write", "fill")  # their lines may be empty or long


class BrokenFile(NamedTuple):
    form: str
    file: str
    defect: str
    content: bytes | None  # None if the file is replaced by something else
    field: str = ""
    line: int = 0  # that the message must name; 0: the file is enough
    refused: bool = False  # whether it must be refused; otherwise it may be
    same_as_intact: bool = False  # whether it must be read as the intact file


def broken_cases(form: str) -> Iterator[BrokenFile]:
    for file, part in breakable_parts(FORMS[form]).items():
        intact = part.content()
        for defect in REPLACEMENTS:
            yield BrokenFile(form, file, defect, None, refused=defect != "missing" or not is_in_class_folder(file))
        yield BrokenFile(form, file, "nothing", b"", refused=True)
        yield BrokenFile(form, file, "zeros", bytes(len(intact)), refused=True)
        yield BrokenFile(form, file, "UTF-16", intact.decode("latin-1").encode("utf-16"), refused=True)
        if isinstance(part, Blob):
            yield from damaged_blobs(form, file, intact)
            continue
        yield BrokenFile(form, file, "BOM", b"\xef\xbb\xbf" + intact, same_as_intact=True)
        yield BrokenFile(form, file, "CRLF", intact.replace(b"\n", b"\r\n"), same_as_intact=True)
        yield BrokenFile(form, file, "gzip", gzip.compress(intact), same_as_intact=True)
        yield BrokenFile(form, file, "truncated gzip", gzip.compress(intact)[:-9], refused=True)
        yield BrokenFile(form, file, "blank lines", b"\n\n\n", refused=True)
        yield from broken_cells(form, file, part) if isinstance(part, Table) else broken_objects(form, file, part)


def is_in_class_folder(file: str) -> bool:
    return file.startswith("photos/") and file.count("/") == 2


def breakable_parts(form: Form) -> dict[str, Part]:
    """All parts, but only one of the images, audio files or series."""
    media = [name for name in form.parts if name.endswith((".png", ".wav", ".npy"))]
    return {name: part for name, part in form.parts.items() if name not in media or name == media[BROKEN % len(media)]}


def damaged_blobs(form: str, file: str, intact: bytes) -> Iterator[BrokenFile]:
    for eighths in range(1, 8):
        yield BrokenFile(form, file, "truncated", intact[: len(intact) * eighths // 8], refused=True)
    for i in range(0, min(64, len(intact)), 3):
        content = intact[:i] + bytes([intact[i] ^ 0x55]) + intact[i + 1 :]
        yield BrokenFile(form, file, "changed byte", content, str(i))
    yield BrokenFile(form, file, "pickle", b"\x80\x04\x95" + intact, refused=True)


def broken_cells(form: str, file: str, part: Table) -> Iterator[BrokenFile]:
    number = [number for number, row in enumerate(part.rows) if row][BROKEN + part.header_lines]
    row = part.rows[number]
    read_indices = read_columns(form, row)
    for column, cell in enumerate(row):
        for defect, content in BAD_CELLS.items():
            is_free = FORMS[form].task in FREE_TEXT_TASKS and defect not in ("no UTF-8", "zero byte")
            must_refuse = column in read_indices and not is_free
            table = with_row(part, number, [*row[:column], "HERE", *row[column + 1 :]]).replace(b"HERE", content)
            yield BrokenFile(form, file, defect, table, str(column), number + 1, must_refuse)
        for defect, altered in (
            ("missing", [*row[:column], *row[column + 1 :]]),
            ("too many", [*row[:column], cell, *row[column:]]),
        ):
            yield BrokenFile(form, file, defect, with_row(part, number, altered), str(column), number + 1)


def read_columns(form: str, row: list[str]) -> tuple[int, ...]:
    """The columns that are read. In parallel tag files an extra blank means nothing."""
    return {"conllu": (1, 3), "tags beside": ()}.get(form, tuple(range(len(row))))


def with_row(part: Table, number: int, row: list[str]) -> bytes:
    return Table([*part.rows[:number], row, *part.rows[number + 1 :]], part.separator).content()


def broken_objects(form: str, file: str, part: Objects) -> Iterator[BrokenFile]:
    number = min(BROKEN, len(part.rows) - 1)
    lines = part.content().splitlines(keepends=True)
    for case in changed_documents(part.rows[number]):
        content = b"".join([*lines[:number], case.text().encode() + b"\n", *lines[number + 1 :]])
        optional = case.field == "pair" or case.field[-1].isdigit()  # single texts and shorter lists are valid
        must_refuse = case.defect in ("null", "twice") or (case.defect == "missing" and not optional)
        yield BrokenFile(
            form, file, case.defect, content, case.field, number + 1 if form != "nested" else 0, must_refuse
        )
    yield BrokenFile(form, file, "truncated", part.content()[: len(part.content()) * 2 // 3], refused=True)


class FileTrial:
    """Start a training run on files of which one is broken, once per case."""

    def __init__(self, form: str, folder: Path):
        self.form, self.folder, self.run = FORMS[form], folder, folder / "run"
        self.data, self.valid = (write_form(self.form, folder / name) for name in ("data", "valid"))
        intact = self.start_run()
        assert intact.code == 0, intact.err
        self.fingerprint = read_json(self.run / "train.json")["fingerprint"]

    def start_run(self) -> CommandResult:
        shutil.rmtree(self.run, ignore_errors=True)
        task, model = self.form.task, self.form.model
        files = [
            "--data",
            *self.data,
            "--valid",
            *self.valid,
            "--output-dir",
            self.run,
            *cache_options(task, self.folder),
        ]
        return run_command(["train", task, *tiny_options(task, model, self.form.modality), *files])

    def try_case(self, case: BrokenFile) -> tuple[str, str]:
        """The outcome (refused, same or read), and its fault, if any."""
        intact = self.form.parts[case.file].content()
        replace_file(self.folder / "data" / case.file, case.defect, case.content)
        before = folder_content(self.folder / "data")
        result = self.start_run()
        was_changed = folder_content(self.folder / "data") != before
        restore_file(self.folder / "data" / case.file, intact)
        if was_changed:
            return "changed", "a file was changed"
        if result.code != 0:
            fault = find_fault(result, self.names(case)) or ("a run folder was left" if self.run.exists() else "")
            fault = fault or ("it equals the intact file" if case.same_as_intact else "")
            return "refused", f"{fault}: {result.err[-500:]}" if fault else ""
        same_as_intact = read_json(self.run / "train.json")["fingerprint"] == self.fingerprint
        misread = (case.refused or case.same_as_intact) and not same_as_intact
        return "same" if same_as_intact else "read", "it was read differently" if misread else ""

    def names(self, case: BrokenFile) -> list[str]:
        """The file and line that the message must name; of parallel files either."""
        files = [case.file] if len(self.form.data) == 1 else [*self.form.parts]
        return [f"{file}:{case.line}:" for file in files] if case.line else [*files, *self.data]
