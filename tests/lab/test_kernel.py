"""Attention with a Gaussian kernel is kernel regression, and broken attention fails the claim."""

import math
from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.testing import assert_close

from regard.lab.kernel import QUICK, run, train
from regard.lab.kernel_regression import gaussian_attention, gp_weights, predict
from regard.lab.result import no_progress
from regard.parts import attention


@given(seed=st.integers(0, 999), width=st.floats(0.2, 3.0), examples=st.integers(1, 9))
@settings(max_examples=30)
def test_gaussian_attention_is_nadaraya_watson(seed: int, width: float, examples: int) -> None:
    torch.manual_seed(seed)
    x, y = torch.randn(2, examples).double()
    at = torch.linspace(-2, 2, 5).double()
    predictions = predict(gaussian_attention(width), at, x, y)
    for point, answer in zip(at.tolist(), predictions.tolist(), strict=True):
        weights = [math.exp(-((point - center) ** 2) / (2 * width**2)) for center in x.tolist()]
        assert answer == pytest.approx(
            sum(n * value for n, value in zip(weights, y.tolist(), strict=True)) / sum(weights)
        )


def test_a_narrow_kernel_is_the_nearest_neighbour_and_a_wide_one_the_mean() -> None:
    x, y, at = torch.tensor([[-1.0, 0.0, 1.0], [5.0, 6.0, 10.0], [-0.9, 0.2, 0.9]]).double()
    assert predict(gaussian_attention(0.1), at, x, y).tolist() == pytest.approx([5, 6, 10])
    assert predict(gaussian_attention(1e3), at, x, y).tolist() == pytest.approx([7, 7, 7], abs=1e-4)


@given(seed=st.integers(0, 999), width=st.floats(0.2, 3.0), examples=st.integers(1, 9))
@settings(max_examples=20)
def test_a_noiseless_gaussian_process_interpolates(seed: int, width: float, examples: int) -> None:
    torch.manual_seed(seed)
    x = width * torch.arange(examples).double()  # as far apart as the kernel is wide
    weights = gp_weights(x, x, width, noise=1e-6)
    assert_close(weights, torch.eye(examples).double(), atol=1e-6, rtol=0)


def test_training_changes_only_the_kernel() -> None:
    torch.manual_seed(1)
    layer = gaussian_attention(0.8)
    before = {name: weight.detach().clone() for name, weight in layer.named_parameters()}
    train(layer, *torch.randn(2, 9).double(), replace(QUICK, steps=2), no_progress)
    changed = {name for name, weight in layer.named_parameters() if not torch.equal(weight, before[name])}
    assert changed == {"query.weight", "key.weight"}


def test_training_is_leave_one_out(monkeypatch: pytest.MonkeyPatch) -> None:
    masks = []
    right = attention.attend
    monkeypatch.setattr(attention, "attend", lambda q, k, v, mask: masks.append(mask) or right(q, k, v, mask))
    train(gaussian_attention(0.8), *torch.randn(2, 6).double(), replace(QUICK, steps=1), no_progress)
    assert masks[0].tolist() == [[i != j for j in range(6)] for i in range(6)]


def test_the_claim_holds_and_is_deterministic() -> None:
    result = run(QUICK, no_progress)
    assert result.holds
    assert result.table == run(QUICK, no_progress).table


@pytest.mark.parametrize(
    "broken",
    [
        lambda q, k, v, mask=None: attention.attention_reference(q, k, v, mask, scale=1.0),
        lambda q, k, v, mask=None: v.mean(2, keepdim=True).expand_as(q) + 0 * q,
    ],
    ids=["no scale", "a plain mean"],
)
def test_the_claim_fails_with(broken, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attention, "attend", broken)
    assert not run(replace(QUICK, steps=2), no_progress).holds


def test_the_claim_fails_if_training_raises_the_error() -> None:
    assert not run(replace(QUICK, lr=30.0, steps=5), no_progress).holds


@pytest.mark.parametrize("wrong", [{"examples": 1}, {"width": 0.0}, {"noise": 0.0}, {"steps": 0}, {"lr": 0.0}])
def test_invalid_options_are_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=f"{next(iter(wrong))} must be"):
        replace(QUICK, **wrong)
