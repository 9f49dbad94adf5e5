"""Leaving politely: what happens at Ctrl-C, and how to go on afterwards."""

from __future__ import annotations

import shlex
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any


def go_on(task: str, folder: Path) -> str:
    return shlex.join(["regard", "train", task, "--resume", "--out", str(folder)])


def already(folder: Path) -> str:
    return f"{folder} is finished, and stays as it is: train again with --overwrite, or into another --out"


@contextmanager
def politely(saying: str = "finishing this step, then saving") -> Iterator[list[int]]:
    """A list that gets the signal when one comes; the second signal acts as it always does."""
    came: list[int] = []

    def note(number: int, _: Any) -> None:
        came.append(number)
        for n, handler in before.items():  # first, so that one more leaves even while we print
            signal.signal(n, handler)
        print(f"\n{saying}; once more to leave at once", file=sys.stderr, flush=True)

    before = {n: signal.signal(n, note) for n in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield came
    finally:
        for n, handler in before.items():
            signal.signal(n, handler)
