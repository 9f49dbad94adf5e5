"""What the engine remembers: each token's keys and values lie in a slot of their own, and each row has a list of slots.

A beam that forks copies a line of slot numbers, and no keys or values. Sources are slots of a second memory, and the
beams of a sentence share their list.
"""

from __future__ import annotations

import torch
from torch import Tensor

from regard.parts.cache import Cache
from regard.speed.room import alone


class Slots:
    """Keys and values of all layers, (layers, 2, G, slots, E), in memory that doubles when it is full."""

    def __init__(self, layers: int, heads: int, head_dim: int, dtype: torch.dtype):
        self.store = alone((layers, 2, heads, 64, head_dim), dtype)
        self.used = 0

    @property
    def count(self) -> int:
        return self.store.size(3)

    def take(self, count: int) -> int:
        """Room for so many tokens more: the number of the first."""
        first, self.used = self.used, self.used + count
        if self.used > self.count:
            layers, _, heads, slots, head_dim = self.store.shape
            bigger = alone((layers, 2, heads, max(self.used, 2 * slots), head_dim), self.store.dtype)
            bigger[:, :, :, :first] = self.store[:, :, :, :first]
            self.store = bigger
        return first


class Memory(Cache):
    """The slots of every row (B,S), the first `length` of them in use; and those of every source."""

    def __init__(self, slots: Slots, sources: Slots | None = None):
        super().__init__()
        self.slots, self.sources = slots, sources
        self.table = torch.empty(0, 0, dtype=torch.int32)
        self.source_table = torch.empty(0, 0, dtype=torch.int32)
        self.source_lengths = torch.empty(0, dtype=torch.int32)

    def grow(self, rows: int, tokens: int) -> Tensor:
        """Slots of the new tokens, (B,T), at the end of every line."""
        new = self.slots.take(rows * tokens) + torch.arange(rows * tokens, dtype=torch.int32).view(rows, tokens)
        end, room = self.length + tokens, self.table.size(1)
        if end > room:
            bigger = torch.zeros(rows, max(end, 2 * room, 16), dtype=torch.int32)
            if self.length:
                bigger[:, : self.length] = self.table[:, : self.length]
            self.table = bigger
        self.table[:, self.length : end] = new
        self.length = end
        return new

    def select(self, rows: Tensor) -> None:
        if self.length:  # else there is no line yet
            self.table = self.table[rows]

    def select_sources(self, sources: Tensor) -> None:
        if self.sources is not None:
            self.source_table, self.source_lengths = self.source_table[sources], self.source_lengths[sources]
