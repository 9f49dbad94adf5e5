"""Streams of documents from files, in chunks: a text may be larger than memory.

A stream is read once for its length and hash, and again at every iteration.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from hashlib import blake2b
from itertools import groupby
from pathlib import Path
from typing import Literal, NamedTuple

from regard.cache_dir import CACHE_DIR
from regard.data.fields import file_suffixes, json_objects, string_fields
from regard.data.lines import ENCODING_HINT, BadRow, Lines, is_encoding_error
from regard.data.rows import Row, hash_input
from regard.data.splits import Data, DataOptions, fingerprint
from regard.data.text_checks import check_characters

DocumentUnit = Literal["files", "paragraphs", "lines"]  # one document is a file, ...
CHUNK_CHARACTERS = 1 << 18  # approximate size of a chunk
CHARACTERS_PER_EXAMPLE = 200  # to compute the default --valid-share
MAX_SAMPLE_CHARACTERS = 1 << 26  # of the sample that a tokenizer is trained on


@dataclass(frozen=True)
class DocumentOptions:
    """The unit of a document, and the cache of its tokens."""

    documents: DocumentUnit | None = None  # unit of a document; default: files, or lines of JSON
    cache: str = CACHE_DIR  # folder where tokenized texts are cached


class TextChunk(NamedTuple):
    text: str
    is_last: bool  # of its document


class DocumentStream:
    """Documents in chunks, read again at every iteration."""

    def __init__(self, read: Callable[[], Iterator[TextChunk]], name: str, cache: Path | None = None):
        self.read, self.name = read, name
        self.cache = cache  # folder for its tokens; None: not cached

    def __iter__(self) -> Iterator[TextChunk]:
        return self.read()

    def sample(self) -> Iterator[str]:
        """The first chunks, to train a tokenizer on."""
        size = 0
        for chunk in self:
            yield chunk.text
            size += len(chunk.text)
            if size >= MAX_SAMPLE_CHARACTERS:
                return

    @cached_property
    def characters(self) -> int:
        return sum(len(chunk.text) for chunk in self)

    def prefix(self, characters: int) -> DocumentStream:
        return DocumentStream(lambda: slice_stream(self, 0, characters), self.name)

    def digest(self) -> str:
        digest = blake2b(digest_size=16)
        for chunk in self:
            digest.update(chunk.text.encode() + bytes([chunk.is_last]))
        return digest.hexdigest()


RowSet = Sequence[Row[object, object]] | DocumentStream  # the rows of train, valid or test


def documents_from_memory(documents: list[str], name: str) -> DocumentStream:
    return DocumentStream(lambda: (TextChunk(text, True) for text in documents), name)


def documents_from_files(
    files: Iterable[str], read_file: Callable[[str], Iterator[TextChunk]], cache: Path | None = None
) -> DocumentStream:
    """The chunks of all files; `read_file` reads one of them."""
    names = [str(file) for file in files]
    for name in names:
        if not os.path.isfile(name):
            detail = "this is a folder; name the files in it" if os.path.isdir(name) else "no such file"
            raise ValueError(f"{name}: {detail}")
    file_suffixes(names)
    return DocumentStream(lambda: (chunk for name in names for chunk in read_file(name)), names[0], cache)


def read_text_file(
    name: str, unit: str = "files", skip_bad: bool = False, field: str = "text", encoding: str = "utf-8"
) -> Iterator[TextChunk]:
    """A text file, plain or gzip, or JSON lines with a text field."""
    raw = Lines(name, encoding)
    lines = usable_lines(json_texts(raw, field) if is_json_file(name) else plain_texts(raw), skip_bad, raw)
    if is_json_file(name):
        yield from (TextChunk(text, True) for text in lines)
    elif unit == "lines":
        yield from (TextChunk(line, True) for line in lines if line.strip())
    elif unit == "paragraphs":
        for is_blank, paragraph in groupby(lines, key=lambda line: not line.strip()):
            if not is_blank:
                yield TextChunk("\n".join(paragraph) + "\n", True)
    else:
        yield from whole_file(lines)


def is_json_file(name: str) -> bool:
    return name.lower().removesuffix(".gz").endswith((".jsonl", ".json"))


def usable_lines(lines: Iterable[str | BadRow], skip_bad: bool, raw: Lines) -> Iterator[str]:
    for line in lines:
        if not isinstance(line, BadRow):
            yield line
        elif not skip_bad:
            wrong_encoding = is_encoding_error(line) and not raw.multibyte
            remedy = ENCODING_HINT if wrong_encoding else "fix the line, or drop such lines with --skip-bad"
            raise ValueError(f"{line.file}:{line.line}: {line.reason}, {line.detail}: {remedy}")


def plain_texts(lines: Lines) -> Iterator[str | BadRow]:
    for number, line in enumerate(lines, 1):
        yield line if isinstance(line, BadRow) else check_characters("text", line, lines.file, number) or line


def json_texts(lines: Lines, field: str) -> Iterator[str | BadRow]:
    for item in json_objects(lines):
        if isinstance(item, BadRow):
            if item.reason != "empty":
                yield item
            continue
        number, row = item
        texts = string_fields(row, (field,), lines.file, number)
        yield texts if isinstance(texts, BadRow) else check_characters("text", texts[0], lines.file, number) or texts[0]


def whole_file(lines: Iterable[str]) -> Iterator[TextChunk]:
    """One document, in chunks of whole lines."""
    buffer: list[str] = []
    size = 0
    for line in lines:
        if size > CHUNK_CHARACTERS:
            yield TextChunk("".join(buffer), False)
            buffer, size = [], 0
        buffer.append(line + "\n")
        size += len(line) + 1
    yield TextChunk("".join(buffer), True)


def split_stream(texts: DocumentStream, share: float, unit: str) -> tuple[DocumentStream, DocumentStream]:
    """Train and valid: documents by their hash or, if a file is one document, the last share of the text."""
    if unit == "files":
        limit = int(texts.characters * (1 - share))
        train = DocumentStream(lambda: slice_stream(texts, 0, limit), texts.name, texts.cache)
        valid = DocumentStream(lambda: slice_stream(texts, limit, texts.characters), texts.name, texts.cache)
    else:
        limit = int(share * 2**64)
        train = DocumentStream(lambda: (p for p in texts if hash_input(p.text, "") >= limit), texts.name, texts.cache)
        valid = DocumentStream(lambda: (p for p in texts if hash_input(p.text, "") < limit), texts.name, texts.cache)
    for stream in (train, valid):
        if not any(chunk.text for chunk in stream):
            remedy = "use --valid, or another --valid-share"
            raise ValueError(f"{texts.name}: too little text to hold out {share} of it; {remedy}")
    return train, valid


def slice_stream(texts: DocumentStream, begin: int, end: int) -> Iterator[TextChunk]:
    """The characters from `begin` to `end`."""
    offset = 0
    for chunk in texts:
        a, b = max(begin - offset, 0), min(end - offset, len(chunk.text))
        if a < b:
            yield TextChunk(chunk.text[a:b], chunk.is_last or offset + b == end)
        offset += len(chunk.text)


def read_documents(
    files: DataOptions,
    open_stream: Callable[[tuple[str, ...]], DocumentStream],
    synthetic: Callable[[], dict[str, list[str]]],
    unit: str,
) -> Data:
    """The sets of documents. `open_stream` opens files, `synthetic` returns the data that ships with the package."""
    if files.separator:
        raise ValueError("--separator is for files with columns; this task reads documents")
    if files.data:
        sets = {"train": open_stream(files.data)}
    else:
        sets = {name: documents_from_memory(texts, "bundled") for name, texts in synthetic().items()}
    for name, paths in (("valid", files.valid), ("test", files.test)):
        if paths:
            sets[name] = open_stream(paths)
    for stream in sets.values():
        if not any(chunk.text.strip() for chunk in stream):
            raise ValueError(f"{stream.name}: the file contains no text")
    if "valid" not in sets:
        share = files.valid_share_for(sets["train"].characters / CHARACTERS_PER_EXAMPLE)
        sets["train"], sets["valid"] = split_stream(sets["train"], share, unit)
    return Data(sets, None, fingerprint(sets[name].digest() for name in ("train", "valid")))


def first_rows(rows: RowSet, count: int) -> RowSet:
    """The first rows of a set, or the first characters of documents."""
    return rows.prefix(count) if isinstance(rows, DocumentStream) else rows[:count]


def describe_amount(rows: RowSet, unit: str) -> str:
    """The size of a set in words; `unit` is the plural of a row."""
    return f"{rows.characters:,} characters" if isinstance(rows, DocumentStream) else f"{len(rows):,} {unit}"
