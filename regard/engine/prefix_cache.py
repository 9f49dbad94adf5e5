"""The prefix cache: a prompt that begins like an earlier one shares its slots instead of computing them again.

tokens  [a b c d] [e f g h] i j        blocks of BLOCK tokens, each found by its parent block and its own tokens
        block 7   block 9              prompts with the same beginning share blocks; a partial block is not shared
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from regard.engine.paged_cache import Slots

BLOCK = 16


class PrefixBlock(NamedTuple):
    number: int
    slots: Slots


class PrefixCache:
    """At most `max_slots` slots; the blocks that were not used for the longest time are dropped first."""

    def __init__(self, max_slots: int):
        self.max_blocks = max_slots // BLOCK
        self.blocks: dict[tuple[int, tuple[int, ...]], PrefixBlock] = {}  # in the order of their last use
        self.created = 0

    def __len__(self) -> int:
        """Slots that the cache holds."""
        return BLOCK * len(self.blocks)

    def slots(self) -> list[Slots]:
        return [block.slots for block in self.blocks.values()]

    def match(self, tokens: Sequence[int]) -> Slots:
        """The slots of the longest known beginning of `tokens`."""
        keys = self.walk(tokens)
        return np.concatenate([np.empty(0, np.int32), *(self.blocks[key].slots for key in keys)])

    def insert(self, tokens: Sequence[int], slots: Slots) -> None:
        """Remember the whole blocks of a prompt, whose keys and values are in these slots."""
        known = self.walk(tokens)
        parent = self.blocks[known[-1]].number if known else 0
        for start in range(BLOCK * len(known), len(tokens) - BLOCK + 1, BLOCK):
            key = (parent, tuple(tokens[start : start + BLOCK]))
            self.created = parent = self.created + 1
            self.blocks[key] = PrefixBlock(parent, slots[start : start + BLOCK].copy())
        self.walk(tokens)
        while len(self.blocks) > self.max_blocks:
            del self.blocks[next(iter(self.blocks))]

    def walk(self, tokens: Sequence[int]) -> list[tuple[int, tuple[int, ...]]]:
        """The keys of the known blocks at the beginning of `tokens`. The last one counts as used first: so a block is
        never dropped before those that follow it."""
        keys: list[tuple[int, tuple[int, ...]]] = []
        parent = 0
        for start in range(0, len(tokens) - BLOCK + 1, BLOCK):
            key = (parent, tuple(tokens[start : start + BLOCK]))
            if key not in self.blocks:
                break
            keys.append(key)
            parent = self.blocks[key].number
        for key in reversed(keys):
            self.blocks[key] = self.blocks.pop(key)
        return keys
