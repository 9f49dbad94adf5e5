"""Every field of the files that a run needs to resume, broken in every way."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from run_command import CommandResult, find_fault, folder_content, run_command
from wrong_folders import BrokenCase, broken_fields, broken_wholly
from wrong_places import replace_file

RUN_FILES = ("train.json", "task.json", "config.json", "tokenizer_config.json", "LATEST", "metrics.jsonl")
SAVE_FILES = ("state.json", "state.safetensors", "manifest.json")  # files of a save, each with its checksum


def broken_cases(run: Path) -> Iterator[BrokenCase]:
    for file in RUN_FILES:
        intact = (run / file).read_bytes()
        yield from broken_wholly(file, intact)
        if file.endswith(".json"):
            yield from broken_fields(file, intact)
    [save] = run.glob("step-*")
    for file in SAVE_FILES:
        yield from broken_wholly(f"{save.name}/{file}", (save / file).read_bytes())
    lines = (run / "metrics.jsonl").read_bytes().splitlines(keepends=True)
    for number, line in enumerate(lines):
        before, after = b"".join(lines[:number]), b"".join([b"\n", *lines[number + 1 :]])
        for case in broken_fields("metrics.jsonl", line):

            def content(make_line: Any = case.content, before: bytes = before, after: bytes = after) -> bytes:
                return before + make_line() + after

            yield case._replace(content=content, field=f"{number + 1}: {case.field}")


FINISH_MESSAGES = ("ready after", "planned:", "resuming from step", "holds a finished run")


def comparable_lines(out: str, ignore_finish: bool) -> list[str]:
    """Without the line that tells how long the start took; and, where a log that lost its end lets a finished run
    finish once more, without the lines that tell that from a run which stays as it is."""
    lines = [line for line in out.splitlines() if not line.startswith("ready after")]
    return [line for line in lines if not any(words in line for words in FINISH_MESSAGES)] if ignore_finish else lines


class ResumeTrial:
    """Resume a run of which one file is broken, once per case."""

    def __init__(self, task: str, run: Path, folder: Path):
        self.task, self.run, self.folder = task, run, folder
        self.intact = self.resume()
        assert self.intact.code == 0, self.intact.err

    def resume(self, case: BrokenCase | None = None) -> CommandResult:
        shutil.rmtree(self.folder, ignore_errors=True)
        shutil.copytree(self.run, self.folder)
        if case:
            replace_file(self.folder / case.file, case.defect, case.content)
        self.before = folder_content(self.folder)
        return run_command(["train", self.task, "--resume", "--output-dir", self.folder])

    def try_case(self, case: BrokenCase) -> tuple[str, str]:
        """The outcome (refused, harmless or other), and its fault, if any."""
        result = self.resume(case)
        if result.code == 0:
            ignore_finish = case.file == "metrics.jsonl" and "a finished run" in self.intact.out
            same = comparable_lines(result.out, ignore_finish) == comparable_lines(self.intact.out, ignore_finish)
            return "harmless" if same else "other", "" if same else f"another run resumes: {result.out[-500:]}"
        after = {name.removeprefix("damaged-"): content for name, content in folder_content(self.folder).items()}
        if after != self.before:
            return "changed", "a file was changed"
        field = case.field.split(".")[0].rstrip("_").replace("_", "-")
        missing_data = ["x: no such file"]  # if the field names the data
        fault = find_fault(result, [case.file, case.file.split("/")[0], *([field] if field else []), *missing_data])
        return "refused", f"{fault}: {result.err[-500:]}" if fault else ""
