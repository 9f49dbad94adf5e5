"""The paged KV cache (PagedAttention, Kwon et al. 2023): each token's keys and values occupy a slot, and a row of the
block table lists the slots of one sequence. A block holds one token, so block numbers are slot numbers.

Rows have lengths of their own. A beam that forks, or a prompt with a known prefix, copies a part of the block table,
never keys or values. Nobody counts references: when the pool is exhausted, every slot that no row lists is free again.
Cross-attention reads a second pool, and the beams of a sentence share the source's row of its block table.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import chain

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from regard.data.batches import Ints
from regard.engine.arena import array_empty
from regard.engine.bytecode import KERNEL_ARGS, STEP_ARGS
from regard.engine.kernels.llvm import LANES
from regard.engine.kernels.prefill_attention import MAX_KEYS, MIN_ROWS, find_prefills, prefill_workspace
from regard.parts.cache import Cache
from regard.parts.document_mask import DocumentMask

Slots = npt.NDArray[np.int32]
Arg = Slots | Tensor | int
FIRST_SLOTS = 64  # capacity of a new pool


class SlotPool:
    """Keys and values of all layers, (layers, 2, G, slots, E). The capacity grows as needed."""

    def __init__(self, layers: int, heads: int, head_dim: int, dtype: torch.dtype):
        self.kv = array_empty((layers, 2, heads, FIRST_SLOTS, head_dim), dtype)
        self.free: Slots = np.arange(FIRST_SLOTS, dtype=np.int32)

    @property
    def capacity(self) -> int:
        return self.kv.size(3)

    def allocate(self, count: int, in_use: Callable[[], Sequence[Slots]]) -> Slots:
        """Take free slots. If there are too few, those that `in_use` does not name become free; the capacity grows
        unless that frees half of the pool."""
        if len(self.free) < count:
            used = np.zeros(self.capacity, np.bool_)
            for slots in in_use():
                used[slots] = True
            self.free = np.flatnonzero(~used).astype(np.int32)
            if len(self.free) < max(count, self.capacity // 2):
                self.grow(max(2 * self.capacity, self.capacity + count))
        slots, self.free = self.free[:count], self.free[count:]
        return slots

    def grow(self, capacity: int) -> None:
        layers, _, heads, old, head_dim = self.kv.shape
        grown = array_empty((layers, 2, heads, capacity, head_dim), self.kv.dtype)
        grown[:, :, :, :old] = self.kv
        self.kv, self.free = grown, np.concatenate((self.free, np.arange(old, capacity, dtype=np.int32)))

    def reset(self) -> None:
        """Free all slots."""
        self.free = np.arange(self.capacity, dtype=np.int32)


class KernelArgs:
    """Values of KERNEL_ARGS: integers, and the addresses of arrays, which are kept alive here."""

    def __init__(self, **args: Arg):
        workspaces = [args.pop(f"workspace{i}", 0) for i in (0, 1)]
        self.workspace = max(size for size in workspaces if isinstance(size, int))
        self.tensors = [*args.values()]
        self.arrays = {name: value for name, value in args.items() if isinstance(value, np.ndarray)}
        numbers = {name: value if isinstance(value, int) else address(value) for name, value in args.items()}
        self.fields = np.array([numbers.get(name, 0) for name in STEP_ARGS], np.int64).view(KERNEL_ARGS)


def address(array: Slots | Tensor) -> int:
    if isinstance(array, Tensor):
        return array.data_ptr()
    assert array.dtype == np.int32
    assert array.flags.c_contiguous
    pointer: int = array.__array_interface__["data"][0]  # three times as fast as `array.ctypes.data`
    return pointer


class PagedCache(Cache):
    """`block_table` (B,S) lists the slots of every row, of which the first `seq_lens` (B) are in use; row r attends to
    the source in row `source_rows[r]` of `source_block_table`."""

    def __init__(self, pool: SlotPool, source_pool: SlotPool | None = None):
        super().__init__()
        self.pool, self.source_pool = pool, source_pool
        self.block_table, self.source_block_table = np.empty((0, 0), np.int32), np.empty((0, 0), np.int32)
        self.seq_lens, self.source_lens, self.source_rows = (np.empty(0, np.int32) for _ in range(3))
        self.shared_slots: Callable[[], Sequence[Slots]] = list  # slots in use that no row lists
        self.args: KernelArgs | None = None  # of the last decode step, reused while the tables keep their shape

    def slots_in_use(self) -> list[Slots]:
        return [*used_slots(self.block_table, self.seq_lens), *self.shared_slots()]

    def add_rows(self, count: int) -> None:
        """Add empty rows."""
        rows, (_, width) = len(self.seq_lens) + count, self.block_table.shape
        table, self.block_table = self.block_table, np.zeros((rows, width), np.int32)
        self.block_table[: len(table)] = table
        self.seq_lens, self.args = np.append(self.seq_lens, np.zeros(count, np.int32)), None

    def reserve(self, width: int) -> None:
        """Grow the block table to at least `width` columns."""
        rows, old = self.block_table.shape
        if width > old:
            table, self.block_table = self.block_table, np.zeros((rows, max(width, 2 * old, 16)), np.int32)
            self.block_table[:, :old], self.args = table, None

    def append(self, counts: Ints) -> tuple[Slots, Slots, Slots]:
        """Append `counts[r]` tokens to every row r. Returns the row, position and slot of each, row after row."""
        rows = np.repeat(np.arange(len(counts)), counts)
        positions = np.arange(len(rows)) - (counts.cumsum() - counts - self.seq_lens)[rows]
        slots = self.pool.allocate(len(rows), self.slots_in_use)
        self.reserve(int((self.seq_lens + counts).max()))
        self.block_table[rows, positions] = slots
        self.seq_lens += counts.astype(np.int32)
        self.length = int(self.seq_lens.max())
        return rows.astype(np.int32), positions.astype(np.int32), slots

    def next_args(self) -> KernelArgs | None:
        """Append one token to every row: the arguments of the last step, updated; None if they must be rebuilt."""
        args, seq_lens = self.args, self.seq_lens
        if args is None or self.length == self.block_table.shape[1] or len(self.pool.free) < len(seq_lens):
            return None
        slots = self.pool.allocate(len(seq_lens), self.slots_in_use)
        self.block_table[np.arange(len(seq_lens)), seq_lens] = slots
        args.arrays["slot_mapping"][:], args.arrays["positions"][:] = slots, seq_lens
        seq_lens += 1  # in place, as the arguments have its address
        self.length += 1
        return args

    def select(self, rows: Tensor) -> None:
        if not len(self.seq_lens):
            return  # no row exists before the first token
        chosen = rows.numpy()
        table, seq_lens = self.block_table[chosen], self.seq_lens[chosen]
        sources = self.source_rows[chosen] if self.source_pool is not None else self.source_rows
        if len(chosen) == len(self.seq_lens) and np.array_equal(sources, self.source_rows):
            self.block_table[:], self.seq_lens[:] = table, seq_lens  # in place, as the arguments have their addresses
        else:
            self.block_table, self.seq_lens, self.source_rows, self.args = table, seq_lens, sources, None
        self.length = int(seq_lens.max(initial=0))

    def select_sources(self, sources: Tensor) -> None:
        """Nothing to do: rows know their sources."""

    def add_sources(self, lengths: Ints) -> Slots:
        """Add a row for each of new sources. Returns the slots of their tokens, source after source."""
        assert self.source_pool is not None
        keep, rows_of_kept = np.unique(self.source_rows, return_inverse=True)
        table, old = self.source_block_table[keep], self.source_lens[keep]
        slots = self.source_pool.allocate(int(lengths.sum()), lambda: used_slots(table, old))
        self.source_block_table = np.zeros((len(old) + len(lengths), max(table.shape[1], lengths.max())), np.int32)
        self.source_block_table[: len(old), : table.shape[1]] = table
        rows = np.repeat(np.arange(len(lengths)), lengths)
        self.source_block_table[len(old) + rows, np.arange(len(rows)) - (lengths.cumsum() - lengths)[rows]] = slots
        self.source_lens = np.append(old, lengths).astype(np.int32)
        new = np.arange(len(old), len(self.source_lens))
        self.source_rows = np.append(rows_of_kept, new).astype(np.int32)
        self.add_rows(len(lengths))
        return slots


def used_slots(block_table: Slots, lengths: Slots) -> list[Slots]:
    return [slots[:count] for slots, count in zip(block_table, lengths, strict=True)]


def append_args(cache: PagedCache, counts: Ints, batch_invariant: bool = False) -> KernelArgs:
    """Append `counts[r]` new tokens to every row r; returns the kernels' arguments. Rows with few tokens come first."""
    is_step = bool((counts == 1).all())
    rows, positions, slots = cache.append(counts)
    few = counts < MIN_ROWS
    decode_rows = len(rows) if batch_invariant or few.all() else int(counts[: few.argmin()].sum())
    prefills = find_prefills(rows[decode_rows:], decode_rows)
    seq_lens = cache.seq_lens if is_step else positions + 1
    args = attention_args(0, cache.pool, cache.block_table, rows, seq_lens, prefills)
    if cache.source_pool is not None:
        source_rows = cache.source_rows[rows]
        lengths = cache.source_lens[source_rows]
        args |= attention_args(1, cache.source_pool, cache.source_block_table, source_rows, lengths, prefills)
    kernel_args = KernelArgs(slot_mapping=slots.copy(), positions=positions, **args)
    cache.args = kernel_args if is_step else None
    return kernel_args


