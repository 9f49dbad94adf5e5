"""Continuous batching (Orca, Yu et al. 2022): requests join and leave a running batch at every step of the engine.

    rows of a step      [ newest token of every sequence | chunk of a prompt | chunk of the next prompt ]

A prompt is prefilled in chunks beside the sequences that decode (Sarathi, Agrawal et al. 2023), so that a long one does
not delay them. Its last token is the first that decodes. The sources of a translator are encoded when it joins.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from regard.data.batches import Ints
from regard.decode_batch import DecodeBatch
from regard.decode_request import BatchLimits, DecodeEvent, DecodeRequest
from regard.engine.engine_body import EngineSeq2Seq
from regard.engine.engine_model import EngineModel
from regard.engine.paged_cache import PagedCache
from regard.engine.prefix_cache import PrefixCache
from regard.tasks.decoding import GeneratingTask, collate_sources

ENCODE_TOKENS = 2048  # source tokens that one step encodes, with padding


class ContinuousBatch:
    """Decodes requests on a model that runs in the engine."""

    def __init__(self, model: EngineModel, task: GeneratingTask, limits: BatchLimits = BatchLimits()):  # noqa: B008
        self.model, self.task, self.limits = model, task, limits
        self.waiting: list[DecodeRequest] = []
        self.batch = DecodeBatch(task.end, model.find_candidates)  # its rows are the first rows of the cache
        self.prefilling: list[DecodeRequest] = []  # the following rows, one each
        self.prefixes = PrefixCache(limits.max_batch_tokens // 2)
        self.cache: PagedCache = model.new_cache()
        self.cache.shared_slots = self.prefixes.slots

    def __len__(self) -> int:
        return len(self.waiting) + len(self.prefilling) + len(self.batch.requests)

    @property
    def slots_in_use(self) -> int:
        """Slots of running sequences; one that several share counts for each."""
        return int(self.cache.seq_lens.sum())

    def has_room(self, requests: Sequence[DecodeRequest]) -> bool:
        others = [*self.batch.requests, *self.prefilling, *self.waiting]
        together = [*others, *requests]
        tokens, rows = sum(map(tokens_of, together)), sum(request.rows for request in together)
        return not others or (tokens <= self.limits.max_batch_tokens and rows <= self.limits.max_batch_size)

    def add(self, request: DecodeRequest) -> None:
        self.waiting.append(request)

    def cancel(self, request: DecodeRequest) -> None:
        """Drop a request and free its rows; no event follows."""
        if request in self.waiting:
            self.waiting.remove(request)
        decoding = len(self.batch)
        kept = self.batch.remove([request]).rows
        kept = np.arange(decoding) if kept is None else kept
        prompts = [i for i, other in enumerate(self.prefilling) if other is not request]
        self.prefilling = [self.prefilling[i] for i in prompts]
        self.select(np.concatenate((kept, np.array(prompts, np.int64) + decoding)))

    @torch.inference_mode()
    def step(self) -> list[DecodeEvent]:
        """Admit requests, then run one step of the model."""
        self.admit()
        decoding, chunks = len(self.batch), self.next_chunks()
        if not decoding and not chunks:
            return []
        ids = self.batch.newest()
        for request, (start, count) in zip(self.prefilling, chunks, strict=False):
            ids += request.prompt[start : start + count]
        counts = np.zeros(decoding + len(self.prefilling), np.int64)
        counts[:decoding], counts[decoding : decoding + len(chunks)] = 1, [count for _, count in chunks]
        logits = self.model.mixed_step(self.cache, torch.tensor(ids), counts, decoding)
        self.task.constrain(logits)
        selection, events = self.batch.advance(logits)
        kept = np.arange(decoding) if selection.rows is None else selection.rows
        self.select(np.concatenate((kept, np.arange(decoding, decoding + len(self.prefilling)))))
        self.join(chunks)
        return events

    def select(self, rows: Ints) -> None:
        if len(rows) != len(self.cache.seq_lens) or (rows != np.arange(len(rows))).any():
            self.cache.select(torch.from_numpy(rows))

    def admit(self) -> None:
        """Let waiting requests join, in order, as long as the KV cache has room for their longest answers."""
        running = [*self.batch.requests, *self.prefilling]
        tokens, rows = sum(map(tokens_of, running)), sum(request.rows for request in running)
        new: list[DecodeRequest] = []
        longest = 0
        while self.waiting:
            request = self.waiting[0]
            longest = max(longest, request.source.length if request.source else 0)
            tokens, rows = tokens + tokens_of(request), rows + request.rows
            full = tokens > self.limits.max_batch_tokens or rows > self.limits.max_batch_size
            if (full and (running or new)) or (new and longest * (len(new) + 1) > ENCODE_TOKENS):
                break
            new.append(self.waiting.pop(0))
        if new and isinstance(self.model.body, EngineSeq2Seq):
            inputs = collate_sources(self.task.preprocessor, new)
            self.model.body.add_sources(self.cache, inputs.x, inputs.mask)
        elif new:
            self.cache.add_rows(len(new))
        self.prefilling += new
        self.join([])

    def next_chunks(self) -> list[tuple[int, int]]:
        """The first position and the number of tokens that the next prompts prefill, in order."""
        chunks, budget, first = [], self.limits.prefill_tokens, len(self.batch)
        for row, request in enumerate(self.prefilling, first):
            if budget == 0:
                break
            if not self.cache.seq_lens[row]:
                self.share_prefix(row, request)
            start = int(self.cache.seq_lens[row])
            chunks.append((start, min(budget, len(request.prompt) - 1 - start)))
            budget -= chunks[-1][1]
        return chunks

    def share_prefix(self, row: int, request: DecodeRequest) -> None:
        slots = self.prefixes.match(request.prompt[:-1])
        self.cache.reserve(len(slots))
        self.cache.block_table[row, : len(slots)], self.cache.seq_lens[row] = slots, len(slots)

    def join(self, chunks: Sequence[tuple[int, int]]) -> None:
        """Prompts whose last chunk was computed begin to decode."""
        first = len(self.batch)
        for row, (start, count) in enumerate(chunks, first):
            prompt = self.prefilling[row - first].prompt
            self.prefixes.insert(prompt[: start + count], self.cache.block_table[row])
        ready = 0
        for row, request in enumerate(self.prefilling, first):
            if self.cache.seq_lens[row] < len(request.prompt) - 1:
                break
            ready += 1
        if not ready:
            return
        requests, self.prefilling = self.prefilling[:ready], self.prefilling[ready:]
        rows = self.batch.add(requests).rows
        rows = np.arange(first + ready) if rows is None else rows
        self.select(np.concatenate((rows, np.arange(first + ready, first + ready + len(self.prefilling)))))


def tokens_of(request: DecodeRequest) -> int:
    """Slots that a request needs at most: its beams share the prompt."""
    return len(request.prompt) + request.rows * request.limit
