"""The paged KV cache against a model of lists: no slot is given out while a row, or whoever shares it, still needs it.

Every token that is appended is written to its slot in a table of its own. If a slot were given out twice, a row would
read a token of another.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

pytest.importorskip("regard.engine.kernels.llvm", exc_type=ImportError)  # Numba, and a CPU that the engine supports

from regard.engine.paged_cache import FIRST_SLOTS, KernelArgs, PagedCache, SlotPool, Slots, append_args, used_slots

MAX_ROWS = 12


class CacheMachine(RuleBasedStateMachine):
    """Rows of tokens, each of which has a number of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.rows: list[list[int]] = []
        self.shared: list[tuple[Slots, list[int]]] = []  # as of the prefix cache
        self.sources: list[list[int]] = []  # of every row
        self.store: dict[int, int] = {}  # slot: token
        self.source_store: dict[int, int] = {}
        self.tokens = 0
        self.peak = self.source_peak = 0  # slots in use at the same time

    @initialize(with_sources=st.booleans())
    def start(self, with_sources: bool) -> None:
        pools = [SlotPool(1, 1, 1, torch.float32) for _ in range(2)]
        self.cache = PagedCache(pools[0], pools[1] if with_sources else None)
        self.cache.shared_slots = lambda: [slots for slots, _ in self.shared]

    def new_tokens(self, count: int) -> list[int]:
        self.tokens += count
        return [*range(self.tokens - count, self.tokens)]

    def live(self) -> int:
        return len({*np.concatenate([np.empty(0, np.int32), *self.cache.slots_in_use()]).tolist()})

    @rule(lengths=st.lists(st.integers(1, 40), min_size=1, max_size=4))
    def add_rows(self, lengths: list[int]) -> None:
        if len(self.rows) + len(lengths) > MAX_ROWS:
            return
        if self.cache.source_pool is None:
            self.cache.add_rows(len(lengths))
            self.sources += [[] for _ in lengths]
        else:
            held = {token for source in self.sources for token in source}
            self.source_peak = max(self.source_peak, len(held) + sum(lengths))
            slots = self.cache.add_sources(np.array(lengths))
            assert len({*slots.tolist()}) == sum(lengths)
            self.sources += [self.new_tokens(length) for length in lengths]
            tokens = [token for source in self.sources[-len(lengths) :] for token in source]
            self.source_store.update(zip(slots.tolist(), tokens, strict=True))
        self.rows += [[] for _ in lengths]

    @precondition(lambda self: self.rows)
    @rule(data=st.data())
    def append(self, data: st.DataObject) -> None:
        """Chunks of any size, as in a step with prompts."""
        counts = data.draw(st.lists(st.integers(0, 9), min_size=len(self.rows), max_size=len(self.rows)))
        self.peak = max(self.peak, self.live() + sum(counts))
        self.write(append_args(self.cache, np.array(counts), batch_invariant=True), counts)

    @precondition(lambda self: self.rows)
    @rule(steps=st.integers(1, 20))
    def decode(self, steps: int) -> None:
        """One token for every row; the arguments of the last step are used again if they can be."""
        for _ in range(steps):
            counts = [1] * len(self.rows)
            self.peak = max(self.peak, self.live() + len(counts))
            args = self.cache.next_args() or append_args(self.cache, np.array(counts), batch_invariant=True)
            self.write(args, counts)

    def write(self, args: KernelArgs, counts: list[int]) -> None:
        """What the kernels do: write the new tokens; then each of them reads all tokens before it."""
        new = [self.new_tokens(count) for count in counts]
        ends = [(row, len(tokens) + i + 1) for row, tokens in enumerate(self.rows) for i in range(counts[row])]
        slots, positions = args.arrays["slot_mapping"], args.arrays["positions"]
        assert positions.tolist() == [end - 1 for _, end in ends]
        assert len({*slots.tolist()}) == len(slots) == sum(counts)
        self.store.update(zip(slots.tolist(), (token for tokens in new for token in tokens), strict=True))
        for tokens, more in zip(self.rows, new, strict=True):
            tokens += more
        for i, (row, end) in enumerate(ends):
            assert self.read(args, 0, i, self.store) == self.rows[row][:end]
            if self.cache.source_pool is not None:
                assert self.read(args, 1, i, self.source_store) == self.sources[row]
        pools = [self.cache.pool, self.cache.source_pool]
        for index, pool in enumerate(pools):
            if pool is not None:
                assert args.fields[f"kv{index}"] == pool.kv.data_ptr(), "the pool has grown since"
                assert args.fields[f"num_slots{index}"] == pool.capacity
        for name, array in args.arrays.items():
            assert args.fields[name] == array.ctypes.data

    def read(self, args: KernelArgs, index: int, token: int, store: dict[int, int]) -> list[int]:
        """The tokens that one of the new tokens attends to."""
        table, rows, lengths = (args.arrays[f"{name}{index}"] for name in ("block_table", "table_rows", "seq_lens"))
        assert args.fields[f"table_width{index}"] == table.shape[1]
        return [store[slot] for slot in table[rows[token], : lengths[token]].tolist()]

    @precondition(lambda self: self.rows)
    @rule(data=st.data())
    def select(self, data: st.DataObject) -> None:
        """Rows end, change places and fork."""
        row, count = st.integers(0, len(self.rows) - 1), len(self.rows)
        chosen = data.draw(st.one_of(st.lists(row, max_size=MAX_ROWS), st.lists(row, min_size=count, max_size=count)))
        self.cache.select(torch.tensor(chosen, dtype=torch.int64))
        self.rows = [[*self.rows[row]] for row in chosen]
        self.sources = [self.sources[row] for row in chosen]

    @precondition(lambda self: self.rows)
    @rule(data=st.data())
    def keep_prefix(self, data: st.DataObject) -> None:
        row = data.draw(st.integers(0, len(self.rows) - 1))
        count = data.draw(st.integers(0, len(self.rows[row])))
        self.shared.append((self.cache.block_table[row, :count].copy(), self.rows[row][:count]))

    @precondition(lambda self: self.shared)
    @rule(data=st.data())
    def forget_prefix(self, data: st.DataObject) -> None:
        self.shared.pop(data.draw(st.integers(0, len(self.shared) - 1)))

    @precondition(lambda self: self.shared and any(not row for row in self.rows))
    @rule(data=st.data())
    def share_prefix(self, data: st.DataObject) -> None:
        """As `ContinuousBatch.share_prefix`."""
        slots, tokens = data.draw(st.sampled_from(self.shared))
        row = next(i for i, row in enumerate(self.rows) if not row)
        self.cache.reserve(len(slots))
        self.cache.block_table[row, : len(slots)], self.cache.seq_lens[row] = slots, len(slots)
        self.rows[row] = [*tokens]

    @invariant()
    def rows_and_prefixes_hold_their_tokens(self) -> None:
        if not hasattr(self, "cache"):
            return
        listed = used_slots(self.cache.block_table, self.cache.seq_lens)
        assert [[self.store[slot] for slot in slots.tolist()] for slots in listed] == self.rows
        for slots, tokens in self.shared:
            assert [self.store[slot] for slot in slots.tolist()] == tokens
        free = {*self.cache.pool.free.tolist()}
        assert not free & {slot for slots in self.cache.slots_in_use() for slot in slots.tolist()}
        assert len(free) == len(self.cache.pool.free)

    @invariant()
    def pools_grow_no_more_than_they_must(self) -> None:
        if hasattr(self, "cache"):
            assert self.cache.pool.capacity <= max(FIRST_SLOTS, 4 * self.peak)
            if self.cache.source_pool is not None:
                assert self.cache.source_pool.capacity <= max(FIRST_SLOTS, 4 * self.source_peak)


