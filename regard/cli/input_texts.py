"""The input texts of a command: from its arguments, a file or standard input, streamed in chunks."""

from __future__ import annotations

import codecs
import io
import sys
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from queue import Queue
from threading import Thread
from typing import BinaryIO

from regard.data.lines import ENCODING_HINT, BadRow, Lines, is_encoding_error
from regard.json_files import MAX_TEXT
from regard.modalities.protocols import Modality

CHUNK = 1024  # maximum texts in memory


def read_chunks(texts: tuple[str, ...], file: str | None, encoding: str, modality: Modality) -> Iterator[list[str]]:
    """The requests of a command, of a file, or of standard input, in chunks."""
    if texts:
        return iter([list(texts)])
    if file is None:
        return stream_chunks(read_lines(sys.stdin.buffer, encoding))
    lines = read_file(file, encoding, modality)
    return iter(lambda: list(islice(lines, CHUNK)), [])


def read_file(file: str, encoding: str, modality: Modality) -> Iterator[str]:
    try:
        for number, line in enumerate(modality.read_requests(file, encoding) or Lines(file, encoding), 1):
            if isinstance(line, BadRow):
                remedy = f": {ENCODING_HINT}" if is_encoding_error(line) else ""
                raise ValueError(f"{line.file}:{line.line}: {line.reason}, {line.detail}{remedy}")
            check_length(line, f"{file}:{number}")
            yield line
    except FileNotFoundError:
        raise ValueError(f"{file}: no such file") from None


def read_lines(stream: BinaryIO, encoding: str = "utf-8") -> Iterator[bytes]:
    """Lines of a stream, in UTF-8. A line that is too long is cut, and bytes that do not decode are passed on: `decode`
    refuses both."""
    read: Callable[[int], bytes] = stream.readline
    if codecs.lookup(encoding).name != "utf-8":
        text = io.TextIOWrapper(stream, encoding, errors="surrogateescape", newline="\n")

        def read(size: int) -> bytes:
            return text.readline(size).encode(errors="surrogateescape")

    line = b"\n"
    while line.endswith(b"\n") and (line := read(MAX_TEXT + 2)):
        yield line


def stream_chunks(lines: Iterable[bytes]) -> Iterator[list[str]]:
    """All lines available at a time: one from a person at a terminal, a full chunk from a full pipe."""
    queue: Queue[bytes | None] = Queue(CHUNK)

    def feed() -> None:
        for line in lines:
            queue.put(line)
        queue.put(None)

    Thread(target=feed, daemon=True).start()
    number, more = 0, True
    while more:
        chunk = [queue.get()]
        while chunk[-1] is not None and len(chunk) < CHUNK and not queue.empty():
            chunk.append(queue.get())
        more = chunk[-1] is not None
        yield [decode(line, number + i) for i, line in enumerate(chunk, 1) if line is not None]
        number += len(chunk)


def check_length(text: str | bytes, location: str) -> None:
    if len(text) > MAX_TEXT:
        raise ValueError(f"{location}: the line exceeds {MAX_TEXT >> 20} MB, the maximum length of an input: split it")


def decode(line: bytes, number: int) -> str:
    location = f"standard input, line {number}"
    check_length(line.removesuffix(b"\n").removesuffix(b"\r"), location)
    try:
        return line.removesuffix(b"\n").removesuffix(b"\r").decode()
    except UnicodeDecodeError as error:
        raise ValueError(f"{location}: byte {error.start + 1} does not decode: {ENCODING_HINT}") from None
