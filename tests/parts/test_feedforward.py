"""Feed-forward networks and activations equal their formulas."""

import math

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.testing import assert_close

from regard.parts.feedforward import ACTIVATIONS, FeedForward, SwiGLU, quick_gelu, relu_squared

B, T, D, HIDDEN = 2, 5, 6, 11


def numbers() -> torch.Tensor:
    torch.manual_seed(1)
    return torch.randn(B, T, D, dtype=torch.float64)


@pytest.mark.parametrize("activation", ACTIVATIONS.values(), ids=ACTIVATIONS)
def test_feed_forward_equals_its_formula(activation) -> None:
    x, part = numbers(), FeedForward(D, HIDDEN, activation).double()
    inner = x @ part.up.weight.T + part.up.bias
    assert inner.shape == (B, T, HIDDEN)
    assert_close(part(x), activation(inner) @ part.down.weight.T + part.down.bias)


def test_relu_is_the_default() -> None:
    x, part = numbers(), FeedForward(D, HIDDEN).double()
    assert_close(part(x), part.up(x).clamp(min=0) @ part.down.weight.T + part.down.bias)


def test_swiglu_equals_its_formula() -> None:
    x, part = numbers(), SwiGLU(D, HIDDEN).double()
    gate, up = x @ part.gate.weight.T, x @ part.up.weight.T
    assert_close(part(x), (gate / (1 + (-gate).exp()) * up) @ part.down.weight.T)
    assert [*dict(part.named_parameters())] == ["gate.weight", "up.weight", "down.weight"]


@pytest.mark.parametrize("part", [FeedForward(D, HIDDEN), SwiGLU(D, HIDDEN)])
def test_tokens_are_independent(part: nn.Module) -> None:
    x = numbers().float()
    altered = x.clone()
    altered[0, 2] += 1
    changed = (part(x) - part(altered)).abs().amax(-1) > 1e-6
    assert changed.nonzero().tolist() == [[0, 2]]


def test_relu_squared() -> None:
    x = numbers()
    assert_close(relu_squared(x), torch.where(x > 0, x**2, 0.0))


def test_quick_gelu_approximates_gelu() -> None:
    x = 4 * numbers()
    assert_close(quick_gelu(x), x / (1 + (-1.702 * x).exp()))
    assert_close(quick_gelu(x), F.gelu(x), rtol=0.0, atol=0.021)


def test_activations_equal_their_formulas() -> None:
    x = 3 * numbers()
    formulas = {
        "relu": x.clamp(min=0),
        "gelu": x / 2 * (1 + torch.erf(x / math.sqrt(2))),
        "gelu-tanh": x / 2 * (1 + (math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)).tanh()),
        "silu": x / (1 + (-x).exp()),
        "quick-gelu": x / (1 + (-1.702 * x).exp()),
        "relu2": x.clamp(min=0) ** 2,
    }
    assert formulas.keys() == ACTIVATIONS.keys()
    for name, formula in formulas.items():
        assert_close(ACTIVATIONS[name](x), formula)


def test_relu_squared_gradient():
    torch.manual_seed(0)
    x = torch.randn(3, 5, dtype=torch.float64, requires_grad=True)
    torch.testing.assert_close(relu_squared(x), x.clamp(min=0) ** 2)
    assert torch.autograd.gradcheck(relu_squared, x)
