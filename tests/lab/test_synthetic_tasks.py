"""Puzzles are what they say: the name stands where it should, words come backwards, and order is all that counts."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.testing import assert_close

from regard.lab.synthetic_tasks import CHANCE, DIGITS, FLOOR, SLIPS, backwards, digits, named


@settings(max_examples=30)
@given(count=st.integers(1, 9), distance=st.integers(1, 9), names=st.integers(3, 9))
def test_a_name_then_chatter_then_the_question(count: int, distance: int, names: int) -> None:
    words, answers = named(count, distance, names)
    assert words.shape == (count, distance + 2)
    assert torch.equal(words[:, 0], answers)
    assert (answers < names).all()
    assert ((words[:, 1:-1] >= names) & (words[:, 1:-1] < 2 * names)).all()
    assert (words[:, -1] == 2 * names).all()


@settings(max_examples=30)
@given(count=st.integers(1, 5), length=st.integers(1, 8))
def test_the_target_is_the_source_backwards_and_no_word_comes_twice(count: int, length: int) -> None:
    source, given_, wanted = backwards(count, length, 8)
    assert source.shape == (count, length)
    for words, before, after in zip(source.tolist(), given_.tolist(), wanted.tolist(), strict=True):
        assert len({*words}) == length
        assert max(words) < 8
        assert before == [9, *words[::-1]]
        assert after == [*words[::-1], 8]


def test_digits_follow_the_rule_as_often_as_told_and_no_digit_is_favoured() -> None:
    torch.manual_seed(0)
    ids = digits(400, 50)
    right = (ids[:, 2:] == (ids[:, :-2] + 2 * ids[:, 1:-1]) % DIGITS).double().mean().item()
    assert right == pytest.approx(1 - SLIPS + SLIPS / DIGITS, abs=0.01)
    assert_close(torch.bincount(ids.flatten()) / ids.numel(), torch.full((DIGITS,), 1 / DIGITS), atol=0.01, rtol=0)


def test_one_digit_before_tells_nothing_and_two_tell_all_only_in_order() -> None:
    pairs = [(a, b) for a in range(DIGITS) for b in range(DIGITS)]
    rule = {(a, b): (a + 2 * b) % DIGITS for a, b in pairs}
    assert all({rule[a, b] for b in range(DIGITS)} == set(range(DIGITS)) for a in range(DIGITS))
    assert all({rule[a, b] for a in range(DIGITS)} == set(range(DIGITS)) for b in range(DIGITS))
    assert all(rule[a, b] != rule[b, a] for a, b in pairs if a != b)


def test_the_floor_and_the_guess_are_the_entropies() -> None:
    chances = torch.full((DIGITS,), SLIPS / DIGITS)
    chances[0] += 1 - SLIPS
    assert pytest.approx(torch.distributions.Categorical(chances).entropy().item()) == FLOOR
    assert pytest.approx(math.log(5)) == CHANCE
