"""The lines of a text file, plain or gzip. A line that is no text comes as `Bad`, what was put right as a `Note`.

A line ends at \\n and nowhere else: sentences may contain U+2028, \\x0b, \\x0c and \\x85.
"""

import codecs
import gzip
import zlib
from codecs import BOM_UTF8, BOM_UTF16_BE, BOM_UTF16_LE
from collections.abc import Iterator
from pathlib import Path
from typing import Literal, NamedTuple

from regard.hub.files import LINE
from regard.validate import check_choice

BLOCK = 1 << 20  # bytes read at once

Why = Literal[
    "empty",
    "bad UTF-8",
    "control character",
    "over-long",
    "missing column",
    "missing field",
    "missing file",
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
    what: Literal["BOM", "CRLF", "multibyte"]  # the last: among lines that are not UTF-8 others surely are
    times: int


class Dialect(NamedTuple):
    """How text files are written."""

    encoding: str = "utf-8"
    separator: str | None = None  # between columns; of a .csv file it is sniffed unless given, elsewhere it is a tab


UTF8 = Dialect()
ENCODINGS = ("utf-8", "cp1252", "latin-1", "iso-8859-15", "utf-16", "utf-16-le", "utf-16-be", "cp1250", "cp1251",
             "cp437", "cp850", "mac-roman", "gb18030", "big5", "shift-jis", "euc-jp", "euc-kr", "koi8-r")  # fmt: skip
SUGGESTED = "name its encoding with --encoding, e.g. --encoding cp1252 (Windows, Western Europe) or --encoding utf-16"
BINARY = {  # files that hold tables but no text: how they begin, how their names end, and what reads them in pandas
    b"PAR1": (".parquet", "read_parquet"),
    b"PK\x03\x04": (".xlsx", "read_excel"),
    b"\xd0\xcf\x11\xe0": (".xls", "read_excel"),
    b"ARROW1": (".feather", "read_feather"),
}


def is_encoding(bad: Bad) -> bool:
    """Whether another --encoding may be all that is missing."""
    return bad.why == "bad UTF-8" and bad.detail.startswith("byte ")


def must_be_encoding(name: str) -> None:
    """Refuse what Python does not know as an encoding of text."""
    try:
        "".encode(name)
    except (LookupError, UnicodeError, ValueError):
        check_choice("encoding", name, ENCODINGS)
        raise


def to_convert(file: str, reader: str) -> str:
    """How a table becomes a text file."""
    stem = file.rsplit(".", 1)[0]
    save = f"to_json({stem + '.jsonl'!r}, orient='records', lines=True, force_ascii=False)"
    return f'convert it to JSON lines, e.g. python -c "import pandas; pandas.{reader}({file!r}).{save}"'


class Lines:
    """The lines of one file, plain or gzip; a line that is not UTF-8 comes as `Bad`."""

    def __init__(self, file: str | Path, encoding: str = "utf-8"):
        self.file, self.encoding = str(file), encoding
        self.count = self.boms = self.crlfs = self.foreign = 0
        self.multibyte = False

    def __iter__(self) -> Iterator[str | Bad]:
        for block in self.blocks():
            if b"\r" in block:
                whole = block + b"\n"
                self.crlfs += whole.count(b"\r\n")
                block = whole.replace(b"\r\n", b"\n")[:-1]
            lines: list[str] | list[str | Bad]
            try:
                lines = block.decode().split("\n")
                self.multibyte |= not block.isascii()
            except UnicodeDecodeError:  # rare, so only now line by line
                lines = [self.decode(line, number) for number, line in enumerate(block.split(b"\n"), self.count + 1)]
            self.count += len(lines)
            yield from lines
        if not self.count:
            raise ValueError(f"{self.file}: the file is empty")

    def blocks(self) -> Iterator[bytes]:
        """Whole lines, many at a time, without the last \\n."""
        tail, first = b"", True
        for chunk in self.utf8():
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

    def utf8(self) -> Iterator[bytes]:
        """The file in UTF-8, whatever its encoding. Of a file in UTF-8 the lines are checked later, one by one."""
        if codecs.lookup(self.encoding).name == "utf-8":
            for number, chunk in enumerate(self.chunks()):
                if not number:
                    self.must_be_text(chunk)
                yield chunk
            return
        decoder, line = codecs.getincrementaldecoder(self.encoding)(), 1
        try:
            for chunk in self.chunks():
                text = decoder.decode(chunk)
                line += text.count("\n")
                yield text.encode()
            yield decoder.decode(b"", final=True).encode()
        except UnicodeError as error:
            where = f"{self.file}: not {self.encoding} at or after line {line}"
            raise ValueError(f"{where} ({error}): name the encoding of the file with --encoding") from error

    def must_be_text(self, chunk: bytes) -> None:
        """Refuse what begins as a table in a binary form, or as UTF-16."""
        for mark, (ending, reader) in BINARY.items():
            if chunk.startswith(mark):
                raise ValueError(f"{self.file}: no text, but binary as {ending} is: {to_convert(self.file, reader)}")
        if chunk.startswith((BOM_UTF16_LE, BOM_UTF16_BE)):
            raise ValueError(f"{self.file}: this is UTF-16: add --encoding utf-16")
        low, high = (chunk[start : 1 << 12 : 2].count(0) for start in (1, 0))
        if max(low, high) > 4 * min(low, high) and 2 * (low + high) > len(chunk[: 1 << 12]) // 2:  # of Latin letters
            raise ValueError(
                f"{self.file}: this looks like UTF-16: add --encoding utf-16-{'le' if low > high else 'be'}"
            )

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
            text = line.decode()
            self.multibyte |= not line.isascii()
            return text
        except UnicodeDecodeError as error:
            self.foreign += 1
            return Bad(self.file, number, "bad UTF-8", f"byte 0x{line[error.start]:02x} at place {error.start + 1}")

    def notes(self) -> Iterator[Note]:
        if self.boms:
            yield Note(self.file, "BOM", self.boms)
        if self.crlfs:
            yield Note(self.file, "CRLF", self.crlfs)
        if self.multibyte and self.foreign:
            yield Note(self.file, "multibyte", 1)
