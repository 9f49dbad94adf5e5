"""A lock file for processes that share a cache, on one machine or on several with one file system.

NAME.HOST.PID.THREAD > hard link to NAME, which fails if NAME exists > work, renewing its time stamp > remove NAME

The lock saves work and is not needed for safety: what it guards is the same whoever writes it, and appears by rename.
So a lock whose owner is dead, or has not renewed it for a minute, may be taken over at any time.
"""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Callable
from pathlib import Path

STALE_SECONDS = 60.0  # without a renewal, an owner on another machine counts as dead
POLL_SECONDS = 0.2


def own_suffix() -> str:
    """Different for all writers that share a file system."""
    return f"{socket.gethostname()}.{os.getpid()}.{threading.get_ident()}"


class CacheLock:
    def __init__(self, file: Path):
        self.file = file

    def acquire(self, is_done: Callable[[], bool], on_wait: Callable[[str], None] = lambda owner: None) -> bool:
        """Wait for the lock; False as soon as the work is done. `on_wait` is called once, with the owner."""
        stamp, since, is_waiting = -1, 0.0, False
        while not is_done():
            if self.create():
                return True
            owner, latest = self.owner()
            if latest != stamp:
                stamp, since = latest, time.monotonic()
            if is_dead(owner) or time.monotonic() - since > STALE_SECONDS:
                self.file.unlink(missing_ok=True)
                continue
            if not is_waiting:
                on_wait(owner)
            is_waiting = True
            time.sleep(POLL_SECONDS)
        return False

    def create(self) -> bool:
        """The content is written before the lock appears, so that no reader sees a lock without an owner."""
        temporary = self.file.with_name(f"{self.file.name}.{own_suffix()}")
        temporary.write_text(own_suffix())
        try:
            os.link(temporary, self.file)
        except FileExistsError:
            return False
        finally:
            temporary.unlink(missing_ok=True)
        return True

    def owner(self) -> tuple[str, int]:
        """HOST.PID.THREAD and the time stamp; empty and 0 if there is no lock any more."""
        try:
            return self.file.read_text(), self.file.stat().st_mtime_ns
        except OSError:
            return "", 0

    def renew(self) -> None:
        try:
            os.utime(self.file)
        except FileNotFoundError:  # taken over: both go on, with the same result
            return

    def release(self) -> None:
        if self.owner()[0] == own_suffix():
            self.file.unlink(missing_ok=True)


def is_dead(owner: str) -> bool:
    """Whether the owner was a process of this machine that has ended."""
    host, pid, _ = (["", "", ""] + owner.rsplit(".", 2))[-3:]
    if host != socket.gethostname() or not pid.isdecimal():
        return False
    try:
        os.kill(int(pid), 0)
    except ProcessLookupError:
        return True
    except PermissionError:
        return False
    return False
