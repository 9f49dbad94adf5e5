"""Each token thinks alone, by the formula on top of the file."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.testing import assert_close

from regard.parts.feedforward import FeedForward, SwiGLU

B, T, D, HIDDEN = 2, 5, 6, 11


def numbers() -> torch.Tensor:
    torch.manual_seed(1)
    return torch.randn(B, T, D, dtype=torch.float64)


@pytest.mark.parametrize("activation", [F.relu, F.gelu])
def test_a_feed_forward_is_two_matrices_and_what_is_between(activation) -> None:
    x, part = numbers(), FeedForward(D, HIDDEN, activation).double()
    inner = x @ part.up.weight.T + part.up.bias
    assert inner.shape == (B, T, HIDDEN)
    assert_close(part(x), activation(inner) @ part.down.weight.T + part.down.bias)


def test_the_relu_of_the_paper_is_the_default() -> None:
    x, part = numbers(), FeedForward(D, HIDDEN).double()
    assert_close(part(x), part.up(x).clamp(min=0) @ part.down.weight.T + part.down.bias)


def test_a_swiglu_lets_through_what_its_gate_opens() -> None:
    x, part = numbers(), SwiGLU(D, HIDDEN).double()
    gate, up = x @ part.gate.weight.T, x @ part.up.weight.T
    assert_close(part(x), (gate / (1 + (-gate).exp()) * up) @ part.down.weight.T)
    assert [*dict(part.named_parameters())] == ["gate.weight", "up.weight", "down.weight"]


@pytest.mark.parametrize("part", [FeedForward(D, HIDDEN), SwiGLU(D, HIDDEN)])
def test_no_token_hears_of_another(part: nn.Module) -> None:
    x = numbers().float()
    other = x.clone()
    other[0, 2] += 1
    changed = (part(x) - part(other)).abs().amax(-1) > 1e-6
    assert changed.nonzero().tolist() == [[0, 2]]
