"""What the engine remembers: each token's keys and values lie in a slot of their own, and each row has a list of slots.

A beam that forks copies a line of slot numbers, and no keys or values. Sources are slots of a second memory, and the
beams of a sentence share their list.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from regard.engine.arena import alone
from regard.engine.bytecode import TOLD
from regard.engine.kernels.llvm import LANES
from regard.engine.kernels.prefill_attention import LONGEST, crowds_of, room_for
from regard.parts.cache import Cache


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


class Told:
    """What the kernels have to know: numbers, and addresses of what is held here."""

    def __init__(self, **told: Any):
        self.room = max(told.pop("room0", 0), told.pop("room1", 0))
        self.held = told
        values = (told.get(name, 0) for name in TOLD)
        self.fields = np.array([v.data_ptr() if isinstance(v, Tensor) else v for v in values], np.int64)


class Memory(Cache):
    """The slots of every row (B,S), the first `length` of them in use; and those of every source."""

    def __init__(self, slots: Slots, sources: Slots | None = None):
        super().__init__()
        self.slots, self.sources = slots, sources
        self.table = np.empty((0, 0), np.int32)
        self.source_table = torch.empty(0, 0, dtype=torch.int32)
        self.source_lengths = torch.empty(0, dtype=torch.int32)
        self.told: Told | None = None  # of the last step, while there may be another like it

    def grow(self, rows: int, tokens: int) -> Tensor:
        """Slots of the new tokens, (B,T), at the end of every line."""
        new = np.arange(first := self.slots.take(rows * tokens), first + rows * tokens, dtype=np.int32)
        end, room = self.length + tokens, self.table.shape[1]
        if end > room:
            bigger = np.zeros((rows, max(end, 2 * room, 16)), np.int32)
            if self.length:
                bigger[:, : self.length] = self.table[:, : self.length]
            self.table = bigger
        self.table[:, self.length : end] = new.reshape(rows, tokens)
        self.length, self.told = end, None
        return torch.from_numpy(new)

    def again(self, rows: int) -> Told | None:
        """What was told of the last step, made true of another one; unless there is no room for it."""
        slots, told, (lines, room) = self.slots, self.told, self.table.shape
        if told is None or rows != lines or self.length == room or slots.used + rows > slots.count:
            return None
        told.fields[:2] = slots.used, self.length
        slots.used, self.length = slots.used + rows, self.length + 1
        return told

    def select(self, rows: Tensor) -> None:
        if not self.length:
            return  # there is no line yet
        lines = self.table[rows.numpy()]
        if len(lines) == len(self.table):
            self.table[:] = lines
        else:
            self.table, self.told = lines, None

    def select_sources(self, sources: Tensor) -> None:
        self.told = None
        if self.sources is not None:
            self.source_table, self.source_lengths = self.source_table[sources], self.source_lengths[sources]


def longer(memory: Memory, rows: int, tokens: int) -> Told:
    """What is to know of a memory in which every row has new tokens."""
    own, start = memory.grow(rows, tokens), memory.length - tokens
    places = torch.arange(start, start + tokens, dtype=torch.int32).repeat(rows)
    lines = torch.arange(rows, dtype=torch.int32).repeat_interleave(tokens)
    told = seeing(0, memory.slots, torch.from_numpy(memory.table), lines, places + 1, tokens > 1)
    if memory.sources is not None:
        shared = lines // (rows // len(memory.source_table))
        lengths = memory.source_lengths[shared]
        told |= seeing(1, memory.sources, memory.source_table, shared, lengths, tokens > 1)
    return Told(slot=memory.slots.used - len(own), length=start, own=own, places=places, **told)


def one_longer(memory: Memory, rows: int) -> Told:
    """The same of one token for every row, which mostly is what it was for the last one."""
    told = memory.again(rows)
    if told is None:
        told = memory.told = longer(memory, rows, 1)
    return told


def seeing(which: int, slots: Slots, table: Tensor, lines: Tensor, seen: Tensor, many: bool) -> dict[str, Any]:
    """Which lines of which table the rows look at, and how much of them. The tables are held until it is over. `many`
    rows may have a line in common."""
    S, E = table.size(1), slots.store.size(4)
    crowds = crowds_of(lines) if many and S <= LONGEST and E % LANES == 0 else torch.empty(0, 2, dtype=torch.int32)
    told = {"memory": slots.store, "slots": slots.count, "table": table.contiguous(), "longest": S}
    told |= {"lines": lines.contiguous(), "seen": seen.int().contiguous()}
    told |= {"crowds": crowds, "crowded": len(crowds), "room": room_for(S, E) if len(crowds) else S}
    return {f"{name}{which}": value for name, value in told.items()}