CacheMachine.TestCase.settings = settings(max_examples=100, stateful_step_count=30, deadline=None, derandomize=True)
TestCacheMachine = CacheMachine.TestCase


def test_values_move_with_the_pool_when_it_grows() -> None:
    pool = SlotPool(2, 1, 4, torch.float32)
    first = pool.allocate(FIRST_SLOTS, list)
    pool.kv[:, :, :, first] = torch.arange(FIRST_SLOTS)[:, None].float()
    second = pool.allocate(10, lambda: [first])
    assert pool.capacity == 2 * FIRST_SLOTS
    assert not {*first.tolist()} & {*second.tolist()}
    assert pool.kv[1, 0, 0, first, 3].tolist() == [*map(float, range(FIRST_SLOTS))]


def test_a_slot_that_nobody_lists_is_used_again() -> None:
    """Rounds of a batch do not grow the pool."""
    cache = PagedCache(SlotPool(1, 1, 1, torch.float32))
    for _ in range(50):
        cache.add_rows(2)
        cache.append(np.array([15, 5]))
        cache.select(torch.empty(0, dtype=torch.int64))
    assert cache.pool.capacity == FIRST_SLOTS
    assert cache.slots_in_use() == []


def use_rows(machine: CacheMachine, rounds: int) -> None:
    """Rows of 20 tokens that come and go, one after another."""
    for _ in range(rounds):
        machine.add_rows([1])
        machine.write(append_args(machine.cache, np.array([20]), batch_invariant=True), [20])
        machine.rows_and_prefixes_hold_their_tokens()
        machine.cache.select(torch.tensor([], dtype=torch.int64))
        machine.rows, machine.sources = [], []


@pytest.mark.parametrize("is_broken", [False, True])
def test_the_machine_sees_a_shared_slot_that_is_given_out_again(is_broken: bool, monkeypatch: Any) -> None:
    """The negative control: a cache that knows only the slots of its rows."""
    if is_broken:
        monkeypatch.setattr(PagedCache, "slots_in_use", lambda self: used_slots(self.block_table, self.seq_lens))
    machine = CacheMachine()
    machine.start(False)
    machine.add_rows([1])
    machine.write(append_args(machine.cache, np.array([20]), batch_invariant=True), [20])
    machine.shared.append((machine.cache.block_table[0, :20].copy(), machine.rows[0][:20]))
    machine.cache.select(torch.tensor([], dtype=torch.int64))
    machine.rows, machine.sources = [], []
    if is_broken:
        with pytest.raises(AssertionError):
            use_rows(machine, 10)
    else:
        use_rows(machine, 10)
