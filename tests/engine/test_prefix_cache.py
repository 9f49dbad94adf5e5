"""The prefix cache against a model that keeps whole prefixes in a dict and drops those that were used longest ago."""

from __future__ import annotations

from itertools import count

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("regard.engine.kernels.llvm", exc_type=ImportError)  # Numba, and a CPU that the engine supports

from regard.engine.prefix_cache import BLOCK, PrefixCache

Tokens = tuple[int, ...]


class PrefixModel:
    """Known prefixes of whole blocks, their last slots, and when they were used: a block after those that follow it."""

    def __init__(self, max_blocks: int):
        self.max_blocks = max_blocks
        self.slots: dict[Tokens, list[int]] = {}
        self.used: dict[Tokens, int] = {}
        self.clock = count()

    def known(self, tokens: Tokens) -> list[Tokens]:
        prefixes = [tokens[:end] for end in range(BLOCK, len(tokens) + 1, BLOCK)]
        while prefixes and any(prefix not in self.slots for prefix in prefixes):
            prefixes.pop()
        for prefix in reversed(prefixes):
            self.used[prefix] = next(self.clock)
        return prefixes

    def match(self, tokens: Tokens) -> list[int]:
        return [slot for prefix in self.known(tokens) for slot in self.slots[prefix]]

    def insert(self, tokens: Tokens, slots: list[int]) -> None:
        for end in range(BLOCK, len(tokens) + 1, BLOCK):
            self.slots.setdefault(tokens[:end], slots[end - BLOCK : end])
        self.known(tokens)
        while len(self.slots) > self.max_blocks:
            oldest = min(self.slots, key=self.used.__getitem__)
            del self.slots[oldest]


def blocks(names: str, tail: int = 0) -> Tokens:
    """A block for each letter, and a part of one more. Blocks differ in their last token only."""
    return tuple(token for name in names for token in [0] * (BLOCK - 1) + [ord(name)]) + (0,) * tail


def reachable(cache: PrefixCache) -> int:
    """Blocks that a walk from the root finds."""
    parents, found = [0], 0
    while parents:
        parent = parents.pop()
        children = [block.number for (above, _), block in cache.blocks.items() if above == parent]
        found += len(children)
        parents += children
    return found


TEXTS = st.builds(blocks, st.text("ab", max_size=4), st.integers(0, BLOCK - 1))


@given(
    calls=st.lists(st.tuples(st.sampled_from(["insert", "insert", "match"]), TEXTS), max_size=40),
    max_blocks=st.integers(0, 8),
    rest=st.integers(0, BLOCK - 1),
)
@settings(max_examples=200)
def test_the_cache_equals_its_model(calls: list[tuple[str, Tokens]], max_blocks: int, rest: int) -> None:
    cache, model, slots = PrefixCache(max_blocks * BLOCK + rest), PrefixModel(max_blocks), count()
    for name, tokens in calls:
        assert cache.match(tokens).tolist() == model.match(tokens)
        if name == "insert":
            new = [next(slots) for _ in tokens]
            cache.insert([*tokens], np.array(new + [-1] * 5, np.int32))  # a row of the block table is longer
            model.insert(tokens, new)
        assert len(cache) == BLOCK * len(model.slots) <= max_blocks * BLOCK
        assert sorted(slot for block in cache.slots() for slot in block.tolist()) == sorted(
            slot for block in model.slots.values() for slot in block
        )
        assert reachable(cache) == len(cache.blocks), "a block whose parent was dropped"


def test_only_whole_blocks_with_the_same_beginning_are_shared() -> None:
    cache = PrefixCache(1000)
    cache.insert(blocks("ab", tail=5), np.arange(100, dtype=np.int32))
    assert cache.match(blocks("ab", tail=9)).tolist() == [*range(2 * BLOCK)]
    assert cache.match(blocks("a", tail=9)).tolist() == [*range(BLOCK)]
    assert cache.match(blocks("ab")[:-1]).tolist() == [*range(BLOCK)]
    assert cache.match(blocks("b")).tolist() == []
    assert cache.match(blocks("bb")).tolist() == []
    assert cache.match(()).tolist() == []
    assert cache.match(()).dtype == np.int32


def test_a_block_keeps_its_own_copy_of_the_slots() -> None:
    """The block table changes when rows move."""
    cache, row = PrefixCache(1000), np.arange(BLOCK, dtype=np.int32)
    cache.insert(blocks("a"), row)
    row[:] = -1
    assert cache.match(blocks("a")).tolist() == [*range(BLOCK)]


def test_the_first_slots_of_a_prefix_stay() -> None:
    """Rows may use them already; a second prompt that computed the same block adds nothing."""
    cache = PrefixCache(1000)
    cache.insert(blocks("a"), np.arange(BLOCK, dtype=np.int32))
    cache.insert(blocks("ab"), np.arange(100, 100 + 2 * BLOCK, dtype=np.int32))
    assert cache.match(blocks("ab")).tolist() == [*range(BLOCK), *range(100 + BLOCK, 100 + 2 * BLOCK)]
