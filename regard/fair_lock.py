"""A lock that its waiters get in the order in which they asked: `threading.Lock` may starve them."""

from __future__ import annotations

from collections import deque
from threading import Lock


class FairLock:
    """A context manager. A thread that releases it and asks again waits for the others."""

    def __init__(self) -> None:
        self._guard = Lock()
        self._waiting: deque[Lock] = deque()
        self._is_held = False

    def __enter__(self) -> None:
        with self._guard:
            if not self._is_held:
                self._is_held = True
                return
            turn = Lock()
            turn.acquire()
            self._waiting.append(turn)
        turn.acquire()

    def __exit__(self, *_: object) -> None:
        with self._guard:
            if self._waiting:
                self._waiting.popleft().release()  # it holds the lock now
            else:
                self._is_held = False
