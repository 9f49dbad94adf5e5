"""What a process is given by its surroundings: streams that may be closed, arguments of any bytes, little memory."""

from __future__ import annotations

import io
import os
import resource
import sys
from typing import Any

LEAST_MEMORY = 700 << 20  # bytes of addresses; importing PyTorch takes 625 MB of them


def must_have_memory() -> None:
    if 0 <= limit() < LEAST_MEMORY:
        raise MemoryError("loading PyTorch takes more")  # it would abort, with a message or without


def about_memory(error: Exception) -> str:
    remedy = "take a smaller model or batch"
    if limit() >= 0:
        remedy = f"raise the limit of {limit() >> 20:,} MB (ulimit -v), {LEAST_MEMORY >> 20} is the least; or {remedy}"
    return f"out of memory ({' '.join(str(error).split()) or 'MemoryError':.200}): {remedy}"


def limit() -> int:
    """Bytes of addresses that this process may use; negative if as many as it likes."""
    return resource.getrlimit(resource.RLIMIT_AS)[0]


def lacks_memory(error: Exception) -> bool:
    """PyTorch and the loader of libraries have no error of their own for it."""
    words = ("failed to map segment", "allocate memory", "bad_alloc", "out of memory")
    return isinstance(error, MemoryError) or any(word in str(error) for word in words)


def must_be_utf8(args: list[str]) -> None:
    """Python hides a byte that is no text in half a character, which nothing can print or encode."""
    for number, arg in enumerate(args, 1):
        raw = os.fsencode(arg)
        try:
            raw.decode()
        except UnicodeDecodeError as error:
            place = f"not UTF-8 at byte {error.start + 1}"
            raise ValueError(
                f"argument {number} is {place}: {raw!r:.99}; convert the text or rename the file"
            ) from None


class Unbroken(io.FileIO):
    """A standard stream whose reader may leave: the work goes on, and what it says is dropped."""

    def write(self, data: Any) -> int:
        try:
            return super().write(data)
        except BrokenPipeError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), self.fileno())
            return memoryview(data).nbytes


def make_streams_safe(stops: bool) -> None:
    """A stream that is closed from the start (>&-) is empty, and no other file gets its number. Unless the command
    `stops` when its reader leaves (| head -1), it goes on in silence."""
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        stream: Any = getattr(sys, name)
        if stream is None:
            os.dup2(os.open(os.devnull, os.O_RDWR), number)
            setattr(sys, name, open(number, "r" if number == 0 else "w", closefd=False, encoding="utf-8"))  # noqa: SIM115
        elif number and not stops and isinstance(stream, io.TextIOWrapper):
            raw = io.BufferedWriter(Unbroken(number, "w", closefd=False))
            how = {name: getattr(stream, name) for name in ("encoding", "errors", "line_buffering", "write_through")}
            setattr(sys, name, io.TextIOWrapper(raw, **how))
