"""The texts that a command answers: from its arguments, a file or standard input, each before the last has come."""

from __future__ import annotations

import codecs
import io
import sys
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from queue import Queue
from threading import Thread
from typing import Any, BinaryIO

from regard.data.fasta import holds_fasta, sequences
from regard.data.lines import SUGGESTED, Bad, Lines, is_encoding
from regard.hub.files import TEXT

WINDOW = 1024  # texts held at once


def windows(texts: tuple[str, ...], file: str | None, encoding: str) -> Iterator[list[str]]:
    """The texts of a command, or of a file, or of standard input, some at a time."""
    if texts:
        return iter([list(texts)])
    if file is None:
        return as_they_come(lines_of(sys.stdin.buffer, encoding))
    lines = from_file(file, encoding)
    return iter(lambda: list(islice(lines, WINDOW)), [])


def from_file(file: str, encoding: str = "utf-8") -> Iterator[str]:
    lines = Lines(file, encoding)
    try:
        for number, line in enumerate(sequences(lines) if holds_fasta(file) else lines, 1):
            if isinstance(line, Bad):
                remedy = f": {SUGGESTED}" if is_encoding(line) else ""
                raise ValueError(f"{line.file}:{line.line}: {line.why}, {line.detail}{remedy}")
            must_be_short(line, f"{file}:{number}")
            yield line
    except FileNotFoundError:
        raise ValueError(f"{file}: no such file") from None


def lines_of(stream: BinaryIO, encoding: str = "utf-8") -> Iterator[bytes]:
    """Its lines in UTF-8, as they come. What is longer than a text may be is never held as a whole, and bytes that are
    not of the encoding stay as they are: both are refused later."""
    read: Callable[[int], bytes] = stream.readline
    if codecs.lookup(encoding).name != "utf-8":
        text = io.TextIOWrapper(stream, encoding, errors="surrogateescape", newline="\n")

        def read(size: int) -> bytes:
            return text.readline(size).encode(errors="surrogateescape")

    line = b"\n"
    while line.endswith(b"\n") and (line := read(TEXT + 2)):
        yield line


def as_they_come(lines: Iterable[bytes]) -> Iterator[list[str]]:
    """All lines that are there: one at a time from a person at a terminal, whole windows from a full pipe."""
    queue: Queue[bytes | None] = Queue(WINDOW)

    def feed() -> None:
        for line in lines:
            queue.put(line)
        queue.put(None)

    Thread(target=feed, daemon=True).start()
    number, more = 0, True
    while more:
        some: list[Any] = [queue.get()]
        while some[-1] is not None and len(some) < WINDOW and not queue.empty():
            some.append(queue.get())
        more = some[-1] is not None
        yield [decoded(line, number + i) for i, line in enumerate(some if more else some[:-1], 1)]
        number += len(some)


def must_be_short(text: str | bytes, where: str) -> None:
    if len(text) > TEXT:
        raise ValueError(f"{where}: over {TEXT >> 20} MB in a line, the limit of a text to answer; cut it into lines")


def decoded(line: bytes, number: int) -> str:
    where = f"standard input, line {number}"
    must_be_short(line.removesuffix(b"\n").removesuffix(b"\r"), where)
    try:
        return line.removesuffix(b"\n").removesuffix(b"\r").decode()
    except UnicodeDecodeError as error:
        raise ValueError(f"{where}: not of that encoding at byte {error.start + 1}: {SUGGESTED}") from None
