"""Linear layers are one linear layer, whatever their sizes; with an activation between they are not."""

import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from torch import nn
from torch.testing import assert_close

from regard.lab import linear
from regard.lab.linear import QUICK, LinearOptions, collapse, least_squares, relative_error, run
from regard.lab.result import no_progress
from regard.parts.feedforward import FeedForward


@settings(max_examples=40)
@given(sizes=st.lists(st.integers(1, 9), min_size=2, max_size=7), seed=st.integers(0, 99))
@example(sizes=[4, 4, 4], seed=1)  # where the other order of the product would fit too
def test_layers_of_any_sizes_collapse(sizes, seed):
    torch.manual_seed(seed)
    layers = [nn.Linear(*pair, dtype=torch.float64) for pair in zip(sizes, sizes[1:], strict=False)]
    x = torch.randn(5, sizes[0], dtype=torch.float64)
    weight, bias = collapse(layers)
    assert weight.shape == (sizes[-1], sizes[0])
    assert_close(x @ weight.mT + bias, nn.Sequential(*layers)(x))


def test_least_squares_recovers_the_layer():
    torch.manual_seed(1)
    layer, x = nn.Linear(4, 3, dtype=torch.float64), torch.randn(20, 4, dtype=torch.float64)
    weight, bias = least_squares(x, layer(x))
    assert_close((weight, bias), (layer.weight.detach(), layer.bias.detach()))


def test_least_squares_is_optimal():
    torch.manual_seed(1)
    x = torch.randn(50, 4, dtype=torch.float64)
    y = torch.stack((x[:, 0].relu(), x[:, 1] * x[:, 2]), 1)
    weight, bias = least_squares(x, y)
    best = relative_error(y, x @ weight.mT + bias)
    assert 0 < best < relative_error(y, y.mean(0).expand_as(y)) == 1
    for _ in range(20):
        other = weight + 0.01 * torch.randn_like(weight)
        assert relative_error(y, x @ other.mT + bias) > best


def test_the_claim_holds_and_is_deterministic():
    result = run(QUICK, no_progress)
    assert result.holds
    for row, repeated in zip(result.table, run(QUICK, no_progress).table, strict=True):
        first, second = (list(values.values())[1:] for values in (row, repeated))
        assert first == pytest.approx(second, rel=1e-9, abs=1e-12)  # LAPACK does not promise the last bit
    assert [row["activation"] for row in result.table] == ["none", "relu", "gelu", "tanh", "sigmoid"]
    assert len(result.figure.axes) == 2


@pytest.mark.parametrize(("name", "wrong"), [("none", torch.relu), ("tanh", nn.Identity())])
def test_the_claim_fails_with_another_activation(name, wrong, monkeypatch):
    monkeypatch.setitem(linear.BETWEEN, name, wrong)
    assert not run(QUICK, no_progress).holds


@pytest.mark.parametrize(
    "forward", [lambda part, x: part.down(part.up(x)), lambda part, x: part.down(part.up(x).relu())]
)
def test_the_claim_fails_if_the_activation_is_ignored(forward, monkeypatch):
    monkeypatch.setattr(FeedForward, "forward", forward)
    assert not run(QUICK, no_progress).holds


def test_too_few_inputs_to_fit_are_refused():
    with pytest.raises(ValueError, match="inputs must be more than dim, not 16"):
        LinearOptions(inputs=16)
