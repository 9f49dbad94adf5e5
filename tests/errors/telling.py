"""One command in this process: its exit code, what it said, and whether it fell over; and which cases are tried."""

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
LONGEST = 2000  # characters of a message: more is no message


class Told(NamedTuple):
    code: int | None  # None if it fell over
    out: str
    err: str


def told(args: Sequence[object], typed: bytes = b"") -> Told:
    """What `regard ARGS` says; `typed` is its standard input."""
    out, err, before = io.StringIO(), io.StringIO(), sys.stdin
    sys.stdin = io.TextIOWrapper(io.BytesIO(typed))
    try:
        with redirect_stdout(out), redirect_stderr(err):
            code: int | None = main([str(arg) for arg in args])
    except SystemExit as leaving:
        code = leaving.code if isinstance(leaving.code, int) else 2
    except Exception:
        code = None
        err.write(traceback.format_exc())
    finally:
        sys.stdin = before
    return Told(code, out.getvalue(), err.getvalue())


def fault(said: Told, names: Sequence[str]) -> str:
    """What is wrong with a refusal, that must name one of these; nothing if it is one message with exit code 2."""
    if said.code is None:
        return "it fell over"
    if said.code != 2:
        return f"its exit code is {said.code}"
    if not any(name in said.err for name in names):
        return f"it names none of {', '.join(names)}"
    if len(said.err) > LONGEST or said.err.count("regard: ") > 1 or "Traceback" in said.err:
        return "it is not one message"
    return ""


@contextmanager
def no_training() -> Iterator[None]:
    """A run that is ready to begin is let go: everything was read and made."""

    def leave(job: Any, command: str) -> int:
        job.lock.release()
        return 0

    with patch("regard.cli.train.train_and_print", leave):
        yield


def content(folder: Path) -> dict[str, bytes | None]:
    """Every file of a folder, and every folder in it, but for the lock of the process that is at work there."""
    found = [one for one in folder.rglob("*") if one.name != ".lock"]
    return {str(one.relative_to(folder)): one.read_bytes() if one.is_file() else None for one in found}


def few(cases: Iterable[Case], of: Callable[[Case], Hashable], count: int) -> list[Case]:
    """So many cases of each sort, by chance, but always the same ones."""
    sorts: dict[Hashable, list[Case]] = {}
    for case in cases:
        sorts.setdefault(of(case), []).append(case)
    return [one for sort, some in sorts.items() for one in Random(str(sort)).sample(some, min(count, len(some)))]
