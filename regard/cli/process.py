"""The environment of a process: streams that may be closed, arguments that may not be text, limited memory."""

from __future__ import annotations

import io
import os
import resource
import sys
from typing import Any

MIN_MEMORY = 700 << 20  # bytes of address space; importing PyTorch takes 625 MB of it


def check_memory_limit() -> None:
    if 0 <= memory_limit() < MIN_MEMORY:
        raise MemoryError("not enough address space to import PyTorch")  # it would abort


def memory_message(error: Exception) -> str:
    remedy = "use a smaller model or batch"
    if memory_limit() >= 0:
        limit = f"the limit of {memory_limit() >> 20:,} MB (ulimit -v)"
        remedy = f"raise {limit} to at least {MIN_MEMORY >> 20}, or {remedy}"
    return f"out of memory ({' '.join(str(error).split()) or 'MemoryError':.200}): {remedy}"


def memory_limit() -> int:
    """Bytes of address space that this process may use; negative if unlimited."""
    return resource.getrlimit(resource.RLIMIT_AS)[0]


def is_memory_error(error: Exception) -> bool:
    """PyTorch and the dynamic linker raise no MemoryError."""
    phrases = ("failed to map segment", "allocate memory", "bad_alloc", "out of memory")
    return isinstance(error, MemoryError) or any(phrase in str(error) for phrase in phrases)


def check_utf8(args: list[str]) -> None:
    """Raises ValueError for an argument that is not UTF-8: Python decodes it to surrogates, which nothing can print."""
    for number, arg in enumerate(args, 1):
        raw = os.fsencode(arg)
        try:
            raw.decode()
        except UnicodeDecodeError as error:
            problem = f"argument {number} is not UTF-8 at byte {error.start + 1}: {raw!r:.99}"
            raise ValueError(f"{problem}; convert the text or rename the file") from None


class UnbrokenPipe(io.FileIO):
    """A standard stream that survives a closed pipe: later output is dropped."""

    def write(self, data: Any) -> int:
        try:
            return super().write(data)
        except BrokenPipeError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), self.fileno())
            return memoryview(data).nbytes


def make_streams_safe(stops: bool) -> None:
    """Open /dev/null in place of a standard stream that is closed (>&-), so that no other file gets its number. Unless
    the command `stops` when its reader exits (| head -1), it continues silently."""
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        stream: object = getattr(sys, name)
        if stream is None:
            os.dup2(os.open(os.devnull, os.O_RDWR), number)
            setattr(sys, name, open(number, "r" if number == 0 else "w", closefd=False, encoding="utf-8"))  # noqa: SIM115
        elif number and not stops and isinstance(stream, io.TextIOWrapper):
            raw = io.BufferedWriter(UnbrokenPipe(number, "w", closefd=False))
            names = ("encoding", "errors", "line_buffering", "write_through")
            setattr(sys, name, io.TextIOWrapper(raw, **{name: getattr(stream, name) for name in names}))
