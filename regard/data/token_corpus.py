"""Token corpus: documents as one sequence of tokens, in memory or in memory-mapped shards, and windows of it.

The cache key is a hash of text and tokenizer, so a text is tokenised once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache, cached_property
from hashlib import blake2b
from typing import overload

import numpy as np
import torch
from torch import Tensor

from regard.data.batches import Ints
from regard.data.documents import DocumentStream
from regard.data.permutation import Permutation
from regard.data.token_shards import DocumentLengths, Shard, ShardFolder, Tokens, blocks
from regard.data.tokenization import encode_stream, write_shards
from regard.data.tokenizer import Tokenizer
from regard.parts.document_mask import DENSE_TOKENS, DocumentMask, Mask

STORED_WINDOWS = 1 << 20  # an epoch of more windows has a computed order, which costs no memory


class TokenCorpus:
    """The tokens of all shards as one sequence."""

    def __init__(self, lengths: Sequence[int], open_shard: Callable[[int], Tokens], size: int, longest: int | None):
        self.ends: Ints = np.cumsum(lengths)
        self.open_shard = cache(open_shard)
        self.size = size  # bytes of the text
        self.stored_longest = longest

    @classmethod
    def from_ids(cls, ids: Tokens, size: int) -> TokenCorpus:
        return cls([len(ids)], lambda _: ids, size, None)

    @classmethod
    def from_shards(cls, files: ShardFolder) -> TokenCorpus:
        index = files.read_index()
        shards: list[Shard] = index["shards"]
        lengths = [shard.tokens for shard in shards]
        return cls(lengths, lambda i: files.open(i, shards[i]), index["bytes"], index["longest_document"])

    @classmethod
    def from_documents(cls, texts: DocumentStream, tokenizer: Tokenizer) -> TokenCorpus:
        """The tokens of a stream, from its cache or newly encoded."""
        if texts.cache is None:
            batches = [*encode_stream(texts, tokenizer)]
            ids = np.concatenate([batch.ids for batch in batches]) if batches else np.zeros(0, np.uint16)
            return cls.from_ids(ids, int(sum(batch.sizes.sum() for batch in batches)))
        key = blake2b((texts.digest() + tokenizer.backend_tokenizer.to_str()).encode(), digest_size=16).hexdigest()
        return cls.from_shards(write_shards(texts, tokenizer, texts.cache / key))

    def __len__(self) -> int:
        return int(self.ends[-1])

    def __getitem__(self, place: slice) -> Tokens:
        begin, end, step = place.indices(len(self))
        assert step == 1
        parts = [self.open_shard(0)[:0]]
        for shard in range(self.shard_of(begin), len(self.ends)):
            start = int(self.ends[shard - 1]) if shard else 0
            if start >= end:
                break
            parts.append(self.open_shard(shard)[max(begin - start, 0) : end - start])
        return np.concatenate(parts)

    def shard_of(self, place: int) -> int:
        return int(np.searchsorted(self.ends, place, "right"))

    def take(self, starts: Ints, length: int) -> Tokens:
        """(B,T): `length` tokens from each start on. A window may cross the border of two shards."""
        if len(self.ends) == 1:
            return self.open_shard(0)[starts[:, None] + np.arange(length)]
        return np.stack([self[start : start + length] for start in starts.tolist()])

    @cached_property
    def ids(self) -> Tokens:
        """All tokens in one array: for small corpora."""
        return self.open_shard(0) if len(self.ends) == 1 else self[:]

    def longest_document(self, begin: int) -> int:
        """The tokens of the longest document. `begin` is the first token of every document."""
        if self.stored_longest is not None:
            return self.stored_longest
        lengths = DocumentLengths(begin)
        for block in blocks(self.open_shard(0)):
            lengths = lengths.add(block)
        return lengths.maximum


class TokenWindows:
    """Windows of `length` tokens, one example each. Every epoch starts at another offset."""

    def __init__(self, corpus: TokenCorpus, length: int):
        self.corpus, self.length = corpus, min(length, len(corpus))
        if len(corpus) < 2:
            raise ValueError("there is no text to train on")
        self.units = len(corpus) // self.length * self.length

    def epoch(self, budget: int, seed: int, epoch: int) -> WindowBatches:
        """Batches of the positions at which windows start."""
        rng = np.random.default_rng([seed, epoch])
        last = len(self.corpus) - self.length
        first = int(rng.integers(min(self.length, last + 1)))
        count = (last - first) // self.length + 1
        order = Permutation(count, seed, epoch) if count > STORED_WINDOWS else rng.permutation(count)
        return WindowBatches(order, first, self.length, max(1, budget // self.length))

    def sequential(self) -> Ints:
        return np.arange(0, len(self.corpus) - self.length + 1, self.length)

    def take(self, starts: Ints) -> Tensor:
        """(B,T) ids"""
        return torch.from_numpy(self.corpus.take(starts, self.length).astype(np.int64))


class WindowBatches(Sequence[Ints]):
    """The batches of an epoch, each computed when it is read."""

    def __init__(self, order: Ints | Permutation, first: int, length: int, rows: int):
        self.order, self.first, self.length, self.rows = order, first, length, rows

    def __len__(self) -> int:
        return -(-len(self.order) // self.rows)

    @overload
    def __getitem__(self, number: int) -> Ints: ...
    @overload
    def __getitem__(self, number: slice) -> list[Ints]: ...
    def __getitem__(self, number: int | slice) -> Ints | list[Ints]:
        if isinstance(number, slice):
            return [self[i] for i in range(*number.indices(len(self)))]
        number = range(len(self))[number]  # refuses a number outside, as a list does
        places = np.arange(number * self.rows, min((number + 1) * self.rows, len(self.order)))
        starts: Ints = self.first + self.length * self.order[places]
        return starts


def document_mask(ids: Tensor, bos_token_id: int) -> Mask | None:
    """Which tokens share a document, (B,1,T,T) or compact for long rows; None if every row has one document."""
    document = (ids == bos_token_id).cumsum(1)
    if bool((document[:, -1] == document[:, 0]).all()):
        return None
    mask = DocumentMask(document)
    return mask.dense() if ids.size(1) <= DENSE_TOKENS else mask
