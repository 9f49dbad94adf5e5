"""The batches of an evaluation, divided among the ranks of a distributed run; all of them where there is only one.

    with shared_among(ranks):
        scores = task.score(model, rows)        every rank computes its share of the batches, and scores all results

The batches are those of one process, so the scores have the same bits. A task that does not use `map_batches` computes
everything on every rank.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Protocol, TypeVar

B = TypeVar("B")
R = TypeVar("R")


class Sharing(Protocol):
    """The ranks, as training/ranks.py implements them."""

    @property
    def size(self) -> int: ...

    def own(self, number: int) -> bool: ...

    def agree(self, function: Callable[[], R]) -> R: ...

    def gather(self, item: R) -> list[R]: ...


SHARING: ContextVar[Sharing | None] = ContextVar("sharing", default=None)


@contextmanager
def shared_among(ranks: Sharing) -> Iterator[None]:
    """Within the context `map_batches` divides its batches among the ranks, all of which must call it alike."""
    token = SHARING.set(ranks if ranks.size > 1 else None)
    try:
        yield
    finally:
        SHARING.reset(token)


def map_batches(function: Callable[[B], R], batches: Iterable[B]) -> Iterator[R]:
    """The result of every batch, in order."""
    ranks = SHARING.get()
    if ranks is None:
        return map(function, batches)
    numbered = [(i, batch) for i, batch in enumerate(batches) if ranks.own(i)]
    shares = ranks.gather(ranks.agree(lambda: [(i, function(batch)) for i, batch in numbered]))
    return (result for _, result in sorted((item for share in shares for item in share), key=lambda item: item[0]))


def map_items(function: Callable[[Sequence[B], int], Iterable[R]], items: Sequence[B]) -> list[R]:
    """The results of all items: each rank calls `function` for consecutive items, with the index of the first."""
    ranks = SHARING.get()
    size = -(-len(items) // (ranks.size if ranks else 1)) or 1
    parts = map_batches(lambda start: [*function(items[start : start + size], start)], range(0, len(items), size))
    return [result for part in parts for result in part]
