"""A corpus: documents as one long row of tokens, in a file that is mapped into memory instead of read into it.

Its tokens are made once, and never again while text and tokenizer stay as they are.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator
from hashlib import blake2b
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from regard.data.batches import Ints
from regard.data.documents import DocumentStream, Piece
from regard.data.tokenizer import Tokenizer

TOGETHER = 1 << 21  # characters whose tokens are made at once, about


class TokenCorpus(NamedTuple):
    ids: npt.NDArray[Any]  # all tokens, mapped from a file if there is one
    size: int  # bytes of the text

    @classmethod
    def from_documents(cls, texts: DocumentStream, tokenizer: Tokenizer) -> TokenCorpus:
        """The tokens of a text: found in its cache, or made and left there."""
        kind = np.uint16 if len(tokenizer) <= 1 << 16 else np.uint32
        if texts.cache is None:
            made = [*encoded(texts, tokenizer)]
            return cls(np.concatenate([ids for ids, _ in made]).astype(kind), sum(size for _, size in made))
        key = blake2b((texts.digest() + tokenizer.backend_tokenizer.to_str()).encode(), digest_size=16).hexdigest()
        file, facts = texts.cache / f"{key}.tokens", texts.cache / f"{key}.json"
        if not facts.is_file():
            write(texts, tokenizer, kind, file, facts)
        return cls(np.memmap(file, kind, "r"), json.loads(facts.read_text())["bytes"])


def write(texts: DocumentStream, tokenizer: Tokenizer, kind: Any, file: Path, facts: Path) -> None:
    """The facts come last, by one rename: tokens without them are those of a run that was stopped."""
    file.parent.mkdir(parents=True, exist_ok=True)
    beside = file.with_suffix(f".{os.getpid()}")
    total = 0
    with beside.open("wb") as stream:
        for ids, size in encoded(texts, tokenizer):
            ids.astype(kind).tofile(stream)
            total += size
    beside.replace(file)
    beside.write_text(json.dumps({"text": texts.name, "bytes": total}))
    beside.replace(facts)


def encoded(texts: DocumentStream, tokenizer: Tokenizer) -> Iterator[tuple[npt.NDArray[Any], int]]:
    """Tokens of a piece after the other, with the bytes it had. If the tokenizer puts nothing around texts, </s> opens
    the corpus and closes each document; one that puts <s> before them does so once a document."""
    opened = tokenizer.template_ids == [tokenizer.bos_token_id] != [tokenizer.eos_token_id]
    closes = opened or tokenizer.bos_token_id == tokenizer.eos_token_id
    if closes and not opened:
        yield np.array([tokenizer.eos_token_id]), 0
    inside = False
    for some in bunches(texts):
        ids: list[int] = []
        for row, piece in zip(tokenizer.encode([piece.text for piece in some]), some, strict=True):
            ids += row[1:] if opened and inside else row
            if closes and piece.ends:
                ids.append(tokenizer.eos_token_id)
            inside = not piece.ends
        yield np.array(ids), sum(len(piece.text.encode()) for piece in some)


def bunches(texts: Iterable[Piece]) -> Iterator[list[Piece]]:
    held: list[Piece] = []
    size = 0
    for piece in texts:
        held.append(piece)
        size += len(piece.text)
        if size > TOGETHER:
            yield held
            held, size = [], 0
    if held:
        yield held


class TokenWindows:
    """Examples cut out of a corpus, each `length` tokens long. Every epoch cuts elsewhere."""

    def __init__(self, corpus: TokenCorpus, length: int):
        self.ids, self.length = corpus.ids, min(length, len(corpus.ids))
        if len(self.ids) < 2:
            raise ValueError("there is no text to learn from")
        self.units = len(self.ids) // self.length * self.length

    def epoch(self, budget: int, seed: int, epoch: int) -> list[Ints]:
        """The rows are the places where windows begin."""
        draw = np.random.default_rng([seed, epoch])
        first = int(draw.integers(min(self.length, len(self.ids) - self.length + 1)))
        starts = np.arange(first, len(self.ids) - self.length + 1, self.length)
        rows = max(1, budget // self.length)
        shuffled = draw.permutation(starts)
        return [shuffled[i : i + rows] for i in range(0, len(shuffled), rows)]

    def take(self, starts: Ints) -> Tensor:
        """(B,T) ids"""
        return torch.from_numpy(self.ids[starts[:, None] + np.arange(self.length)].astype(np.int64))


def document_mask(ids: Tensor, begin: int) -> Tensor | None:
    """(B,1,T,T): a token sees its own document only. None where there is only one in every row."""
    number = (ids == begin).cumsum(1)
    if bool((number[:, -1] == number[:, 0]).all()):
        return None
    return (number[:, :, None] == number[:, None, :])[:, None]
