"""Every field of what a run keeps to go on, broken in every way."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from telling import Told, fault, told
from telling import content as content_of
from wrong_folders import Broken, fields, wholly
from wrong_places import put

KEPT = ("train.json", "task.json", "config.json", "tokenizer_config.json", "LATEST", "metrics.jsonl")
SAVED = ("state.json", "state.safetensors", "manifest.json")  # what a save holds, each with its checksum


def broken(run: Path) -> Iterator[Broken]:
    for file in KEPT:
        whole = (run / file).read_bytes()
        yield from wholly(file, whole)
        if file.endswith(".json"):
            yield from fields(file, whole)
    [save] = run.glob("step-*")
    for file in SAVED:
        yield from wholly(f"{save.name}/{file}", (save / file).read_bytes())
    lines = (run / "metrics.jsonl").read_bytes().splitlines(keepends=True)
    for number, line in enumerate(lines):
        before, after = b"".join(lines[:number]), b"".join([b"\n", *lines[number + 1 :]])
        for one in fields("metrics.jsonl", line):

            def content(made: Any = one.content, before: bytes = before, after: bytes = after) -> bytes:
                return before + made() + after

            yield one._replace(content=content, place=f"{number + 1}: {one.place}")


FINISH = ("ready after", "planned:", "resuming from step", "is finished and stays")


def what_was_read(out: str, finishing: bool) -> list[str]:
    """Without the line that tells how long the start took; and, where a log that lost its end lets a finished run
    finish once more, without the lines that tell that from a run which stays as it is."""
    lines = [line for line in out.splitlines() if not line.startswith("ready after")]
    return [line for line in lines if not any(words in line for words in FINISH)] if finishing else lines


class Resuming:
    """A run that goes on, again and again, with one file broken."""

    def __init__(self, task: str, run: Path, folder: Path):
        self.task, self.run, self.folder = task, run, folder
        self.whole = self.ask()
        assert self.whole.code == 0, self.whole.err

    def ask(self, one: Broken | None = None) -> Told:
        shutil.rmtree(self.folder, ignore_errors=True)
        shutil.copytree(self.run, self.folder)
        if one:
            put(self.folder / one.file, one.how, one.content)
        self.before = content_of(self.folder)
        return told(["train", self.task, "--resume", "--output-dir", self.folder])

    def tried(self, one: Broken) -> tuple[str, str]:
        """What became of it: refused or harmless; and what is wrong with that, if anything is."""
        said = self.ask(one)
        if said.code == 0:
            finishing = one.file == "metrics.jsonl" and "is finished" in self.whole.out
            same = what_was_read(said.out, finishing) == what_was_read(self.whole.out, finishing)
            return "harmless" if same else "other", "" if same else f"another run goes on: {said.out[-500:]}"
        after = {name.removeprefix("damaged-"): held for name, held in content_of(self.folder).items()}
        if after != self.before:
            return "changed", "a file was changed"
        field = one.place.split(".")[0].replace("_", "-")
        lost = ["x: no such file"]  # of the data, if that is what it names
        wrong = fault(said, [one.file, one.file.split("/")[0], *([field] if field else []), *lost])
        return "refused", f"{wrong}: {said.err[-500:]}" if wrong else ""
