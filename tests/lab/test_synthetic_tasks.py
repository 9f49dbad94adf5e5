"""Synthetic tasks: recall, reversal, and digits in which only order matters."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.testing import assert_close

from regard.lab.synthetic_data import (
    DIGITS,
    ENTROPY,
    NOISE,
    UNIFORM_LOSS,
    digit_sequences,
    recall_batch,
    reversal_batch,
)


@settings(max_examples=30)
@given(count=st.integers(1, 9), distance=st.integers(1, 9), names=st.integers(3, 9))
def test_a_recall_batch_begins_with_the_answer_and_ends_with_the_question(
    count: int, distance: int, names: int
) -> None:
    words, answers = recall_batch(count, distance, names)
    assert words.shape == (count, distance + 2)
    assert torch.equal(words[:, 0], answers)
    assert (answers < names).all()
    assert ((words[:, 1:-1] >= names) & (words[:, 1:-1] < 2 * names)).all()
    assert (words[:, -1] == 2 * names).all()


@settings(max_examples=30)
@given(count=st.integers(1, 5), length=st.integers(1, 8))
def test_a_reversal_batch_has_shifted_reversed_targets(count: int, length: int) -> None:
    source, inputs, targets = reversal_batch(count, length, 8)
    assert source.shape == (count, length)
    for words, input_ids, target_ids in zip(source.tolist(), inputs.tolist(), targets.tolist(), strict=True):
        assert len({*words}) == length
        assert max(words) < 8
        assert input_ids == [9, *words[::-1]]
        assert target_ids == [*words[::-1], 8]


def test_digits_follow_the_rule_and_are_uniform() -> None:
    torch.manual_seed(0)
    ids = digit_sequences(400, 50)
    accuracy = (ids[:, 2:] == (ids[:, :-2] + 2 * ids[:, 1:-1]) % DIGITS).double().mean().item()
    assert accuracy == pytest.approx(1 - NOISE + NOISE / DIGITS, abs=0.01)
    assert_close(torch.bincount(ids.flatten()) / ids.numel(), torch.full((DIGITS,), 1 / DIGITS), atol=0.01, rtol=0)


def test_the_next_digit_depends_on_two_digits_in_order() -> None:
    pairs = [(a, b) for a in range(DIGITS) for b in range(DIGITS)]
    rule = {(a, b): (a + 2 * b) % DIGITS for a, b in pairs}
    assert all({rule[a, b] for b in range(DIGITS)} == set(range(DIGITS)) for a in range(DIGITS))
    assert all({rule[a, b] for a in range(DIGITS)} == set(range(DIGITS)) for b in range(DIGITS))
    assert all(rule[a, b] != rule[b, a] for a, b in pairs if a != b)


def test_losses_are_entropies() -> None:
    chances = torch.full((DIGITS,), NOISE / DIGITS)
    chances[0] += 1 - NOISE
    assert pytest.approx(torch.distributions.Categorical(chances).entropy().item()) == ENTROPY
    assert pytest.approx(math.log(5)) == UNIFORM_LOSS