def attention_args(
    index: int, pool: SlotPool, block_table: Slots, table_rows: Slots, seq_lens: Slots, prefills: Slots
) -> dict[str, Arg]:
    """CACHE_ARGS of cache 0 or 1: row r attends to the first seq_lens[r] slots of block_table[table_rows[r]]. The rows
    of a prefill (first row, count) share a row of the block table. All rows after the first prefill are in one."""
    S, E = block_table.shape[1], pool.kv.size(4)
    prefills = prefills if S <= MAX_KEYS and E % LANES == 0 else prefills[:0]
    args: dict[str, Arg] = {
        "kv": pool.kv,
        "num_slots": pool.capacity,
        "block_table": block_table,
        "table_width": S,
        "table_rows": table_rows,
        "seq_lens": seq_lens,
        "decode_rows": int(prefills[0, 0]) if len(prefills) else len(table_rows),
        "prefills": prefills,
        "num_prefills": len(prefills),
        "workspace": prefill_workspace(S, E) if len(prefills) else S,
    }
    return {f"{name}{index}": value for name, value in args.items()}


def pack_tokens(token_mask: Tensor) -> tuple[Slots, Slots, Slots]:
    """Padding mask (B,S) -> slot mapping of all real tokens, block table (B,S), lengths (B)."""
    lengths = token_mask.sum(1, dtype=torch.int32).numpy()
    return np.arange(lengths.sum(), dtype=np.int32), consecutive_slots(lengths, token_mask.size(1)), lengths


def pack_documents(mask: DocumentMask) -> tuple[Slots, Slots, Slots]:
    """Documents of all rows -> the document (B·T) of each token, block table (N,longest), lengths (N)."""
    lengths = np.array([*chain(*mask.lengths)], np.int32)
    return np.arange(len(lengths), dtype=np.int32).repeat(lengths), consecutive_slots(lengths, lengths.max()), lengths


def consecutive_slots(lengths: Slots, width: int) -> Slots:
    """The block table of sequences whose tokens follow each other in the pool."""
    return ((lengths.cumsum() - lengths)[:, None] + np.arange(width)).astype(np.int32)
