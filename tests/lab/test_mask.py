"""A masked row sums to 1 and is independent of the future; the slide's rows do not sum to 1."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.testing import assert_close

from regard.lab import mask
from regard.lab.mask import QUICK, SCORES, MaskOptions, as_attention, by_hand, masked, run
from regard.lab.result import no_progress
from regard.parts.attention import attend, attention_weights


@st.composite
def tables(draw):
    torch.manual_seed(draw(st.integers(0, 999)))
    tokens = draw(st.integers(1, 9))
    return draw(st.sampled_from([0.1, 1.0, 8.0])) * torch.randn(tokens, tokens)


@settings(max_examples=40)
@given(scores=tables())
def test_a_masked_row_is_the_softmax_of_visible_scores(scores):
    weights = masked(scores)
    assert_close(weights, by_hand(scores))
    for t, row in enumerate(scores):
        assert_close(weights[t, : t + 1], row[: t + 1].softmax(-1))
    assert not weights.triu(1).any()


@settings(max_examples=40)
@given(scores=tables())
def test_masking_after_the_softmax_and_renormalising_is_equivalent(scores):
    seen = scores.softmax(-1).tril()
    assert_close(masked(scores), seen / seen.sum(-1, keepdim=True), atol=1e-5, rtol=1e-4)


@settings(max_examples=40)
@given(scores=tables())
def test_queries_and_keys_have_these_scores(scores):
    q, k = as_attention(scores)
    assert torch.equal((q @ k.mT)[0, 0], scores)


def test_the_slide_shows_scores_where_weights_belong():
    assert_close(SCORES.tril().sum(-1), torch.tensor([0.6, 0.8, 0.9, 1.0]))
    weights = masked(SCORES)
    assert_close(weights.sum(-1), torch.ones(4))
    assert weights[0].tolist() == [1, 0, 0, 0]
    assert weights[1, 1].item() == pytest.approx(1 / (1 + math.exp(0.1 - 0.7)))
    assert (weights[3] - SCORES[3]).abs().min() > 0.03  # though the slide's last row sums to 1


def test_the_claim_holds_and_is_deterministic():
    result = run(QUICK, no_progress)
    assert result.holds
    assert result.table == run(QUICK, no_progress).table
    assert [row["sum"] for row in result.table] == pytest.approx([1] * 4)
    assert [row["on the slide"] for row in result.table] == pytest.approx([0.6, 0.8, 0.9, 1])


def scores_of(q, k):
    return q @ k.mT


WRONG = {
    "no mask": lambda q, k, causal, scale: attention_weights(q, k, scale=scale),
    "scores for weights": lambda q, k, causal, scale: scores_of(q, k).tril(),
    "mask after the softmax": lambda q, k, causal, scale: scores_of(q, k).softmax(-1).tril(),
    "one too many visible": lambda q, k, causal, scale: attention_weights(
        q, k, torch.ones(q.size(2), q.size(2)).tril(1).bool(), scale=scale
    ),
    "a mask of -5": lambda q, k, causal, scale: (
        scores_of(q, k) - 5 * torch.ones(q.size(2), q.size(2)).triu(1)
    ).softmax(-1),
    "scaled": lambda q, k, causal, scale: attention_weights(q, k, causal=causal),
}


@pytest.mark.parametrize("wrong", WRONG.values(), ids=WRONG)
def test_the_claim_fails_if_attention_masks_otherwise(wrong, monkeypatch):
    monkeypatch.setattr(mask, "attention_weights", wrong)
    assert not run(MaskOptions(tables=3), no_progress).holds


def test_the_claim_fails_if_the_kernel_masks_otherwise(monkeypatch):
    monkeypatch.setattr(mask, "attend", lambda q, k, v, causal, scale: attend(q, k, v, scale=scale))
    assert not run(MaskOptions(tables=3), no_progress).holds
