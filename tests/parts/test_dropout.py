"""Dropout zeroes a share p, keeps the mean, and masks the gradient alike."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.testing import assert_close

from regard.parts.dropout import Dropout

PROBABILITIES = [1 / 256, 0.1, 0.5, 0.9, 0.999]


@given(seed=st.integers(0, 999), p=st.floats(0, 0.99), shape=st.lists(st.integers(0, 5), min_size=1, max_size=3))
@settings(deadline=None, derandomize=True, max_examples=60)
def test_output_and_gradient_share_the_same_mask(seed: int, p: float, shape: list[int]) -> None:
    torch.manual_seed(seed)
    x = (torch.rand(shape) + 0.5).requires_grad_()
    scale = 256 / (256 - round(p * 256))
    y = Dropout(p)(x)
    keep = (y != 0).float()
    assert_close(y, x * keep * scale)
    (gradient,) = torch.autograd.grad(y.sum(), x)
    assert_close(gradient, keep * scale)


@pytest.mark.parametrize("p", PROBABILITIES)
def test_share_of_zeros_is_p_and_the_mean_is_kept(p: float) -> None:
    torch.manual_seed(1)
    n = 1_000_001  # odd: the random numbers come in eights
    y = Dropout(p)(torch.ones(n))
    error = (p * (1 - p) / n) ** 0.5
    assert abs((y == 0).float().mean().item() - p) < 5 * error + 1 / 256
    rounded = min(round(p * 256), 255) / 256
    assert y.double().mean().item() == pytest.approx(1, abs=5 * (rounded / (1 - rounded) / n) ** 0.5)


def test_elements_are_dropped_independently() -> None:
    torch.manual_seed(1)
    dropped = (Dropout(0.5)(torch.ones(100_000, 8)) == 0).float()
    assert_close(torch.corrcoef(dropped.T), torch.eye(8), rtol=0.0, atol=0.02)


@pytest.mark.parametrize("p", PROBABILITIES)
def test_nothing_is_dropped_when_not_training(p: float) -> None:
    x = torch.randn(7)
    assert Dropout(p).eval()(x) is x


def test_p_zero_is_the_identity() -> None:
    x = torch.randn(7)
    assert Dropout(0.0)(x) is x


@pytest.mark.parametrize("p", [-0.1, 1.0, 1.5, float("nan")])
def test_invalid_p_is_refused(p: float) -> None:
    with pytest.raises(ValueError, match=f"dropout must be .*not {p}"):
        Dropout(p)


def test_same_seed_drops_the_same_elements() -> None:
    drop, x, outputs = Dropout(0.5), torch.ones(5, 13), []
    for seed in 1, 1, 2:
        torch.manual_seed(seed)
        outputs.append(drop(x))
    assert torch.equal(outputs[0], outputs[1])
    assert not torch.equal(outputs[0], outputs[2])
    assert not torch.equal(drop(x), drop(x))
