"""The lines of a text file, plain or gzip. A line that is no text comes as `Bad`, what was put right as a `Note`.

A line ends at \\n and nowhere else: sentences may contain U+2028, \\x0b, \\x0c and \\x85.
"""

import gzip
import zlib
from codecs import BOM_UTF8, BOM_UTF16_BE, BOM_UTF16_LE
from collections.abc import Iterator
from pathlib import Path
from typing import Literal, NamedTuple

from regard.hub.files import LINE

BLOCK = 1 << 20  # bytes read at once

Why = Literal[
    "empty",
    "bad UTF-8",
    "control character",
    "over-long",
    "missing column",
    "missing field",
    "wrong type",
    "not JSON",
    "not CSV",
    "not a number",
    "not an image",
    "not an amino acid",
    "no name",
    "name twice",
    "not a molecule",
    "unknown atom",
    "not a sound",
    "misplaced answer",
    "unequal counts",
]


class Bad(NamedTuple):
    """A line that cannot be used."""

    file: str
    line: int
    why: Why
    detail: str


class Note(NamedTuple):
    """What was quietly put right in a file."""

    file: str
    what: Literal["BOM", "CRLF"]
    times: int


class Lines:
    """The lines of one file, plain or gzip; a line that is not UTF-8 comes as `Bad`."""

    def __init__(self, file: str | Path):
        self.file = str(file)
        self.count = self.boms = self.crlfs = 0

    def __iter__(self) -> Iterator[str | Bad]:
        for block in self.blocks():
            if b"\r" in block:
                whole = block + b"\n"
                self.crlfs += whole.count(b"\r\n")
                block = whole.replace(b"\r\n", b"\n")[:-1]
            lines: list[str] | list[str | Bad]
            try:
                lines = block.decode().split("\n")
            except UnicodeDecodeError:  # rare, so only now line by line
                lines = [self.decode(line, number) for number, line in enumerate(block.split(b"\n"), self.count + 1)]
            self.count += len(lines)
            yield from lines
        if not self.count:
            raise ValueError(f"{self.file}: the file is empty")

    def blocks(self) -> Iterator[bytes]:
        """Whole lines, many at a time, without the last \\n."""
        tail, first = b"", True
        for chunk in self.chunks():
            if first and chunk.startswith((BOM_UTF16_LE, BOM_UTF16_BE)):
                raise ValueError(f"{self.file}: this is UTF-16; convert it: iconv -f UTF-16 -t UTF-8")
            if first and chunk.startswith(BOM_UTF8):
                chunk, self.boms = chunk.removeprefix(BOM_UTF8), 1
            first = False
            block, newline, tail = (tail + chunk).rpartition(b"\n")
            if newline:
                yield block
            if len(tail) > LINE:
                raise ValueError(f"{self.file}:{self.count + 1}: a line of over {LINE >> 20} MB; is this text?")
        if tail:
            yield tail

    def chunks(self) -> Iterator[bytes]:
        try:
            with open(self.file, "rb") as plain:
                packed = plain.peek(2)[:2] == b"\x1f\x8b"
                with gzip.GzipFile(fileobj=plain) if packed else plain as handle:
                    while chunk := handle.read(BLOCK):
                        yield chunk
        except (EOFError, gzip.BadGzipFile, zlib.error) as error:
            raise ValueError(f"{self.file}: broken gzip ({error}); copy or download it again") from error
        except OSError as error:
            raise ValueError(f"{self.file}: cannot be read: {error.strerror or error}") from error

    def decode(self, line: bytes, number: int) -> str | Bad:
        try:
            return line.decode()
        except UnicodeDecodeError as error:
            return Bad(self.file, number, "bad UTF-8", f"byte 0x{line[error.start]:02x} at place {error.start + 1}")

    def notes(self) -> Iterator[Note]:
        if self.boms:
            yield Note(self.file, "BOM", self.boms)
        if self.crlfs:
            yield Note(self.file, "CRLF", self.crlfs)
