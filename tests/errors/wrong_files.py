"""Every field of every file that is learnt from, broken in every way; and every such file as a whole."""

from __future__ import annotations

import gzip
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from telling import Told, content, fault, told
from valid import BROKEN, FORMS, Blob, Form, Objects, Part, Table, cached, small, written
from wrong_json import changed
from wrong_places import PLACES, put, put_back

from regard.hub.files import read_json

LONG = "word " * 200_000  # a megabyte
CELLS = {"empty": b"", "blank": b" ", "no UTF-8": b"a\xffb", "zero byte": b"a\0b", "long": LONG.encode()}
FREE = ("write", "fill")  # tasks that read any text, with lines that are empty or long


class Broken(NamedTuple):
    form: str
    file: str
    how: str
    content: bytes | None  # None if something else stands in its place
    place: str = ""  # the field
    line: int = 0  # which the message has to name; 0 if the file is enough
    refused: bool = False  # it must be; otherwise it may be
    alike: bool = False  # it must be read as the whole one


def broken(form: str) -> Iterator[Broken]:
    for file, part in chosen(FORMS[form]).items():
        whole = part.content()
        for how in PLACES:
            yield Broken(form, file, how, None, refused=how != "missing" or not is_one_of_many(file))
        yield Broken(form, file, "nothing", b"", refused=True)
        yield Broken(form, file, "zeros", bytes(len(whole)), refused=True)
        yield Broken(form, file, "UTF-16", whole.decode("latin-1").encode("utf-16"), refused=True)
        if isinstance(part, Blob):
            yield from cut(form, file, whole)
            continue
        yield Broken(form, file, "a mark in front", b"\xef\xbb\xbf" + whole, alike=True)
        yield Broken(form, file, "lines of Windows", whole.replace(b"\n", b"\r\n"), alike=True)
        yield Broken(form, file, "packed", gzip.compress(whole), alike=True)
        yield Broken(form, file, "packed and cut", gzip.compress(whole)[:-9], refused=True)
        yield Broken(form, file, "blank lines", b"\n\n\n", refused=True)
        yield from cells(form, file, part) if isinstance(part, Table) else values(form, file, part)


def is_one_of_many(file: str) -> bool:
    return file.startswith("photos/") and file.count("/") == 2


def chosen(form: Form) -> dict[str, Part]:
    """One picture or sound stands for the others."""
    pictures = [name for name in form.parts if name.endswith((".png", ".wav"))]
    return {name: part for name, part in form.parts.items() if name not in pictures or name == pictures[BROKEN]}


def cut(form: str, file: str, whole: bytes) -> Iterator[Broken]:
    for share in range(1, 8):
        yield Broken(form, file, "cut off", whole[: len(whole) * share // 8], refused=True)
    for place in range(0, min(64, len(whole)), 3):
        other = whole[:place] + bytes([whole[place] ^ 0x55]) + whole[place + 1 :]
        yield Broken(form, file, "another byte", other, str(place))
    yield Broken(form, file, "a program", b"\x80\x04\x95" + whole, refused=True)


def cells(form: str, file: str, part: Table) -> Iterator[Broken]:
    number = [number for number, row in enumerate(part.rows) if row][BROKEN + part.head]
    row = part.rows[number]
    read = read_columns(form, row)
    for column, cell in enumerate(row):
        for how, other in CELLS.items():
            must = column in read and (FORMS[form].task not in FREE or how in ("no UTF-8", "zero byte"))
            made = with_row(part, number, [*row[:column], "HERE", *row[column + 1 :]]).replace(b"HERE", other)
            yield Broken(form, file, how, made, str(column), number + 1, must)
        for how, cells in (
            ("missing", [*row[:column], *row[column + 1 :]]),
            ("too many", [*row[:column], cell, *row[column:]]),
        ):
            yield Broken(form, file, how, with_row(part, number, cells), str(column), number + 1)


def read_columns(form: str, row: list[str]) -> tuple[int, ...]:
    """Most of CoNLL-U's are not looked at, and of words between blanks one more blank says nothing."""
    return {"conllu": (1, 3), "tags beside": ()}.get(form, tuple(range(len(row))))


def with_row(part: Table, number: int, row: list[str]) -> bytes:
    return Table([*part.rows[:number], row, *part.rows[number + 1 :]], part.between).content()


def values(form: str, file: str, part: Objects) -> Iterator[Broken]:
    number = min(BROKEN, len(part.rows) - 1)
    lines = part.content().splitlines(keepends=True)
    for one in changed(part.rows[number]):
        other = b"".join([*lines[:number], one.text().encode() + b"\n", *lines[number + 1 :]])
        may_miss = one.place == "pair" or one.place[-1].isdigit()  # single texts, and shorter lists, are none too
        must = one.how in ("null", "twice") or (one.how == "missing" and not may_miss)
        yield Broken(form, file, one.how, other, one.place, number + 1 if form != "nested" else 0, must)
    yield Broken(form, file, "cut off", part.content()[: len(part.content()) * 2 // 3], refused=True)


class Reading:
    """A run that is about to begin, again and again: to learn from files one of which is broken."""

    def __init__(self, form: str, folder: Path):
        self.form, self.folder, self.run = FORMS[form], folder, folder / "run"
        self.data, self.valid = (written(self.form, folder / name) for name in ("data", "valid"))
        whole = self.ask()
        assert whole.code == 0, whole.err
        self.mark = read_json(self.run / "train.json")["fingerprint"]

    def ask(self) -> Told:
        shutil.rmtree(self.run, ignore_errors=True)
        task, model = self.form.task, self.form.model
        files = ["--data", *self.data, "--valid", *self.valid, "--output-dir", self.run, *cached(task, self.folder)]
        return told(["train", task, *small(task, model), *files])

    def tried(self, one: Broken) -> tuple[str, str]:
        """What became of it: refused, alike or read; and what is wrong with that, if anything is."""
        whole = self.form.parts[one.file].content()
        put(self.folder / "data" / one.file, one.how, one.content)
        before = content(self.folder / "data")
        said = self.ask()
        changed = content(self.folder / "data") != before
        put_back(self.folder / "data" / one.file, whole)
        if changed:
            return "changed", "a file was changed"
        if said.code != 0:
            wrong = fault(said, self.names(one)) or ("a run was left" if self.run.exists() else "")
            wrong = wrong or ("it says the same as the whole one" if one.alike else "")
            return "refused", f"{wrong}: {said.err[-500:]}" if wrong else ""
        alike = read_json(self.run / "train.json")["fingerprint"] == self.mark
        wrong = (one.refused or one.alike) and not alike
        return "alike" if alike else "read", "it was read, and not as the whole one" if wrong else ""

    def names(self, one: Broken) -> list[str]:
        """The file and, if there is one, the line; of parallel files either may be named."""
        files = [one.file] if len(self.form.data) == 1 else [*self.form.parts]
        return [f"{file}:{one.line}:" for file in files] if one.line else [*files, *self.data]
