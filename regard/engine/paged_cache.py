"""The paged KV cache (PagedAttention, Kwon et al. 2023): each token's keys and values occupy a slot, and a row of the
block table lists the slots of one sequence. A block holds one token, so block numbers are slot numbers.

A beam that forks copies a row of the block table, never keys or values. Cross-attention reads a second pool, and the
beams of a sentence share the source's row of its block table.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from regard.engine.arena import array_empty
from regard.engine.bytecode import KERNEL_ARGS
from regard.engine.kernels.llvm import LANES
from regard.engine.kernels.prefill_attention import MAX_KEYS, find_prefills, prefill_workspace
from regard.parts.cache import Cache


class SlotPool:
    """Keys and values of all layers, (layers, 2, G, slots, E); the capacity doubles when it is exhausted."""

    def __init__(self, layers: int, heads: int, head_dim: int, dtype: torch.dtype):
        self.kv = array_empty((layers, 2, heads, 64, head_dim), dtype)
        self.used = 0

    @property
    def capacity(self) -> int:
        return self.kv.size(3)

    def allocate(self, count: int) -> int:
        """Allocate `count` consecutive slots and return the first."""
        first, self.used = self.used, self.used + count
        if self.used > self.capacity:
            layers, _, heads, slots, head_dim = self.kv.shape
            grown = array_empty((layers, 2, heads, max(self.used, 2 * slots), head_dim), self.kv.dtype)
            grown[:, :, :, :first] = self.kv[:, :, :, :first]
            self.kv = grown
        return first


class KernelArgs:
    """Values of KERNEL_ARGS: integers, and addresses of tensors, which are kept alive here."""

    def __init__(self, **args: Tensor | int):
        self.workspace = max(int(args.pop("workspace0", 0)), int(args.pop("workspace1", 0)))
        self.tensors, self.fields = args, np.zeros(1, KERNEL_ARGS)
        for name, value in args.items():
            self.fields[name] = value.data_ptr() if isinstance(value, Tensor) else value


class PagedCache(Cache):
    """`block_table` (B,S) lists the slots of every row, the first `length` in use; `source_block_table` those of
    sources."""

    def __init__(self, pool: SlotPool, source_pool: SlotPool | None = None):
        super().__init__()
        self.pool, self.source_pool = pool, source_pool
        self.block_table = np.empty((0, 0), np.int32)
        self.source_block_table = torch.empty(0, 0, dtype=torch.int32)
        self.source_lens = torch.empty(0, dtype=torch.int32)
        self.args: KernelArgs | None = None  # of the last step, reused while the tables keep their shape

    def append_slots(self, rows: int, tokens: int) -> Tensor:
        """Append new slots to every row of the block table; returns their slot mapping, (B·T)."""
        new = np.arange(first := self.pool.allocate(rows * tokens), first + rows * tokens, dtype=np.int32)
        end, width = self.length + tokens, self.block_table.shape[1]
        if end > width:
            grown = np.zeros((rows, max(end, 2 * width, 16)), np.int32)
            if self.length:
                grown[:, : self.length] = self.block_table[:, : self.length]
            self.block_table = grown
        self.block_table[:, self.length : end] = new.reshape(rows, tokens)
        self.length, self.args = end, None
        return torch.from_numpy(new)

    def next_args(self, rows: int) -> KernelArgs | None:
        """The arguments of the last decode step, updated for the next one; None if the pool or a table must grow."""
        pool, args, (table_rows, width) = self.pool, self.args, self.block_table.shape
        if args is None or rows != table_rows or self.length == width or pool.used + rows > pool.capacity:
            return None
        args.fields["first_slot"], args.fields["length"] = pool.used, self.length
        pool.used, self.length = pool.used + rows, self.length + 1
        return args

    def select(self, rows: Tensor) -> None:
        if not self.length:
            return  # the block table is still empty
        selected = self.block_table[rows.numpy()]
        if len(selected) == len(self.block_table):
            self.block_table[:] = selected
        else:
            self.block_table, self.args = selected, None

    def select_sources(self, sources: Tensor) -> None:
        self.args = None
        if self.source_pool is not None:
            self.source_block_table, self.source_lens = self.source_block_table[sources], self.source_lens[sources]


def append_args(cache: PagedCache, rows: int, tokens: int) -> KernelArgs:
    """Append `tokens` new tokens to every row; returns the kernels' arguments."""
    slot_mapping, start = cache.append_slots(rows, tokens), cache.length - tokens
    positions = torch.arange(start, start + tokens, dtype=torch.int32).repeat(rows)
    table_rows = torch.arange(rows, dtype=torch.int32).repeat_interleave(tokens)
    args = attention_args(0, cache.pool, torch.from_numpy(cache.block_table), table_rows, positions + 1, tokens > 1)
    if cache.source_pool is not None:
        source_rows = table_rows // (rows // len(cache.source_block_table))
        lengths = cache.source_lens[source_rows]
        args |= attention_args(1, cache.source_pool, cache.source_block_table, source_rows, lengths, tokens > 1)
    return KernelArgs(
        first_slot=cache.pool.used - len(slot_mapping),
        length=start,
        slot_mapping=slot_mapping,
        positions=positions,
        **args,
    )


def step_args(cache: PagedCache, rows: int) -> KernelArgs:
    """append_args of one token per row; mostly the last step's arguments with two numbers changed."""
    args = cache.next_args(rows)
    if args is None:
        args = cache.args = append_args(cache, rows, 1)
    return args


def attention_args(
    index: int, pool: SlotPool, block_table: Tensor, table_rows: Tensor, seq_lens: Tensor, prefill: bool
) -> dict[str, Tensor | int]:
    """CACHE_ARGS of cache 0 or 1: row r attends to the first seq_lens[r] slots of block_table[table_rows[r]]. With
    `prefill`, consecutive rows may share a row of the block table."""
    S, E = block_table.size(1), pool.kv.size(4)
    shared = prefill and S <= MAX_KEYS and E % LANES == 0
    prefills = find_prefills(table_rows) if shared else torch.empty(0, 2, dtype=torch.int32)
    args: dict[str, Tensor | int] = {
        "kv": pool.kv,
        "num_slots": pool.capacity,
        "block_table": block_table.contiguous(),
        "table_width": S,
        "table_rows": table_rows.contiguous(),
        "seq_lens": seq_lens.int().contiguous(),
        "prefills": prefills,
        "num_prefills": len(prefills),
        "workspace": prefill_workspace(S, E) if len(prefills) else S,
    }
    return {f"{name}{index}": value for name, value in args.items()}
