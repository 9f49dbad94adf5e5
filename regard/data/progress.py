"""The progress of a long preparation: a bar with the remaining time on a terminal, plain lines elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

QUIET_SECONDS = 2.0  # a shorter work shows nothing
LINE_SECONDS = 15.0  # between plain lines


@contextmanager
def progress(description: str, total: int, done: int = 0) -> Iterator[Callable[[int], None]]:
    """A function that is called with the units done since its last call; `done` were complete before."""
    is_terminal = sys.stderr.isatty()
    with (progress_bar if is_terminal else progress_lines)(description, total, done) as advance:
        yield advance


@contextmanager
def progress_bar(description: str, total: int, done: int) -> Iterator[Callable[[int], None]]:
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    percent = TextColumn("{task.percentage:>3.0f}%")
    bar = Progress(TextColumn("{task.description}"), BarColumn(), percent, TimeRemainingColumn(), transient=True,
                   console=Console(stderr=True))  # fmt: skip
    with bar:
        row = bar.add_task(description, total=total, completed=done)
        yield lambda units: bar.advance(row, units)


@contextmanager
def progress_lines(description: str, total: int, done: int) -> Iterator[Callable[[int], None]]:
    start = time.monotonic()
    completed, printed = done, start + QUIET_SECONDS - LINE_SECONDS

    def advance(units: int) -> None:
        nonlocal completed, printed
        completed += units
        now = time.monotonic()
        if now - printed >= LINE_SECONDS and done < completed < total:
            printed = now
            seconds = (now - start) / (completed - done) * (total - completed)
            print(f"{description} {completed / total:.0%}, {seconds:,.0f} s left", file=sys.stderr, flush=True)

    yield advance
