"""Documents from files, piece by piece: a text may be larger than memory.

It is read once to know it (its length, its hash), and again each time somebody asks for it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from hashlib import blake2b
from itertools import groupby
from pathlib import Path
from typing import Any, Literal, NamedTuple

from regard.cache_dir import CACHE_DIR
from regard.data.fasta import holds_fasta, sequences
from regard.data.files import Data, Files, fingerprint
from regard.data.flaws import unwritable
from regard.data.lines import SUGGESTED, Bad, Lines, is_encoding
from regard.data.text import kinds_of, objects, place, strings

By = Literal["files", "paragraphs", "lines"]  # what a document is
BLOCK = 1 << 18  # characters of a piece, about
EXAMPLE = 200  # characters of a text that count as one example
SAMPLE = 1 << 26  # characters that a tokenizer is learnt from, at most


@dataclass(frozen=True)
class Documents:
    """What stands by itself in a text, and where its tokens are kept."""

    documents: By | None = None  # what a document is; JSON lines are one each
    cache: str = CACHE_DIR  # folder for the tokens of texts, so that they are made only once


class Piece(NamedTuple):
    text: str
    ends: bool  # the document does


class Texts:
    """Documents in pieces, read anew each time they are asked for."""

    def __init__(self, read: Callable[[], Iterator[Piece]], name: str, cache: Path | None = None):
        self.read, self.name = read, name
        self.cache = cache  # the folder for its tokens, if they are to be kept

    def __iter__(self) -> Iterator[Piece]:
        return self.read()

    def sample(self) -> Iterator[str]:
        """The beginning, as much of it as a tokenizer needs."""
        seen = 0
        for piece in self:
            yield piece.text
            seen += len(piece.text)
            if seen >= SAMPLE:
                return

    @cached_property
    def characters(self) -> int:
        return sum(len(piece.text) for piece in self)

    def beginning(self, characters: int) -> Texts:
        return Texts(lambda: part(self, 0, characters), self.name)

    def digest(self) -> str:
        digest = blake2b(digest_size=16)
        for piece in self:
            digest.update(piece.text.encode() + bytes([piece.ends]))
        return digest.hexdigest()


def from_memory(documents: list[str], name: str) -> Texts:
    return Texts(lambda: (Piece(text, True) for text in documents), name)


def from_files(
    files: Iterable[str],
    by: str,
    skip_bad: bool = False,
    field: str = "text",
    cache: Path | None = None,
    encoding: str = "utf-8",
) -> Texts:
    """Text files, plain or gzip, JSON lines with a field of text, or FASTA, in which each chain is a document."""
    names = [str(file) for file in files]
    for name in names:
        if not os.path.isfile(name):
            raise ValueError(
                f"{name}: {'this is a folder; name the files in it' if os.path.isdir(name) else 'no such file'}"
            )

    kinds_of(names)

    def read() -> Iterator[Piece]:
        for name in names:
            raw = Lines(name, encoding)
            if holds_fasta(name):
                yield from (Piece(chain, True) for chain in good(sequences(raw), skip_bad, raw))
                continue
            lines = good(json_texts(raw, field) if holds_json(name) else plain_texts(raw), skip_bad, raw)
            if holds_json(name):
                yield from (Piece(text, True) for text in lines)
            elif by == "lines":
                yield from (Piece(line, True) for line in lines if line.strip())
            elif by == "paragraphs":
                for blank, some in groupby(lines, key=lambda line: not line.strip()):
                    if not blank:
                        yield Piece("\n".join(some) + "\n", True)
            else:
                yield from whole(lines)

    return Texts(read, names[0], cache)


def holds_json(name: str) -> bool:
    return name.lower().removesuffix(".gz").endswith((".jsonl", ".json"))


def good(lines: Iterable[str | Bad], skip_bad: bool, raw: Lines) -> Iterator[str]:
    for line in lines:
        if not isinstance(line, Bad):
            yield line
        elif not skip_bad:
            foreign = is_encoding(line) and not raw.multibyte
            remedy = SUGGESTED if foreign else "fix the line, or leave such lines out with --skip-bad"
            raise ValueError(f"{line.file}:{line.line}: {line.why}, {line.detail}: {remedy}")


def plain_texts(lines: Lines) -> Iterator[str | Bad]:
    for number, line in enumerate(lines, 1):
        yield line if isinstance(line, Bad) else unwritable("text", line, lines.file, number) or line


def json_texts(lines: Lines, field: str) -> Iterator[str | Bad]:
    for item in objects(lines):
        if isinstance(item, Bad):
            if item.why != "empty":
                yield item
            continue
        number, row = item
        texts = strings(row, (field,), lines.file, number)
        yield texts if isinstance(texts, Bad) else unwritable("text", texts[0], lines.file, number) or texts[0]


def whole(lines: Iterable[str]) -> Iterator[Piece]:
    """A file is one document, in pieces that end where lines do."""
    held: list[str] = []
    size = 0
    for line in lines:
        if size > BLOCK:
            yield Piece("".join(held), False)
            held, size = [], 0
        held.append(line + "\n")
        size += len(line) + 1
    yield Piece("".join(held), True)


def hold_out(texts: Texts, share: float, by: str) -> tuple[Texts, Texts]:
    """Documents by their hash; of whole files, the last share of their text."""
    if by == "files":
        limit = int(texts.characters * (1 - share))
        kept = Texts(lambda: part(texts, 0, limit), texts.name, texts.cache)
        held = Texts(lambda: part(texts, limit, texts.characters), texts.name, texts.cache)
    else:
        mark = int(share * 2**64)
        kept = Texts(lambda: (p for p in texts if place(p.text, "") >= mark), texts.name, texts.cache)
        held = Texts(lambda: (p for p in texts if place(p.text, "") < mark), texts.name, texts.cache)
    for some in (kept, held):
        if not any(piece.text for piece in some):
            raise ValueError(
                f"{texts.name}: too little text to hold out {share} of it; give --valid, or another --held-out"
            )
    return kept, held


def part(texts: Texts, begin: int, end: int) -> Iterator[Piece]:
    """The characters from `begin` to `end`."""
    at = 0
    for piece in texts:
        a, b = max(begin - at, 0), min(end - at, len(piece.text))
        if a < b:
            yield Piece(piece.text[a:b], piece.ends or at + b == end)
        at += len(piece.text)


def read_texts(files: Files, reading: dict[str, Any], bundled: Callable[[], dict[str, list[str]]]) -> Data:
    """Every set of documents that was asked for."""
    by = reading["documents"] or ("lines" if all(map(holds_json, files.data)) else "files")
    field = files.fields[0] if files.fields else "text"
    if files.separator:
        raise ValueError("--separator is for files with columns; this task reads texts or JSON lines")

    def texts(paths: tuple[str, ...]) -> Texts:
        return from_files(paths, by, files.skip_bad, field, Path(reading["cache"]).expanduser(), files.encoding)

    sets = (
        {"train": texts(files.data)}
        if files.data
        else {name: from_memory(some, "bundled") for name, some in bundled().items()}
    )
    for name, given in (("valid", files.valid), ("test", files.test)):
        if given:
            sets[name] = texts(given)
    for some in sets.values():
        if not any(piece.text.strip() for piece in some):
            raise ValueError(f"{some.name}: there is no text in it")
    if "valid" not in sets:
        sets["train"], sets["valid"] = hold_out(sets["train"], files.share(sets["train"].characters / EXAMPLE), by)
    return Data(sets, None, fingerprint(sets[name].digest() for name in ("train", "valid")))
