"""Softmax statistics are exact, and the claim fails without the scale."""

import math
from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.testing import assert_close

from regard.lab.result import no_progress
from regard.lab.saturation import QUICK, run, softmax_stats
from regard.parts import attention_scores


@given(seed=st.integers(0, 999), queries=st.integers(1, 4), keys=st.integers(2, 6), size=st.floats(0.1, 30))
@settings(max_examples=40)
def test_the_gradient_equals_the_jacobian_product(seed: int, queries: int, keys: int, size: float) -> None:
    torch.manual_seed(seed)
    scores, direction = size * torch.randn(queries, keys).double(), torch.randn(queries, keys).double()
    result = softmax_stats(scores, direction)
    weights = scores.softmax(-1)
    jacobian = torch.diag_embed(weights) - weights[:, :, None] * weights[:, None]
    assert_close(result.gradient, (jacobian @ direction[:, :, None])[..., 0].norm(dim=-1))
    assert result.entropy == pytest.approx(-(weights * weights.log()).sum(-1).mean().item())
    assert result.largest == pytest.approx(weights.amax(-1).mean().item())


def test_equal_scores_keep_a_gradient_and_distant_ones_do_not() -> None:
    direction = torch.tensor([[1.0, 0.0]]).double()
    equal = softmax_stats(torch.zeros(1, 2).double(), direction)
    assert equal.entropy == pytest.approx(math.log(2))
    assert equal.gradient.item() == pytest.approx(math.hypot(0.25, 0.25))
    distant = softmax_stats(torch.tensor([[1000.0, 0.0]]).double(), direction)
    assert (distant.entropy, distant.largest, distant.gradient.item()) == (0, 1, 0)


def test_the_scores_of_the_lecture_saturate_without_the_scale() -> None:
    """112 and 96 of 64 numbers: 14 and 12 with the scale."""
    direction = torch.tensor([[1.0, 0.0]]).double()
    bare, scaled = (softmax_stats(torch.tensor([scores]).double(), direction) for scores in ((112, 96), (14, 12)))
    assert round(scaled.largest, 2) == 0.88
    assert bare.largest > 1 - 2e-7
    assert bare.gradient.item() < 1e-5 * scaled.gradient.item()


def test_the_claim_holds_and_is_deterministic() -> None:
    result = run(QUICK, no_progress)
    assert result.holds
    assert result.table == run(QUICK, no_progress).table
    assert [row["d"] for row in result.table] == list(QUICK.dims)


def test_at_width_1_the_scale_has_no_effect() -> None:
    row = run(replace(QUICK, dims=(1, 4)), no_progress).table[0]
    for measure in ("entropy", "largest weight", "gradient"):
        assert row[f"{measure}, q·k"] == row[f"{measure}, q·k / √d"]


@pytest.mark.parametrize(
    ("part", "broken"),
    [
        ("scaled_dot", lambda q, k: q @ k.mT),
        ("scaled_dot", lambda q, k: q @ k.mT / q.size(-1)),
        ("dot", lambda q, k: q @ k.mT / math.sqrt(q.size(-1))),
        ("masked_softmax", lambda scores: scores.sigmoid() / scores.sigmoid().sum(-1, keepdim=True)),
    ],
    ids=["no scale", "d instead of its root", "always scaled", "no softmax"],
)
def test_the_claim_fails_with(part: str, broken, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attention_scores, part, broken)
    assert not run(QUICK, no_progress).holds


@pytest.mark.parametrize("wrong", [{"dims": (4,)}, {"dims": (0, 4)}, {"keys": 1}, {"queries": 0}, {"sets": 0}])
def test_invalid_options_are_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=f"{next(iter(wrong))} must be"):
        replace(QUICK, **wrong)
