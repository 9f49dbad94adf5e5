"""Tokenising a stream of documents: batches of chunks, encoded by the threads of the tokenizers library.

    read batch i+2        encode batch i+1 (all cores)        write batch i

Processes are not faster than these threads, and each costs the memory of an interpreter (benchmarks/large_corpus.py).
TOKENIZERS_PARALLELISM=false and RAYON_NUM_THREADS limit them. Their number does not change a token.
"""

from __future__ import annotations

import os
import sys
from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import islice
from pathlib import Path
from typing import NamedTuple

import numpy as np

from regard.data.batches import Ints
from regard.data.cache_lock import CacheLock
from regard.data.document_files import TextChunk
from regard.data.documents import DocumentStream
from regard.data.progress import progress
from regard.data.token_shards import Place, ShardFolder, ShardWriter, Tokens
from regard.data.tokenizer import Tokenizer

BATCH_CHARACTERS = max(8, os.cpu_count() or 1) << 18  # that are encoded at once, approximately: a chunk for every core
BATCHES_AHEAD = 2  # that are read and encoded before they are written


class EncodedBatch(NamedTuple):
    ids: Tokens
    lengths: Ints  # tokens of each chunk
    sizes: Ints  # bytes of the text of each chunk
    characters: int


def token_dtype(tokenizer: Tokenizer) -> type[np.uint16] | type[np.uint32]:
    return np.uint16 if len(tokenizer) <= 1 << 16 else np.uint32


def encode_stream(texts: Iterable[TextChunk], tokenizer: Tokenizer, skip: int = 0) -> Iterator[EncodedBatch]:
    """The tokens of one batch of chunks after the other, without the first `skip` chunks. Without a template, </s>
    opens the corpus and ends each document; a template with <s> adds it once per document."""
    has_bos = tokenizer.template_ids == [tokenizer.bos_token_id] != [tokenizer.eos_token_id]
    add_eos = has_bos or tokenizer.bos_token_id == tokenizer.eos_token_id
    is_first, is_inside = not skip, False
    chunks = iter(texts)
    for chunk in islice(chunks, skip):
        is_inside = not chunk.is_last
    for batch, rows in encode_ahead(chunk_batches(chunks), tokenizer):
        ids: list[int] = []
        ends: list[int] = []
        for row, chunk in zip(rows, batch, strict=True):
            if is_first and add_eos and not has_bos:
                ids.append(tokenizer.eos_token_id)
            ids += row[1:] if has_bos and is_inside else row
            if add_eos and chunk.is_last:
                ids.append(tokenizer.eos_token_id)
            is_first, is_inside = False, not chunk.is_last
            ends.append(len(ids))
        sizes = np.array([len(chunk.text.encode()) for chunk in batch])
        lengths = np.diff(np.array(ends), prepend=0)
        characters = sum(len(chunk.text) for chunk in batch)
        yield EncodedBatch(np.array(ids, token_dtype(tokenizer)), lengths, sizes, characters)


def encode_ahead(
    batches: Iterator[list[TextChunk]], tokenizer: Tokenizer
) -> Iterator[tuple[list[TextChunk], list[list[int]]]]:
    """Each batch with its tokens, while the next ones are encoded in the background."""
    queue: deque[tuple[list[TextChunk], Future[list[list[int]]]]] = deque()
    executor = ThreadPoolExecutor(1)
    try:
        while True:
            for batch in islice(batches, BATCHES_AHEAD - len(queue)):
                queue.append((batch, executor.submit(tokenizer.encode, [chunk.text for chunk in batch])))
            if not queue:
                return
            batch, future = queue.popleft()
            yield batch, future.result()
    finally:
        executor.shutdown(cancel_futures=True)


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


def write_shards(texts: DocumentStream, tokenizer: Tokenizer, folder: Path) -> ShardFolder:
    """The shards of a text, by one of the processes that need them; the others wait. They are complete, or this
    continues after the last complete shard."""
    files = ShardFolder(folder, token_dtype(tokenizer))
    folder.mkdir(parents=True, exist_ok=True)
    lock = CacheLock(folder / "lock")

    def report_wait(owner: str) -> None:
        print(f"waiting for {owner}, which tokenises {texts.name}", file=sys.stderr, flush=True)

    if lock.acquire(lambda: files.is_complete, report_wait):
        try:
            if not files.is_complete:
                fill_shards(texts, tokenizer, ShardWriter(files, tokenizer.bos_token_id), lock)
        finally:
            lock.release()
    return files


def fill_shards(texts: DocumentStream, tokenizer: Tokenizer, writer: ShardWriter, lock: CacheLock) -> None:
    done = characters_before(texts, writer.place, lock) if writer.shards else 0
    try:
        with progress(f"tokenising {texts.name}", texts.characters, done) as advance:
            for batch in encode_stream(texts, tokenizer, writer.place.chunks):
                writer.add(batch.ids, batch.lengths, batch.sizes)
                advance(batch.characters)
                lock.renew()
            writer.finish(texts.name)
    finally:
        writer.close()


def characters_before(texts: DocumentStream, place: Place, lock: CacheLock) -> int:
    lock.renew()
    return sum(len(chunk.text) for chunk in islice(texts, place.chunks))
