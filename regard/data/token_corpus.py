"""Token corpus: documents as one sequence of tokens, in a memory-mapped file.

The cache key is a hash of text and tokenizer, so a text is tokenized once.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator
from hashlib import blake2b
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from regard.data.batches import Ints
from regard.data.documents import DocumentStream, TextChunk
from regard.data.tokenizer import Tokenizer
from regard.parts.document_mask import DENSE_TOKENS, DocumentMask, Mask

BATCH_CHARACTERS = 1 << 21  # characters that are tokenized at once, approximately


class TokenCorpus(NamedTuple):
    ids: npt.NDArray[np.unsignedinteger]  # all tokens; memory-mapped if cached
    size: int  # bytes of the text

    @classmethod
    def from_documents(cls, texts: DocumentStream, tokenizer: Tokenizer) -> TokenCorpus:
        """The tokens of a stream, from its cache or newly encoded."""
        dtype = np.uint16 if len(tokenizer) <= 1 << 16 else np.uint32
        if texts.cache is None:
            parts = [*encode_stream(texts, tokenizer)]
            return cls(np.concatenate([ids for ids, _ in parts]).astype(dtype), sum(size for _, size in parts))
        key = blake2b((texts.digest() + tokenizer.backend_tokenizer.to_str()).encode(), digest_size=16).hexdigest()
        file, metadata = texts.cache / f"{key}.tokens", texts.cache / f"{key}.json"
        if not metadata.is_file():
            write_tokens(texts, tokenizer, dtype, file, metadata)
        return cls(np.memmap(file, dtype, "r"), json.loads(metadata.read_text())["bytes"])


def write_tokens(
    texts: DocumentStream, tokenizer: Tokenizer, dtype: type[np.uint16] | type[np.uint32], file: Path, metadata: Path
) -> None:
    """The metadata is renamed into place last: tokens without it come from an interrupted run."""
    file.parent.mkdir(parents=True, exist_ok=True)
    temporary = file.with_suffix(f".{os.getpid()}")
    total = 0
    with temporary.open("wb") as stream:
        for ids, size in encode_stream(texts, tokenizer):
            ids.astype(dtype).tofile(stream)
            total += size
    temporary.replace(file)
    temporary.write_text(json.dumps({"text": texts.name, "bytes": total}))
    temporary.replace(metadata)


def encode_stream(texts: DocumentStream, tokenizer: Tokenizer) -> Iterator[tuple[Ints, int]]:
    """The tokens of one batch of chunks after the other, with its size in bytes. Without a template, </s> opens the
    corpus and ends each document; a template with <s> adds it once per document."""
    has_bos = tokenizer.template_ids == [tokenizer.bos_token_id] != [tokenizer.eos_token_id]
    add_eos = has_bos or tokenizer.bos_token_id == tokenizer.eos_token_id
    if add_eos and not has_bos:
        yield np.array([tokenizer.eos_token_id]), 0
    is_inside = False
    for batch in chunk_batches(texts):
        ids: list[int] = []
        for row, chunk in zip(tokenizer.encode([chunk.text for chunk in batch]), batch, strict=True):
            ids += row[1:] if has_bos and is_inside else row
            if add_eos and chunk.is_last:
                ids.append(tokenizer.eos_token_id)
            is_inside = not chunk.is_last
        yield np.array(ids), sum(len(chunk.text.encode()) for chunk in batch)


def chunk_batches(texts: Iterable[TextChunk]) -> Iterator[list[TextChunk]]:
    batch: list[TextChunk] = []
    size = 0
    for chunk in texts:
        batch.append(chunk)
        size += len(chunk.text)
        if size > BATCH_CHARACTERS:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


class TokenWindows:
    """Windows of `length` tokens, one example each. Every epoch starts at another offset."""

    def __init__(self, corpus: TokenCorpus, length: int):
        self.ids, self.length = corpus.ids, min(length, len(corpus.ids))
        if len(self.ids) < 2:
            raise ValueError("there is no text to train on")
        self.units = len(self.ids) // self.length * self.length

    def epoch(self, budget: int, seed: int, epoch: int) -> list[Ints]:
        """Batches of the positions at which windows start."""
        rng = np.random.default_rng([seed, epoch])
        first = int(rng.integers(min(self.length, len(self.ids) - self.length + 1)))
        starts = np.arange(first, len(self.ids) - self.length + 1, self.length)
        rows = max(1, budget // self.length)
        shuffled = rng.permutation(starts)
        return [shuffled[i : i + rows] for i in range(0, len(shuffled), rows)]

    def sequential(self) -> Ints:
        return np.arange(0, len(self.ids) - self.length + 1, self.length)

    def take(self, starts: Ints) -> Tensor:
        """(B,T) ids"""
        return torch.from_numpy(self.ids[starts[:, None] + np.arange(self.length)].astype(np.int64))


def document_mask(ids: Tensor, bos_token_id: int) -> Mask | None:
    """Which tokens share a document, (B,1,T,T) or compact for long rows; None if every row has one document."""
    document = (ids == bos_token_id).cumsum(1)
    if bool((document[:, -1] == document[:, 0]).all()):
        return None
    mask = DocumentMask(document)
    return mask.dense() if ids.size(1) <= DENSE_TOKENS else mask
