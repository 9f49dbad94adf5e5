"""Run one command in this process, judge its refusal, and sample the cases to run."""

from __future__ import annotations

import io
import sys
import traceback
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path
from random import Random
from typing import Any, NamedTuple, TypeVar
from unittest.mock import patch

from regard.cli import main

Case = TypeVar("Case")
MAX_MESSAGE = 2000  # characters


class CommandResult(NamedTuple):
    code: int | None  # None if it raised an exception
    out: str
    err: str


def run_command(args: Sequence[object], stdin: bytes = b"") -> CommandResult:
    """The result of `regard ARGS` with this standard input."""
    out, err, old_stdin = io.StringIO(), io.StringIO(), sys.stdin
    sys.stdin = io.TextIOWrapper(io.BytesIO(stdin))
    try:
        with redirect_stdout(out), redirect_stderr(err):
            code: int | None = main([str(arg) for arg in args])
    except SystemExit as exit_error:
        code = exit_error.code if isinstance(exit_error.code, int) else 2
    except Exception:
        code = None
        err.write(traceback.format_exc())
    finally:
        sys.stdin = old_stdin
    return CommandResult(code, out.getvalue(), err.getvalue())


def find_fault(result: CommandResult, names: Sequence[str]) -> str:
    """The fault of a refusal; empty if it is one message with exit code 2 that contains one of `names`."""
    if result.code is None:
        return "it raised an exception"
    if result.code != 2:
        return f"its exit code is {result.code}"
    if not any(name in result.err for name in names):
        return f"it names none of {', '.join(names)}"
    if len(result.err) > MAX_MESSAGE or result.err.count("regard: ") > 1 or "Traceback" in result.err:
        return "it is not one message"
    return ""


@contextmanager
def skip_training() -> Iterator[None]:
    """A run stops when it is ready to train: data is read and model built."""

    def release(job: Any, command: str) -> int:
        job.lock.release()
        return 0

    with patch("regard.cli.train.train_and_print", release):
        yield


def folder_content(folder: Path) -> dict[str, bytes | None]:
    """The content of every file of a folder, None for a folder; without the lock of a running process."""
    paths = [path for path in folder.rglob("*") if path.name != ".lock"]
    return {str(path.relative_to(folder)): path.read_bytes() if path.is_file() else None for path in paths}


def sample_cases(cases: Iterable[Case], key: Callable[[Case], Hashable], count: int) -> list[Case]:
    """A random but fixed sample of `count` cases of each group."""
    groups: dict[Hashable, list[Case]] = {}
    for case in cases:
        groups.setdefault(key(case), []).append(case)
    return [
        case
        for group, members in groups.items()
        for case in Random(str(group)).sample(members, min(count, len(members)))
    ]
