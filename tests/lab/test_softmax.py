"""The worked numbers of two decks: one rounds right, the other's are those of other scores."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.testing import assert_close

from regard.lab import softmax
from regard.lab.result import no_progress
from regard.lab.softmax import (
    CORRECT_T,
    DECK_A,
    DECK_T,
    QUICK,
    SLIDE_A,
    SLIDE_T,
    SoftmaxOptions,
    query_and_keys,
    round2,
    run,
)
from regard.parts.attention import attend
from regard.parts.attention_scores import dot, masked_softmax, scaled_dot

score = st.floats(-100, 100, width=32)


def by_hand(scores):
    powers = [math.exp(s - max(scores)) for s in scores]
    return [power / sum(powers) for power in powers]


@settings(max_examples=40)
@given(scores=st.lists(score, min_size=1, max_size=6), width=st.integers(1, 300))
def test_query_and_keys_have_these_scores(scores, width):
    q, k = query_and_keys(scores, width)
    assert q.shape == (1, width)
    assert k.shape == (len(scores), width)
    assert_close(dot(q, k)[0], torch.tensor(scores, dtype=torch.float64))
    assert_close(masked_softmax(dot(q, k))[0].tolist(), by_hand(scores))


def test_the_weights_of_deck_a_are_the_softmax():
    q, k = query_and_keys(DECK_A, 64)
    assert dot(q, k).tolist() == [[112, 96]]
    assert scaled_dot(q, k).tolist() == [[14, 12]]
    assert round2(by_hand([14, 12])) == SLIDE_A == [0.88, 0.12]


def test_deck_t_sums_to_one_but_is_the_softmax_of_other_scores():
    assert sum(SLIDE_T) == pytest.approx(1)
    assert round2(by_hand(DECK_T)) == CORRECT_T == [0.02, 0.02, 0.02, 0.95]
    assert round2(by_hand([s / math.sqrt(2) for s in DECK_T])) == SLIDE_T


def test_the_claim_holds_and_the_table_has_the_numbers():
    result = run(QUICK, no_progress)
    assert result.holds
    assert [row["weight"] for row in result.table] == pytest.approx(by_hand([14, 12]) + by_hand(DECK_T))
    assert [row["on the slide"] for row in result.table] == SLIDE_A + SLIDE_T
    assert "divided by √2, which give 0.050 and 0.849" in result.summary
    assert len(result.figure.axes) == 2


@pytest.mark.parametrize("width", [1, 63, 65, 128])
def test_the_claim_holds_for_keys_of_64_only(width):
    assert not run(SoftmaxOptions(width=width), no_progress).holds


@pytest.mark.parametrize(
    ("name", "wrong"),
    [
        ("scaled_dot", dot),
        ("attend", lambda q, k, v: attend(q, k, v, scale=1.0)),
        ("masked_softmax", lambda scores: scores / scores.sum(-1, keepdim=True)),
        ("masked_softmax", lambda scores: (scores / math.sqrt(2)).softmax(-1)),
        ("SLIDE_T", CORRECT_T),  # then nothing would be a slip
        ("CORRECT_T", SLIDE_T),  # then the slip would be right
    ],
)
def test_the_claim_fails_with_another_part(name, wrong, monkeypatch):
    monkeypatch.setattr(softmax, name, wrong)
    assert not run(QUICK, no_progress).holds
