"""Leaving politely: what happens at Ctrl-C or SIGTERM, and how to go on afterwards.

A first signal finishes the step and saves. Python runs signal handlers between two of its own instructions, and a step
of a large model may spend minutes in one: a thread that the operating system wakes then saves the last whole step
itself, and ends the process. A second signal ends it at once.
"""

from __future__ import annotations

import os
import shlex
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event, Lock, Thread
from typing import Any

GRACE = 2.0  # seconds that a step has to end by itself


def go_on(task: str, folder: Path) -> str:
    return shlex.join(["regard", "train", task, "--resume", "--output-dir", str(folder)])


def already(folder: Path) -> str:
    return f"{folder} is finished, and stays as it is: train again with --overwrite, or into another --output-dir"


class Stop:
    """True once a signal has come. Who claims it first, the loop or the thread that watches it, saves and leaves."""

    def __init__(self) -> None:
        self.signal = 0
        self._claim = Lock()

    def __bool__(self) -> bool:
        return self.signal > 0

    def claim(self) -> None:
        """Returns to the first caller only; the others wait for the end of the process."""
        self._claim.acquire()

    @property
    def code(self) -> int:
        return 128 + self.signal


@contextmanager
def politely(
    saying: str = "finishing this step, then saving", at_once: Callable[[], object] | None = None
) -> Iterator[Stop]:
    """`at_once` saves from another thread if the step that goes on outlasts its grace."""
    stop, over = Stop(), Event()

    def note(number: int, _: Any) -> None:
        stop.signal = number
        for n, handler in before.items():  # first, so that one more leaves even while we print
            signal.signal(n, handler)
        print(f"\n{saying}; once more to leave at once", file=sys.stderr, flush=True)

    def watch() -> None:
        number = os.read(reading, 1)
        os.close(reading)
        if not number or number[0] not in before or over.wait(GRACE):
            return
        stop.claim()
        stop.signal = number[0]
        try:
            assert at_once is not None
            at_once()
        except OSError as error:
            print(f"regard: {error}", file=sys.stderr, flush=True)
        finally:
            os._exit(stop.code)

    before = {n: signal.signal(n, note) for n in (signal.SIGINT, signal.SIGTERM)}
    if at_once:
        reading, writing = os.pipe()
        os.set_blocking(writing, False)
        awake = signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
        Thread(target=watch, daemon=True).start()
    try:
        yield stop
    finally:
        over.set()
        if at_once:
            signal.set_wakeup_fd(awake)
            os.close(writing)
        for n, handler in before.items():
            signal.signal(n, handler)
