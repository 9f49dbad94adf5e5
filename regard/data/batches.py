"""Batches: examples of like length together, so that little is padding.

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

Ints = npt.NDArray[np.int64]
T = TypeVar("T")


class Ragged:
    """Many rows of ids, one after the other in one array."""

    def __init__(self, rows: Sequence[Sequence[int]]):
        self.lengths: Ints = np.fromiter((len(row) for row in rows), np.int64, len(rows))
        self.ends: Ints = self.lengths.cumsum()
        self.ids = np.fromiter((i for row in rows for i in row), np.int32, int(self.lengths.sum()))

    def __len__(self) -> int:
        return len(self.lengths)

    def __getitem__(self, row: int) -> npt.NDArray[np.int32]:
        return self.ids[self.ends[row] - self.lengths[row] : self.ends[row]]

    def pad(self, rows: Ints, pad: int) -> Tensor:
        """(B,T) ids; the lengths say what of it is real."""
        table = np.full((len(rows), int(self.lengths[rows].max())), pad, np.int64)
        for i, row in enumerate(rows):
            table[i, : self.lengths[row]] = self[row]
        return torch.from_numpy(table)


class Position(NamedTuple):
    """The next batch to train on."""

    epoch: int = 0
    batch: int = 0


START = Position()


class Examples(Protocol):
    """What can be learnt from: batches of row numbers, epoch by epoch."""

    units: int  # in an epoch, as the task counts them

    def epoch(self, budget: int, seed: int, epoch: int) -> list[Ints]: ...


class BucketedExamples:
    """Examples that go with others of like length."""

    lengths: Ints  # (N, columns)
    units: int

    def epoch(self, budget: int, seed: int, epoch: int) -> list[Ints]:
        return bucket_by_length(self.lengths, budget, seed, epoch)


def bucket_by_length(lengths: Ints, budget: int, seed: int, epoch: int) -> list[Ints]:
    """Every example exactly once, in batches whose rows times longest length stay within `budget` tokens.

    `lengths` is (N, columns); the longest column of a row counts. Equal lengths are shuffled among each other, then the
    batches, so the number of batches is the same in every epoch.
    """
    draw = np.random.default_rng([seed, epoch])
    order = draw.permutation(len(lengths))
    order = order[np.lexsort((*lengths[order].T, lengths[order].max(1)))]
    batches = split_by_budget(lengths[order].max(1), budget)
    return [order[a:b] for a, b in (batches[i] for i in draw.permutation(len(batches)))]


def split_by_budget(lengths: Ints, budget: int) -> list[tuple[int, int]]:
    """Neighbours into batches: as many as fit the budget, at least one."""
    batches, start, longest = [], 0, 0
    for i, length in enumerate(lengths.tolist()):
        if i > start and (i - start + 1) * max(longest, length) > budget:
            batches.append((start, i))
            start, longest = i, 0
        longest = max(longest, length)
    return [*batches, (start, len(lengths))] if len(lengths) else []


def iterate_batches(
    examples: Examples, budget: int, seed: int, start: Position = START
) -> Iterator[tuple[Position, Ints]]:
    """The batches from `start` on, epoch after epoch, each with the position that follows it."""
    epoch, skip = start
    while True:
        batches = examples.epoch(budget, seed, epoch)
        if not batches:
            raise ValueError("there are no examples to learn from")
        for number in range(skip, len(batches)):
            after = Position(epoch, number + 1) if number + 1 < len(batches) else Position(epoch + 1, 0)
            yield after, batches[number]
        epoch, skip = epoch + 1, 0


def length_mask(lengths: Ints, longest: int) -> Tensor:
    """(B,T), True where there is a token."""
    return torch.arange(longest) < torch.from_numpy(lengths)[:, None]


def padding_mask(lengths: Ints, longest: int) -> Tensor:
    """(B,1,1,S). It comes from lengths, not from ids: a text may hold the padding's id too."""
    return length_mask(lengths, longest)[:, None, None]


def batched(items: Iterable[T], size: int) -> Iterator[list[T]]:
    """So many at a time: the input may be endless."""
    source = iter(items)
    while some := list(islice(source, size)):
        yield some


def to_device(batch: Any, device: torch.device) -> Any:
    """A batch is a named tuple of tensors, made on the CPU; what it has no use for is None."""
    if device.type == "cpu":
        return batch
    return type(batch)(*(None if t is None else t.to(device, non_blocking=True) for t in batch))
