"""The documents of one file, in chunks: the file itself, its paragraphs, its lines, or the rows of a table of texts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from typing import Literal, NamedTuple

from regard.data.fields import OBJECT_SUFFIXES, read_objects, string_fields
from regard.data.lines import ENCODING_HINT, BadRow, Lines, is_encoding_error
from regard.data.text_checks import check_characters

DocumentUnit = Literal["files", "paragraphs", "lines"]  # one document is a file, ...
CHUNK_CHARACTERS = 1 << 18  # approximate size of a chunk


class TextChunk(NamedTuple):
    text: str
    is_last: bool  # of its document


def read_text_file(
    name: str, unit: str = "files", skip_bad: bool = False, field: str = "text", encoding: str = "utf-8"
) -> Iterator[TextChunk]:
    """A text file, plain or gzip, or JSON lines, Parquet or Arrow with a field of texts."""
    raw = Lines(name, encoding)
    if unit == "files" and not has_objects(name):
        yield from whole_file(usable_blocks(raw, skip_bad))
        return
    lines = usable_lines(object_texts(raw, field) if has_objects(name) else plain_texts(raw), skip_bad, raw)
    if has_objects(name):
        yield from (TextChunk(text, True) for text in lines)
    elif unit == "lines":
        yield from (TextChunk(line, True) for line in lines if line.strip())
    else:
        for is_blank, paragraph in groupby(lines, key=lambda line: not line.strip()):
            if not is_blank:
                yield TextChunk("\n".join(paragraph) + "\n", True)


def has_objects(name: str) -> bool:
    """Whether every row of a file is a document: JSON lines, Parquet or Arrow."""
    return name.lower().removesuffix(".gz").endswith(OBJECT_SUFFIXES)


def usable_lines(lines: Iterable[str | BadRow], skip_bad: bool, raw: Lines) -> Iterator[str]:
    for line in lines:
        if not isinstance(line, BadRow):
            yield line
        elif not skip_bad:
            wrong_encoding = is_encoding_error(line) and not raw.multibyte
            remedy = ENCODING_HINT if wrong_encoding else "fix the line, or drop such lines with --skip-bad"
            raise ValueError(f"{line.file}:{line.line}: {line.reason}, {line.detail}: {remedy}")


def plain_texts(lines: Lines) -> Iterator[str | BadRow]:
    return (line for block in lines.blocks_of_lines() for line in checked_lines(block, lines))


def checked_lines(block: Sequence[str | BadRow], lines: Lines) -> Iterator[str | BadRow]:
    """The last lines that were read, each of them checked."""
    for number, line in enumerate(block, lines.count - len(block) + 1):
        yield line if isinstance(line, BadRow) else check_characters("text", line, lines.file, number) or line


def usable_blocks(lines: Lines, skip_bad: bool) -> Iterator[str]:
    """Blocks of whole lines; only a block with a bad line is read line by line."""
    for block in lines.blocks_of_lines():
        texts = [line for line in block if not isinstance(line, BadRow)]
        text = "\n".join(texts)
        if len(texts) < len(block) or check_characters("text", text, lines.file, 1):
            texts = [*usable_lines(checked_lines(block, lines), skip_bad, lines)]
            text = "\n".join(texts)
        if texts:
            yield f"{text}\n"


def object_texts(lines: Lines, field: str) -> Iterator[str | BadRow]:
    for item in read_objects(lines, lambda columns: (field,)):
        if isinstance(item, BadRow):
            if item.reason != "empty":
                yield item
            continue
        number, row = item
        texts = string_fields(row, (field,), lines.file, number)
        yield texts if isinstance(texts, BadRow) else check_characters("text", texts[0], lines.file, number) or texts[0]


def whole_file(blocks: Iterable[str]) -> Iterator[TextChunk]:
    """One document, in chunks that end with the first line beyond CHUNK_CHARACTERS."""
    pending = ""
    for block in blocks:
        pending += block
        begin = 0
        while 0 < (end := pending.find("\n", begin + CHUNK_CHARACTERS) + 1) < len(pending):
            yield TextChunk(pending[begin:end], False)
            begin = end
        pending = pending[begin:]
    yield TextChunk(pending, True)
