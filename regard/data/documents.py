"""Streams of documents from files, in chunks: a text may be larger than memory.

A stream is read once for its length and hash, and again at every iteration.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path

from regard.cache_dir import CACHE_DIR
from regard.data.document_files import DocumentUnit, TextChunk
from regard.data.fields import file_suffixes
from regard.data.rows import Row, hash_input
from regard.data.splits import Data, DataOptions, fingerprint
from regard.data.stream_summary import StreamSummary, SummaryBuilder, SummaryCache

CHARACTERS_PER_EXAMPLE = 200  # to compute the default --valid-share
MAX_SAMPLE_CHARACTERS = 1 << 26  # of the sample that a tokenizer is trained on


@dataclass(frozen=True)
class DocumentOptions:
    """The unit of a document, and the cache of its tokens."""

    documents: DocumentUnit | None = None  # unit of a document; default: files, or lines of JSON
    cache: str = CACHE_DIR  # folder where tokenized texts are cached


class DocumentStream:
    """Documents in chunks, read again at every iteration."""

    def __init__(
        self,
        read: Callable[[], Iterator[TextChunk]],
        name: str,
        cache: Path | None = None,
        summaries: SummaryCache | None = None,
        part: str = "all",
    ):
        self.read, self.name = read, name
        self.cache = cache  # folder for its tokens; None: not cached
        self.summaries, self.part = summaries, part  # where the summary of this part of the files is stored
        self.prefixes: dict[int, list[TextChunk]] = {}

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
    def summary(self) -> StreamSummary:
        """Length and hash, from one pass over the text."""
        if stored := self.stored_summary():
            return stored
        builder = SummaryBuilder()
        for chunk in self:
            builder.add(*chunk)
        return self.store_summary(builder.build())

    def stored_summary(self) -> StreamSummary | None:
        return self.summaries.read(self.cache, self.part) if self.summaries and self.cache else None

    def store_summary(self, summary: StreamSummary) -> StreamSummary:
        if self.summaries and self.cache:
            self.summaries.write(self.cache, self.part, summary)
        return summary

    @property
    def characters(self) -> int:
        return self.summary.characters

    def digest(self) -> str:
        return self.summary.digest

    def prefix(self, characters: int) -> DocumentStream:
        """The first characters; they stay in memory, because every evaluation reads them."""

        def read() -> Iterator[TextChunk]:
            if characters not in self.prefixes:
                self.prefixes[characters] = [*slice_stream(self, 0, characters)]
            return iter(self.prefixes[characters])

        return DocumentStream(read, self.name)


RowSet = Sequence[Row[object, object]] | DocumentStream  # the rows of train, valid or test


def documents_from_memory(documents: list[str], name: str) -> DocumentStream:
    return DocumentStream(lambda: (TextChunk(text, True) for text in documents), name)


def documents_from_files(
    files: Iterable[str], read_file: Callable[[str], Iterator[TextChunk]], cache: Path | None = None, how: str = ""
) -> DocumentStream:
    """The chunks of all files; `read_file` reads one of them, and `how` describes it for the stored summaries."""
    names = [str(file) for file in files]
    for name in names:
        if not os.path.isfile(name):
            detail = "this is a folder; name the files in it" if os.path.isdir(name) else "no such file"
            raise ValueError(f"{name}: {detail}")
    file_suffixes(names)
    summaries = SummaryCache(names, how) if how else None
    return DocumentStream(lambda: (chunk for name in names for chunk in read_file(name)), names[0], cache, summaries)


def split_stream(texts: DocumentStream, share: float, unit: str) -> tuple[DocumentStream, DocumentStream]:
    """Train and valid: documents by their hash or, if a file is one document, the last share of the text."""
    limit = int((texts.characters if unit == "files" else 2**64) * ((1 - share) if unit == "files" else share))

    def divide() -> Iterator[tuple[int, TextChunk]]:
        if unit == "files":
            return cut_stream(texts, (limit, texts.characters))
        return ((int(hash_input(chunk.text, "") < limit), chunk) for chunk in texts)

    def part(number: int) -> DocumentStream:
        name = f"{unit} {limit} {number}"
        read = partial(chunks_of_part, divide, number)
        return DocumentStream(read, texts.name, texts.cache, texts.summaries, name)

    parts = (part(0), part(1))
    summarize_parts(parts, divide)
    for stream in parts:
        if not stream.characters:
            remedy = "use --valid, or another --valid-share"
            raise ValueError(f"{texts.name}: too little text to hold out {share} of it; {remedy}")
    return parts


def chunks_of_part(divide: Callable[[], Iterator[tuple[int, TextChunk]]], number: int) -> Iterator[TextChunk]:
    return (chunk for part, chunk in divide() if part == number)


def summarize_parts(parts: Sequence[DocumentStream], divide: Callable[[], Iterator[tuple[int, TextChunk]]]) -> None:
    """The summaries of all parts, from one pass over the text."""
    stored = [part.stored_summary() for part in parts]
    if any(summary is None for summary in stored):
        builders = [SummaryBuilder() for _ in parts]
        for number, chunk in divide():
            builders[number].add(*chunk)
        stored = [part.store_summary(b.build()) for part, b in zip(parts, builders, strict=True)]
    for part, summary in zip(parts, stored, strict=True):
        assert summary
        part.summary = summary


def slice_stream(texts: Iterable[TextChunk], begin: int, end: int) -> Iterator[TextChunk]:
    """The characters from `begin` to `end`."""
    return (chunk for part, chunk in cut_stream(texts, (begin, end)) if part == 1)


def cut_stream(texts: Iterable[TextChunk], ends: Sequence[int]) -> Iterator[tuple[int, TextChunk]]:
    """Part i ends at character ends[i]; chunks are cut there."""
    offset, parts = 0, iter(enumerate(ends))
    part, end = next(parts)
    for chunk in texts:
        cut = 0
        while cut < len(chunk.text):
            while offset + cut >= end:
                part, end = next(parts, (-1, -1))
                if part < 0:
                    return
            piece = chunk.text[cut : end - offset]
            cut += len(piece)
            yield part, TextChunk(piece, offset + cut == end or (chunk.is_last and cut == len(chunk.text)))
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
