"""Batches contain every example once per epoch, stay within the budget, and resume from a position."""

from itertools import islice

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from regard.data.batches import (
    BucketedExamples,
    Ints,
    Position,
    Ragged,
    bucket_by_length,
    iterate_batches,
    split_by_budget,
)

PAD = 99


class Rows(BucketedExamples):
    def __init__(self, lengths: Ints):
        self.lengths, self.units = lengths, len(lengths)


PAIRS = st.lists(st.tuples(st.integers(1, 30), st.integers(1, 30)), min_size=1, max_size=60).map(np.array)
BUDGET, SEED, EPOCH = st.integers(1, 200), st.integers(0, 99), st.integers(0, 5)
SETTINGS = settings(deadline=None, derandomize=True, max_examples=60)


def plain(batches: list[Ints]) -> list[list[int]]:
    return [batch.tolist() for batch in batches]


@given(lengths=PAIRS, budget=BUDGET, seed=SEED, epoch=EPOCH)
@SETTINGS
def test_every_example_occurs_once_and_batches_stay_within_the_budget(lengths, budget, seed, epoch) -> None:
    batches = bucket_by_length(lengths, budget, seed, epoch)
    assert sorted(i for batch in plain(batches) for i in batch) == [*range(len(lengths))]
    for batch in batches:
        assert len(batch) == 1 or len(batch) * lengths[batch].max() <= budget


@given(lengths=st.lists(st.integers(1, 30), max_size=60).map(sorted), budget=BUDGET)
@SETTINGS
def test_ranges_are_as_large_as_the_budget_allows(lengths: list[int], budget: int) -> None:
    ranges = split_by_budget(np.array(lengths, dtype=np.int64), budget)
    assert [i for a, b in ranges for i in range(a, b)] == [*range(len(lengths))]
    for a, b in ranges[:-1]:
        assert (b + 1 - a) * max(lengths[a : b + 1]) > budget


@given(lengths=PAIRS, budget=BUDGET, seed=SEED)
@SETTINGS
def test_the_order_depends_on_seed_and_epoch_and_the_number_of_batches_does_not(lengths, budget, seed) -> None:
    epochs = [plain(bucket_by_length(lengths, budget, seed, epoch)) for epoch in range(4)]
    assert epochs[1] == plain(bucket_by_length(lengths, budget, seed, 1))
    other_seed = plain(bucket_by_length(lengths, budget, seed + 1, 1))
    assert {len(batches) for batches in [*epochs, other_seed]} == {len(epochs[0])}


def test_every_epoch_and_seed_has_its_own_order() -> None:
    lengths = np.random.default_rng(1).integers(1, 20, (100, 2))
    orders = [plain(bucket_by_length(lengths, 60, seed, epoch)) for seed, epoch in [(1, 0), (1, 1), (2, 0), (0, 1)]]
    assert all(a != b for i, a in enumerate(orders) for b in orders[:i])
    assert orders[0] != sorted(orders[0], key=lambda batch: lengths[batch].max()), (
        "batches should not be sorted by length"
    )


def test_examples_of_similar_length_are_batched_together() -> None:
    lengths = np.random.default_rng(1).integers(1, 20, (400, 1))
    batches = bucket_by_length(lengths, 100, seed=1, epoch=0)
    padded = sum(len(batch) * lengths[batch].max() for batch in batches)
    assert padded < 1.1 * lengths.sum()


@given(lengths=PAIRS, budget=BUDGET, seed=SEED, start=st.integers(0, 30))
@SETTINGS
def test_iteration_resumes_at_any_position(lengths, budget, seed, start) -> None:
    uninterrupted = [(Position(), np.array([])), *islice(iterate_batches(Rows(lengths), budget, seed), start + 12)]
    resumed = [*islice(iterate_batches(Rows(lengths), budget, seed, uninterrupted[start][0]), 12)]
    assert [(at, batch.tolist()) for at, batch in resumed] == [
        (at, batch.tolist()) for at, batch in uninterrupted[start + 1 :]
    ]
    assert [at for at, _ in resumed] == sorted({at for at, _ in resumed})


def test_a_position_after_the_last_batch_is_the_next_epoch() -> None:
    lengths = np.ones((10, 2), dtype=np.int64)
    assert [at for at, _ in islice(iterate_batches(Rows(lengths), 4, seed=1), 6)] == [
        (0, 1),
        (0, 2),
        (1, 0),
        (1, 1),
        (1, 2),
        (2, 0),
    ]


def test_an_empty_set_of_examples_is_refused() -> None:
    with pytest.raises(ValueError, match="no examples"):
        next(iterate_batches(Rows(np.empty((0, 2), dtype=np.int64)), 4, seed=1))


ROWS = st.lists(st.lists(st.integers(0, 50), max_size=9), min_size=1, max_size=12)


@given(rows=ROWS, data=st.data())
@SETTINGS
def test_ragged_rows_are_returned_unchanged_and_padded_to_the_longest(rows: list[list[int]], data) -> None:
    ragged = Ragged(rows)
    assert len(ragged) == len(rows)
    assert [ragged[i].tolist() for i in range(len(rows))] == rows
    assert ragged.lengths.tolist() == [len(row) for row in rows]
    selected = data.draw(st.lists(st.integers(0, len(rows) - 1), min_size=1, max_size=5))
    table = ragged.pad(np.array(selected), PAD)
    max_length = max(len(rows[i]) for i in selected)
    assert table.dtype == torch.int64
    assert table.tolist() == [rows[i] + [PAD] * (max_length - len(rows[i])) for i in selected]


def test_ragged_accepts_no_rows() -> None:
    assert len(Ragged([])) == 0
