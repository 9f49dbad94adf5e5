"""Batches of examples of similar length, to reduce padding.

The order is a pure function of (seed, epoch): a position in the data is two integers, epoch and batch.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Any, NamedTuple, Protocol, TypeVar

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from regard.parts.document_mask import DocumentMask

Ints = npt.NDArray[np.int64]
T = TypeVar("T")


class Ragged:
    """Rows of ids of different lengths, concatenated in one array."""

    def __init__(self, rows: Sequence[Sequence[int]] | Sequence[npt.NDArray[np.int32]]):
        self.lengths: Ints = np.fromiter((len(row) for row in rows), np.int64, len(rows))
        self.ends: Ints = self.lengths.cumsum()
        self.ids = np.fromiter((i for row in rows for i in row), np.int32, int(self.lengths.sum()))

    def __len__(self) -> int:
        return len(self.lengths)

    def __getitem__(self, row: int) -> npt.NDArray[np.int32]:
        return self.ids[self.ends[row] - self.lengths[row] : self.ends[row]]

    def pad(self, rows: Ints, value: int) -> Tensor:
        """(B,T) ids, padded on the right with `value`."""
        table = np.full((len(rows), int(self.lengths[rows].max())), value, np.int64)
        for i, row in enumerate(rows):
            table[i, : self.lengths[row]] = self[row]
        return torch.from_numpy(table)


class Position(NamedTuple):
    """The position of the next batch in the data."""

    epoch: int = 0
    batch: int = 0


START = Position()


class Examples(Protocol):
    """Training examples: batches of row numbers, epoch by epoch."""

    units: int  # per epoch, in the unit of the task: tokens, sentences ...

    def epoch(self, budget: int, seed: int, epoch: int) -> Sequence[Ints]: ...

    def sequential(self) -> Ints:
        """The row numbers of all examples in order, without randomness."""
        ...


class BucketedExamples:
    """Examples that are batched with others of similar length."""

    lengths: Ints  # (N, columns)
    units: int
    bucketed: bool = True  # False: with random others, if the target depends on the length

    def epoch(self, budget: int, seed: int, epoch: int) -> list[Ints]:
        if self.bucketed:
            return bucket_by_length(self.lengths, budget, seed, epoch)
        order = np.random.default_rng([seed, epoch]).permutation(len(self.lengths))
        return [order[a:b] for a, b in split_by_budget(self.lengths[order].max(1), budget)]

    def sequential(self) -> Ints:
        return np.arange(len(self.lengths))


def bucket_by_length(lengths: Ints, budget: int, seed: int, epoch: int) -> list[Ints]:
    """Every example exactly once, in batches with rows · max_length ≤ `budget` tokens.

    `lengths` is (N, columns); the longest column of a row counts. Examples of equal length are shuffled, then the
    batches, so every epoch has the same number of batches.
    """
    rng = np.random.default_rng([seed, epoch])
    order = rng.permutation(len(lengths))
    order = order[np.lexsort((*lengths[order].T, lengths[order].max(1)))]
    batches = split_by_budget(lengths[order].max(1), budget)
    return [order[a:b] for a, b in (batches[i] for i in rng.permutation(len(batches)))]


def split_by_budget(lengths: Ints, budget: int) -> list[tuple[int, int]]:
    """Ranges of consecutive rows: as many rows as fit the budget, at least one."""
    batches, start, max_length = [], 0, 0
    for i, length in enumerate(lengths.tolist()):
        if i > start and (i - start + 1) * max(max_length, length) > budget:
            batches.append((start, i))
            start, max_length = i, 0
        max_length = max(max_length, length)
    return [*batches, (start, len(lengths))] if len(lengths) else []


def iterate_batches(
    examples: Examples, budget: int, seed: int, start: Position = START
) -> Iterator[tuple[Position, Ints]]:
    """The batches from `start` on, epoch after epoch, each with the position after it."""
    epoch, skip = start
    while True:
        batches = examples.epoch(budget, seed, epoch)
        if not batches:
            raise ValueError("there are no examples to train on")
        for number in range(skip, len(batches)):
            next_position = Position(epoch, number + 1) if number + 1 < len(batches) else Position(epoch + 1, 0)
            yield next_position, batches[number]
        epoch, skip = epoch + 1, 0


def length_mask(lengths: Ints, max_length: int) -> Tensor:
    """(B,T), True at tokens, False at padding."""
    return torch.arange(max_length) < torch.from_numpy(lengths)[:, None]


def padding_mask(lengths: Ints, max_length: int) -> Tensor:
    """(B,1,1,S), from lengths, not from ids: a text may contain the id of the padding."""
    return length_mask(lengths, max_length)[:, None, None]


def batched(items: Iterable[T], size: int) -> Iterator[list[T]]:
    """Lists of `size` items; the input may be infinite."""
    iterator = iter(items)
    while batch := list(islice(iterator, size)):
        yield batch


def to_device(batch: Any, device: torch.device) -> Any:
    """Move a batch, a named tuple of tensors, masks, named tuples or None, from the CPU to `device`."""
    if batch is None or device.type == "cpu":
        return batch
    if isinstance(batch, Tensor | DocumentMask):
        return batch.to(device, non_blocking=True)
    return type(batch)(*(to_device(part, device) for part in batch))
