"""Documents packed into rows: the mask of their tokens, in memory that is linear in the length of a row.

    visible[t, s] = (document[t] = document[s])  and  |t - s| ≤ window, if there is one

A mask (B,1,T,T) says the same in T² booleans for each row. `chunks` and `blocks` divide a row so that no T x T tensor
is made: whole documents side by side (Krell et al. 2021), and blocks with their neighbours (Beltagy et al. 2020).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import torch
from torch import Tensor

DENSE_TOKENS = 256  # rows up to this length are faster with a mask (B,1,T,T); benchmarks/packed_documents.py
CHUNK_TOKENS = 128  # short documents share a chunk of at most this length; measured there as well


class Chunk(NamedTuple):
    """Consecutive whole documents of a row."""

    tokens: int
    visible: Tensor | None  # (tokens,tokens); None for a single document


@dataclass(frozen=True, eq=False)
class DocumentMask:
    """Which tokens of packed rows see each other: those of one document."""

    document: Tensor  # (B,T) the number of each token's document; it changes where a document begins
    window: int | None = None  # the largest distance of two tokens that see each other

    @cached_property
    def starts(self) -> Tensor:
        """(B,T) the position in the row at which the document of each token begins."""
        position = torch.arange(self.document.size(1), device=self.document.device)
        starts = position.repeat(len(self.document), 1)
        starts[:, 1:] *= self.document[:, 1:] != self.document[:, :-1]
        return starts.cummax(1).values

    @cached_property
    def offsets(self) -> Tensor:
        """(B,T) the position of each token in its document."""
        return torch.arange(self.document.size(1), device=self.document.device) - self.starts

    @cached_property
    def lengths(self) -> list[list[int]]:
        """Tokens of the documents of each row."""
        return [row.unique_consecutive(return_counts=True)[1].tolist() for row in self.document]

    @cached_property
    def chunks(self) -> list[list[Chunk]]:
        """The chunks of each row. Rows share none, so a row attends alike in any batch."""
        device = self.document.device
        return [
            [Chunk(sum(lengths), same_document(lengths, device)) for lengths in group_documents(row)]
            for row in self.lengths
        ]

    def dense(self) -> Tensor:
        """The same mask as a tensor (B,1,T,T)."""
        visible = self.document[:, :, None] == self.document[:, None]
        if self.window is not None:
            position = torch.arange(self.document.size(1), device=self.document.device)
            visible &= (position[:, None] - position).abs() <= self.window
        return visible[:, None]

    def within(self, window: int) -> DocumentMask:
        return DocumentMask(self.document, window)

    def to(self, device: torch.device, non_blocking: bool = False) -> DocumentMask:
        return DocumentMask(self.document.to(device, non_blocking=non_blocking), self.window)

    def __getitem__(self, rows: slice) -> DocumentMask:
        return DocumentMask(self.document[rows], self.window)


Mask = Tensor | DocumentMask  # a tensor is boolean, True = visible, and broadcasts to (B,H,T,S)


def as_tensor(mask: Mask | None) -> Tensor | None:
    return mask.dense() if isinstance(mask, DocumentMask) else mask


def group_documents(lengths: Sequence[int]) -> Iterator[list[int]]:
    """Neighbours that fit into a chunk together; a longer document is a group of its own."""
    group: list[int] = []
    for length in lengths:
        if group and sum(group) + length > CHUNK_TOKENS:
            yield group
            group = []
        group.append(length)
    yield group


def same_document(lengths: Sequence[int], device: torch.device) -> Tensor | None:
    """(T,T), True where two tokens share one of the documents; None if there is only one."""
    if len(lengths) == 1:
        return None
    number = torch.arange(len(lengths), device=device).repeat_interleave(torch.tensor(lengths, device=device))
    return number[:, None] == number
