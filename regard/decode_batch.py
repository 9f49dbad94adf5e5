"""The sequences that a model decodes together, one token each per step. They join and leave the batch at any step.

A row is a sequence, or a beam of one. A step turns the logits of all rows into the newest token of every row, the old
row that each new row continues, and events: a token of a greedy or sampled sequence, the hypotheses of a finished one.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from itertools import accumulate
from typing import NamedTuple

import numpy as np
from torch import Tensor

from regard.beams import FindCandidates, find_candidates
from regard.data.batches import Ints
from regard.decode_request import DecodeEvent, DecodeRequest
from regard.sequence_search import BeamSearch, Sampling


class Selection(NamedTuple):
    """How the rows of the caches change. None: not at all."""

    rows: Ints | None  # the old row that each row continues
    sources: Ints | None  # the old source of each source: one per row, but one for all beams of an input


class DecodeBatch:
    """All sequences in one batch: the greedy and sampled rows first, then those of beam search, by width."""

    def __init__(self, end: int, find_candidates: FindCandidates = find_candidates):
        self.end, self.find_candidates = end, find_candidates
        self.searches: dict[int, Sampling | BeamSearch] = {1: Sampling(end)}

    def __len__(self) -> int:
        return sum(map(len, self.searches.values()))

    @property
    def requests(self) -> list[DecodeRequest]:
        return [request for search in self.searches.values() for request in search.requests]

    def newest(self) -> list[int]:
        """The newest token of every row: the next input of the decoder."""
        return [token for search in self.searches.values() for token in search.newest()]

    def add(self, requests: Sequence[DecodeRequest]) -> Selection:
        """Add requests, each with one row of the caches, after those of the batch."""
        before = self.counts()
        rows, sources = len(self), sum(count for _, count in before)
        new: dict[int, list[int]] = {}
        for number, request in enumerate(requests):
            width = 1 if request.options.temperature > 0 else request.options.num_beams
            if width not in self.searches:
                self.searches[width] = BeamSearch(self.end, width, self.find_candidates)
                before.append((0, 0))
            self.searches[width].add(request)
            new.setdefault(width, []).append(number)
        old_rows, old_sources = offsets([count for count, _ in before]), offsets([count for _, count in before])
        parents: list[int] = []
        source_parents: list[int] = []
        for i, width in enumerate(self.searches):
            parents += range(old_rows[i], old_rows[i + 1])
            source_parents += range(old_sources[i], old_sources[i + 1])
            for number in new.get(width, ()):
                parents += [rows + number] * requests[number].rows
                source_parents += [sources + number] * (requests[number].rows if width == 1 else 1)
        return selection(parents, rows + len(requests), source_parents, sources + len(requests))

    def remove(self, requests: Collection[DecodeRequest]) -> Selection:
        """Drop requests, finished or not."""
        before = self.counts()
        return self.join(before, [search.remove(requests) for search in self.searches.values()])

    def advance(self, logits: Tensor) -> tuple[Selection, list[DecodeEvent]]:
        """Choose the next token of every row by its logits (R,V), which are overwritten."""
        events: list[DecodeEvent] = []
        before, kept, first = self.counts(), [], 0
        for search in self.searches.values():
            count = len(search)
            rows, sources, new = search.advance(logits[first : first + count]) if count else ([], [], [])
            kept.append((rows, sources))
            events += new
            first += count
        return self.join(before, kept), events

    def counts(self) -> list[tuple[int, int]]:
        """Rows and sources of every search."""
        return [(len(search), search.sources) for search in self.searches.values()]

    def join(self, before: list[tuple[int, int]], kept: list[tuple[list[int], list[int]]]) -> Selection:
        """The selections of all searches as one; searches without a request are dropped."""
        first_rows, first_sources = (offsets(counts) for counts in zip(*before, strict=True))
        rows = [first + row for first, (local, _) in zip(first_rows, kept, strict=False) for row in local]
        sources = [first + source for first, (_, local) in zip(first_sources, kept, strict=False) for source in local]
        self.searches = {width: search for width, search in self.searches.items() if width == 1 or len(search)}
        return selection(rows, first_rows[-1], sources, first_sources[-1])


def offsets(counts: Iterable[int]) -> list[int]:
    """The first index of each part, then their total."""
    return [0, *accumulate(counts)]


def selection(rows: list[int], old_rows: int, sources: list[int], old_sources: int) -> Selection:
    same_rows, same_sources = rows == [*range(old_rows)], sources == [*range(old_sources)]
    return Selection(
        None if same_rows else np.array(rows, np.int64), None if same_sources else np.array(sources, np.int64)
    )
