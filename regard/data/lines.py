"""The lines of a text file, plain or gzip. A line that cannot be decoded is a `BadRow`; a repaired defect is a `Note`.

A line ends at \\n and nowhere else: sentences may contain U+2028, \\x0b, \\x0c and \\x85.
"""

import codecs
import gzip
import zlib
from codecs import BOM_UTF8, BOM_UTF16_BE, BOM_UTF16_LE
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Literal, NamedTuple

from regard.json_files import MAX_LINE
from regard.validate import check_choice

READ_SIZE = 1 << 20  # bytes per read

Reason = Literal[
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


class BadRow(NamedTuple):
    """A row that cannot be used."""

    file: str
    line: int
    reason: Reason
    detail: str


class Note(NamedTuple):
    """A defect of a file that the reader repaired."""

    file: str
    kind: Literal["BOM", "CRLF", "multibyte"]  # multibyte: some lines are valid multi-byte UTF-8, others are not UTF-8
    times: int


class Dialect(NamedTuple):
    """Encoding and column separator of text files."""

    encoding: str = "utf-8"
    separator: str | None = None  # between columns; None: a .csv file is sniffed, other files have tabs


UTF8 = Dialect()
ENCODINGS = ("utf-8", "cp1252", "latin-1", "iso-8859-15", "utf-16", "utf-16-le", "utf-16-be", "cp1250", "cp1251",
             "cp437", "cp850", "mac-roman", "gb18030", "big5", "shift-jis", "euc-jp", "euc-kr", "koi8-r")  # fmt: skip
ENCODING_HINT = (
    "name its encoding with --encoding, e.g. --encoding cp1252 (Windows, Western Europe) or --encoding utf-16"
)
BINARY_FORMATS = {  # tables in binary formats: first bytes, and file suffix
    b"PAR1": ".parquet",
    b"ARROW1": ".feather",
    b"PK\x03\x04": ".xlsx",
    b"\xd0\xcf\x11\xe0": ".xls",
}
PANDAS_READERS = {".xlsx": "read_excel", ".xls": "read_excel"}  # of the formats that are not read here


def is_encoding_error(bad: BadRow) -> bool:
    """Whether another --encoding may make the line readable."""
    return bad.reason == "bad UTF-8" and bad.detail.startswith("byte ")


def validate_encoding(name: str) -> None:
    """Refuse a name that is no text encoding of Python."""
    try:
        "".encode(name)
    except (LookupError, UnicodeError, ValueError):
        check_choice("encoding", name, ENCODINGS)
        raise


def conversion_hint(file: str, reader: str) -> str:
    """The command that converts a binary table to JSON lines."""
    stem = file.rsplit(".", 1)[0]
    save = f"to_json({stem + '.jsonl'!r}, orient='records', lines=True, force_ascii=False)"
    return f'convert it to JSON lines, e.g. python -c "import pandas; pandas.{reader}({file!r}).{save}"'


class Lines:
    """The lines of one file, plain or gzip; a line that is not UTF-8 is a `BadRow`."""

    def __init__(self, file: str | Path, encoding: str = "utf-8"):
        self.file, self.encoding = str(file), encoding
        self.count = self.boms = self.crlfs = self.undecodable = 0
        self.multibyte = False

    def __iter__(self) -> Iterator[str | BadRow]:
        return (line for block in self.blocks_of_lines() for line in block)

    def blocks_of_lines(self) -> Iterator[Sequence[str | BadRow]]:
        """Lists of the next lines; `count` is then the number of the last of them."""
        for block in self.blocks():
            if b"\r" in block:
                terminated = block + b"\n"
                self.crlfs += terminated.count(b"\r\n")
                block = terminated.replace(b"\r\n", b"\n")[:-1]
            lines: list[str] | list[str | BadRow]
            try:
                lines = block.decode().split("\n")
                self.multibyte |= not block.isascii()
            except UnicodeDecodeError:  # rare: decode line by line to find the bad ones
                lines = [self.decode(line, number) for number, line in enumerate(block.split(b"\n"), self.count + 1)]
            self.count += len(lines)
            yield lines
        if not self.count:
            raise ValueError(f"{self.file}: the file is empty")

    def blocks(self) -> Iterator[bytes]:
        """Blocks of complete lines, without the last \\n."""
        tail, first = b"", True
        for chunk in self.utf8_chunks():
            if first and chunk.startswith(BOM_UTF8):
                chunk, self.boms = chunk.removeprefix(BOM_UTF8), 1
            first = False
            block, newline, tail = (tail + chunk).rpartition(b"\n")
            if newline:
                yield block
            if len(tail) > MAX_LINE:
                place = f"{self.file}:{self.count + 1}"
                raise ValueError(f"{place}: a line of over {MAX_LINE >> 20} MB; is this a text file?")
        if tail:
            yield tail

    def utf8_chunks(self) -> Iterator[bytes]:
        """The file re-encoded to UTF-8. A UTF-8 file passes through undecoded; its lines are decoded later."""
        if codecs.lookup(self.encoding).name == "utf-8":
            for number, chunk in enumerate(self.chunks()):
                if not number:
                    self.refuse_binary(chunk)
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

    def refuse_binary(self, chunk: bytes) -> None:
        """Refuse the first bytes of a binary table or of UTF-16."""
        for magic, suffix in BINARY_FORMATS.items():
            if chunk.startswith(magic):
                reader, is_named = PANDAS_READERS.get(suffix), self.file.lower().endswith(suffix)
                rename = "text is needed here" if is_named else f"name it {Path(self.file).with_suffix(suffix)}"
                remedy = conversion_hint(self.file, reader) if reader else rename
                raise ValueError(f"{self.file}: a binary {suffix} file, not text: {remedy}")
        if chunk.startswith((BOM_UTF16_LE, BOM_UTF16_BE)):
            raise ValueError(f"{self.file}: this is UTF-16: add --encoding utf-16")
        low, high = (chunk[start : 1 << 12 : 2].count(0) for start in (1, 0))
        if max(low, high) > 4 * min(low, high) and 2 * (low + high) > len(chunk[: 1 << 12]) // 2:  # Latin letters
            order = "le" if low > high else "be"
            raise ValueError(f"{self.file}: this looks like UTF-16: add --encoding utf-16-{order}")

    def chunks(self) -> Iterator[bytes]:
        try:
            with open(self.file, "rb") as plain:
                is_gzip = plain.peek(2)[:2] == b"\x1f\x8b"
                with gzip.GzipFile(fileobj=plain) if is_gzip else plain as handle:
                    while chunk := handle.read(READ_SIZE):
                        yield chunk
        except (EOFError, gzip.BadGzipFile, zlib.error) as error:
            raise ValueError(f"{self.file}: broken gzip ({error}); copy or download it again") from error
        except OSError as error:
            raise ValueError(f"{self.file}: cannot be read: {error.strerror or error}") from error

    def decode(self, line: bytes, number: int) -> str | BadRow:
        try:
            text = line.decode()
            self.multibyte |= not line.isascii()
            return text
        except UnicodeDecodeError as error:
            self.undecodable += 1
            detail = f"byte 0x{line[error.start]:02x} at position {error.start + 1}"
            return BadRow(self.file, number, "bad UTF-8", detail)

    def notes(self) -> Iterator[Note]:
        if self.boms:
            yield Note(self.file, "BOM", self.boms)
        if self.crlfs:
            yield Note(self.file, "CRLF", self.crlfs)
        if self.multibyte and self.undecodable:
            yield Note(self.file, "multibyte", 1)
