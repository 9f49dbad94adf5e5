"""Ctrl-C and SIGTERM: save and exit, and print the command that resumes.

The first signal finishes the step and saves. Python runs a signal handler only between two bytecodes, and a step of a
large model may spend minutes in one: after `GRACE` seconds a thread, which the operating system wakes, saves the last
complete step and ends the process. A second signal ends it at once. Ranks of torchrun agree at the end of a step, so
they have longer, but less than the 30 seconds after which it kills them; it also passes every signal on, so that a
second one means nothing.
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

from regard.training.ranks import SINGLE, Ranks

GRACE, RANKS_GRACE = 2.0, 10.0  # seconds that a step has to finish


def resume_command(task: str, folder: Path) -> str:
    return shlex.join(["regard", "train", task, "--resume", "--output-dir", str(folder)])


def finished_message(folder: Path) -> str:
    return f"{folder} holds a finished run: replace it with --overwrite, or choose another --output-dir"


class StopFlag:
    """True after a signal. Either the training loop or the watching thread saves and exits: the first to claim it."""

    def __init__(self) -> None:
        self.signal = 0
        self._claim = Lock()

    def __bool__(self) -> bool:
        return self.signal > 0

    def claim(self, wait: bool = True) -> bool:
        """True for the first caller only; the others wait until the process ends, or get False."""
        return self._claim.acquire(blocking=wait)

    @property
    def exit_code(self) -> int:
        """Another rank may have had the signal."""
        return 128 + (self.signal or signal.SIGTERM)


@contextmanager
def stop_on_signal(
    message: str = "finishing this step, then saving",
    save_now: Callable[[], object] | None = None,
    ranks: Ranks = SINGLE,
) -> Iterator[StopFlag]:
    """`save_now` saves from another thread if the current step exceeds `GRACE`."""
    stop, closed, grace = StopFlag(), Event(), GRACE if ranks.size == 1 else RANKS_GRACE

    def handle(number: int, _: object) -> None:
        stop.signal = number
        if ranks.size > 1:
            print(f"\nrank {ranks.rank}: {message}", file=sys.stderr, flush=True)
            return
        for n, handler in handlers.items():  # first, so that a second signal ends the process even while this prints
            signal.signal(n, handler)
        print(f"\n{message}; a second signal exits at once", file=sys.stderr, flush=True)

    def watch() -> None:
        number = os.read(read_end, 1)
        os.close(read_end)
        if not number or number[0] not in handlers or closed.wait(grace):
            return
        if not stop.claim(wait=False):
            return
        stop.signal = number[0]
        try:
            assert save_now is not None
            save_now()
        except OSError as error:
            print(f"regard: {error}", file=sys.stderr, flush=True)
        finally:
            os._exit(stop.exit_code)

    handlers = {n: signal.signal(n, handle) for n in (signal.SIGINT, signal.SIGTERM)}
    if save_now:
        read_end, write_end = os.pipe()
        os.set_blocking(write_end, False)
        wakeup_fd = signal.set_wakeup_fd(write_end, warn_on_full_buffer=False)
        watcher = Thread(target=watch, daemon=True)
        watcher.start()
    try:
        yield stop
    finally:
        closed.set()
        if save_now:
            signal.set_wakeup_fd(wakeup_fd)
            os.close(write_end)
            watcher.join()  # else it may be the last to hold the model, and free tensors while the interpreter exits
        for n, handler in handlers.items():
            signal.signal(n, handler)
