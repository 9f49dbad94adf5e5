"""The worked numbers of two decks: one rounds right, the other's are those of other scores."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.testing import assert_close

from regard.lab import softmax
from regard.lab.result import quietly
from regard.lab.softmax import DECK_A, DECK_T, QUICK, RIGHT_T, SAID_A, SAID_T, Knobs, asked, rounded, run
from regard.parts.attention import attend
from regard.parts.scoring import dot, scaled_dot, weights_of

score = st.floats(-100, 100, width=32)


def by_hand(scores):
    powers = [math.exp(s - max(scores)) for s in scores]
    return [power / sum(powers) for power in powers]


@settings(max_examples=40)
@given(scores=st.lists(score, min_size=1, max_size=6), width=st.integers(1, 300))
def test_a_query_and_keys_have_the_scores_that_were_asked_for(scores, width):
    q, k = asked(scores, width)
    assert q.shape == (1, width)
    assert k.shape == (len(scores), width)
    assert_close(dot(q, k)[0], torch.tensor(scores, dtype=torch.float64))
    assert_close(weights_of(dot(q, k))[0].tolist(), by_hand(scores))


def test_deck_a_rounds_right():
    q, k = asked(DECK_A, 64)
    assert dot(q, k).tolist() == [[112, 96]]
    assert scaled_dot(q, k).tolist() == [[14, 12]]
    assert rounded(by_hand([14, 12])) == SAID_A == [0.88, 0.12]


def test_deck_t_sums_to_one_but_is_the_softmax_of_other_scores():
    assert sum(SAID_T) == pytest.approx(1)
    assert rounded(by_hand(DECK_T)) == RIGHT_T == [0.02, 0.02, 0.02, 0.95]
    assert rounded(by_hand([s / math.sqrt(2) for s in DECK_T])) == SAID_T


def test_it_holds_and_the_table_has_the_numbers():
    found = run(QUICK, quietly)
    assert found.holds
    assert [row["weight"] for row in found.table] == pytest.approx(by_hand([14, 12]) + by_hand(DECK_T))
    assert [row["on the slide"] for row in found.table] == SAID_A + SAID_T
    assert "divided by √2 first, which give 0.050 and 0.849" in found.says
    assert len(found.figure.axes) == 2


@pytest.mark.parametrize("width", [1, 63, 65, 128])
def test_it_holds_for_keys_of_64_only(width):
    assert not run(Knobs(width=width), quietly).holds


@pytest.mark.parametrize(
    ("name", "wrong"),
    [
        ("scaled_dot", dot),
        ("attend", lambda q, k, v: attend(q, k, v, scale=1.0)),
        ("weights_of", lambda scores: scores / scores.sum(-1, keepdim=True)),
        ("weights_of", lambda scores: (scores / math.sqrt(2)).softmax(-1)),
        ("SAID_T", RIGHT_T),  # then nothing would be a slip
        ("RIGHT_T", SAID_T),  # then the slip would be right
    ],
)
def test_it_does_not_hold_if_a_part_is_another(name, wrong, monkeypatch):
    monkeypatch.setattr(softmax, name, wrong)
    assert not run(QUICK, quietly).holds
