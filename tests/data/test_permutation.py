"""The computed permutation: a bijection, that depends on its key, and mixes as a random order does."""

from math import sqrt

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from regard.data.permutation import Permutation


def order(size: int, *key: int) -> npt.NDArray[np.int64]:
    return Permutation(size, *key)[np.arange(size)]


@given(size=st.integers(1, 5000), seed=st.integers(0, 2**32), epoch=st.integers(0, 10**6))
@settings(max_examples=150)
def test_every_number_appears_exactly_once(size: int, seed: int, epoch: int) -> None:
    assert sorted(order(size, seed, epoch).tolist()) == [*range(size)]


@given(size=st.integers(50, 5000), key=st.integers(0, 10**6))
@settings(max_examples=50)
def test_another_seed_or_epoch_is_another_order(size: int, key: int) -> None:
    orders = {order(size, *keys).tobytes() for keys in ((key, 0), (key, 1), (key + 1, 0), (0, key + 2))}
    assert len(orders) == 4
    assert order(size, key, 0).tobytes() in orders


@given(
    size=st.integers(1, 2**60),
    places=st.lists(st.integers(0, 2**60), min_size=1, max_size=20),
    key=st.integers(0, 99),
)
@settings(max_examples=100)
def test_places_of_huge_permutations_are_random_access(size: int, places: list[int], key: int) -> None:
    permutation = Permutation(size, key)
    indices = np.array([place % size for place in places])
    numbers = permutation[indices]
    assert ((numbers >= 0) & (numbers < size)).all()
    assert numbers.tolist() == [int(permutation[indices[i : i + 1]][0]) for i in range(len(indices))]
    assert len({*numbers.tolist()}) == len({*indices.tolist()}), "different places hold different numbers"


def chi_square(counts: npt.NDArray[np.int64]) -> float:
    """The deviation of counts from equal ones, in standard deviations of its distribution."""
    expected, freedom = counts.sum() / counts.size, counts.size - 1
    return float((((counts - expected) ** 2 / expected).sum() - freedom) / sqrt(2 * freedom))


SIZE, KEYS = 257, 2500


@pytest.fixture(scope="module")
def orders() -> npt.NDArray[np.int64]:
    """(keys, places)"""
    return np.stack([order(SIZE, 7, epoch) for epoch in range(KEYS)])


@pytest.mark.parametrize("place", [0, 1, 100, SIZE - 1])
def test_over_all_keys_a_place_holds_every_number_equally_often(orders: npt.NDArray[np.int64], place: int) -> None:
    assert abs(chi_square(np.bincount(orders[:, place], minlength=SIZE))) < 5


@pytest.mark.parametrize("distance", [1, 2, 15, 16, 17])
def test_the_numbers_at_two_places_are_independent(orders: npt.NDArray[np.int64], distance: int) -> None:
    """Distances around the side of the Feistel square, √257 ≈ 16, would show its rows."""
    for first in (0, 130):
        differences = (orders[:, first] - orders[:, first + distance]) % SIZE
        assert abs(chi_square(np.bincount(differences, minlength=SIZE)[1:])) < 5, "never 0, all others equally often"


def test_one_order_is_mixed_well() -> None:
    """Beside numpy's own shuffle: the classes of neighbours, and the share of places that rise."""
    size, classes = 1 << 16, 16
    numbers = order(size, 3, 0)
    pairs = (numbers[:-1] * classes // size) * classes + numbers[1:] * classes // size
    assert abs(chi_square(np.bincount(pairs, minlength=classes**2))) < 5
    rises = int((np.diff(numbers) > 0).sum())
    assert abs(rises - size / 2) < 5 * sqrt(size / 12), "the variance of the ascents of a permutation is (n + 1) / 12"
    sequential = np.arange(size)
    pairs = (sequential[:-1] * classes // size) * classes + sequential[1:] * classes // size
    assert abs(chi_square(np.bincount(pairs, minlength=classes**2))) > 1000, "the test sees an order that is not mixed"
