"""Dropout drops the share it says, keeps the mean, and goes back the way it came."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.testing import assert_close

from regard.parts.dropout import Dropout

RATES = [1 / 256, 0.1, 0.5, 0.9, 0.999]


@given(seed=st.integers(0, 999), rate=st.floats(0, 0.99), shape=st.lists(st.integers(0, 5), min_size=1, max_size=3))
@settings(deadline=None, derandomize=True, max_examples=60)
def test_each_number_is_dropped_or_grown_and_its_gradient_alike(seed: int, rate: float, shape: list[int]) -> None:
    torch.manual_seed(seed)
    x = (torch.rand(shape) + 0.5).requires_grad_()
    growth = 256 / (256 - round(rate * 256))
    y = Dropout(rate)(x)
    kept = (y != 0).float()
    assert_close(y, x * kept * growth)
    (gradient,) = torch.autograd.grad(y.sum(), x)
    assert_close(gradient, kept * growth)


@pytest.mark.parametrize("rate", RATES)
def test_the_share_dropped_is_the_rate_and_the_mean_is_kept(rate: float) -> None:
    torch.manual_seed(1)
    n = 1_000_001  # odd: the random numbers come in eights
    y = Dropout(rate)(torch.ones(n))
    error = (rate * (1 - rate) / n) ** 0.5
    assert abs((y == 0).float().mean().item() - rate) < 5 * error + 1 / 256
    real = min(round(rate * 256), 255) / 256
    assert y.double().mean().item() == pytest.approx(1, abs=5 * (real / (1 - real) / n) ** 0.5)


def test_neighbours_are_dropped_independently() -> None:
    torch.manual_seed(1)
    dropped = (Dropout(0.5)(torch.ones(100_000, 8)) == 0).float()
    assert_close(torch.corrcoef(dropped.T), torch.eye(8), rtol=0.0, atol=0.02)


@pytest.mark.parametrize("rate", RATES)
def test_nothing_is_dropped_when_not_training(rate: float) -> None:
    x = torch.randn(7)
    assert Dropout(rate).eval()(x) is x


def test_a_rate_of_zero_is_the_identity() -> None:
    x = torch.randn(7)
    assert Dropout(0.0)(x) is x


@pytest.mark.parametrize("rate", [-0.1, 1.0, 1.5, float("nan")])
def test_a_rate_that_is_no_share_is_refused_with_its_number(rate: float) -> None:
    with pytest.raises(ValueError, match=f"dropout must be .*not {rate}"):
        Dropout(rate)


def test_the_same_seed_drops_the_same_numbers() -> None:
    drop, x, drawn = Dropout(0.5), torch.ones(5, 13), []
    for seed in 1, 1, 2:
        torch.manual_seed(seed)
        drawn.append(drop(x))
    assert torch.equal(drawn[0], drawn[1])
    assert not torch.equal(drawn[0], drawn[2])
    assert not torch.equal(drop(x), drop(x))
