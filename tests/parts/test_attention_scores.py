"""Attention scores equal those of the papers, and additive attention supports caches, beams and traces."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.testing import assert_close

from regard.look import look
from regard.parts.attention import attention_reference
from regard.parts.attention_scores import (
    AdditiveAttention,
    additive,
    dot,
    gaussian,
    kernel_average,
    masked_softmax,
    scaled_dot,
)
from regard.parts.cache import Cache

B, T, S, D, E = 2, 3, 5, 6, 4


def numbers(*shape: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64)


def weighted_sum(scores: Tensor, v: Tensor, mask: Tensor | None = None) -> Tensor:
    return masked_softmax(scores, mask) @ v


def test_scores_equal_computation_by_hand() -> None:
    torch.manual_seed(1)
    q, k, u, width = numbers(B, T, E), numbers(B, S, E), numbers(E), 0.7
    scores = {
        "dot": dot(q, k),
        "scaled": scaled_dot(q, k),
        "additive": additive(q, k, u),
        "gaussian": gaussian(q, k, width),
    }
    for b, t, s in torch.cartesian_prod(*map(torch.arange, (B, T, S))).tolist():
        x, y = q[b, t].tolist(), k[b, s].tolist()
        pairs = list(zip(x, y, u.tolist(), strict=True))
        expected = {
            "dot": sum(i * j for i, j, _ in pairs),
            "scaled": sum(i * j for i, j, _ in pairs) / E**0.5,
            "additive": sum(w * math.tanh(i + j) for i, j, w in pairs),
            "gaussian": -(math.dist(x, y) ** 2) / (2 * width**2),
        }
        assert {name: score[b, t, s].item() for name, score in scores.items()} == pytest.approx(expected)


def test_worked_example_of_112_and_96() -> None:
    q, k = torch.ones(1, 64), torch.stack([torch.full((64,), 112 / 64), torch.full((64,), 96 / 64)])
    assert dot(q, k).tolist() == [[112, 96]]
    assert scaled_dot(q, k).tolist() == [[14, 12]]
    weights = masked_softmax(scaled_dot(q, k))
    assert [round(w, 2) for w in weights[0].tolist()] == [0.88, 0.12]
    v = torch.tensor([[1.0, 0.0], [0.0, 1.0]])
    assert_close(weighted_sum(scaled_dot(q, k), v), weights)


def test_softmax_of_one_large_score() -> None:
    assert [round(w, 2) for w in masked_softmax(torch.tensor([1.0, 1.0, 1.0, 5.0])).tolist()] == [
        0.02,
        0.02,
        0.02,
        0.95,
    ]


@given(seed=st.integers(0, 999), masked=st.booleans())
@settings(max_examples=30)
def test_kernel_average_is_attention_with_log_kernel_scores(seed: int, masked: bool) -> None:
    torch.manual_seed(seed)
    q, k, v, mask = numbers(B, T, E), numbers(B, S, E), numbers(B, S, D), torch.rand(B, 1, S) < 0.6
    mask[..., 0] = True
    mask = mask if masked else None
    heads = None if mask is None else mask[:, None]
    assert_close(kernel_average(dot(q, k).exp(), v, mask), weighted_sum(dot(q, k), v, mask))
    assert_close(
        weighted_sum(dot(q, k), v, mask),
        attention_reference(q[:, None], k[:, None], v[:, None], heads, scale=1.0)[:, 0],
    )
    assert_close(
        weighted_sum(scaled_dot(q, k), v, mask), attention_reference(q[:, None], k[:, None], v[:, None], heads)[:, 0]
    )
    for width in 0.5, 2.0:
        kernel = (-torch.cdist(q, k).square() / (2 * width**2)).exp()
        assert_close(kernel_average(kernel, v, mask), weighted_sum(gaussian(q, k, width), v, mask))


def test_narrow_gaussian_gives_the_nearest_value_and_wide_one_the_mean() -> None:
    torch.manual_seed(2)
    k, v = torch.tensor([[0.0], [1.0], [3.0]]).double(), numbers(3, D)
    q = torch.tensor([[0.9], [2.5]]).double()
    assert_close(weighted_sum(gaussian(q, k, 0.01), v), v[[1, 2]])
    assert_close(weighted_sum(gaussian(q, k, 1e6), v), v.mean(0).expand(2, D))


def make_attention() -> tuple[AdditiveAttention, Tensor, Tensor]:
    torch.manual_seed(4)
    mask = torch.arange(S) < torch.tensor([S, S - 3])[:, None]
    return AdditiveAttention(D, E).double(), numbers(B, S, D), mask[:, None, None]


def test_additive_attention_equals_the_paper() -> None:
    cross, source, mask = make_attention()
    x = numbers(B, T, D)
    y = cross(x, source, mask)
    for b, t in torch.cartesian_prod(torch.arange(B), torch.arange(T)).tolist():
        real = source[b, : mask[b].sum()]
        scores = (cross.query.weight @ x[b, t] + real @ cross.key.weight.T + cross.key.bias).tanh() @ cross.score
        assert_close(y[b, t], cross.out(scores.softmax(0) @ real))


@pytest.mark.parametrize("tokens", [1, T])
def test_beams_that_share_a_source_equal_repeated_sources(tokens: int) -> None:
    cross, source, mask = make_attention()
    beams = 4
    x = numbers(B * beams, tokens, D)
    with look(cross) as shared:
        together = cross(x, source, mask)
    with look(cross) as alone:
        repeated = cross(x, source.repeat_interleave(beams, 0), mask.repeat_interleave(beams, 0))
    assert_close(together, repeated)
    assert shared["weights"].shape == (B * beams, 1, tokens, S)
    assert_close(shared["weights"], alone["weights"])


def test_cached_source_equals_the_source_and_padding_is_invisible() -> None:
    cross, source, mask = make_attention()
    x = numbers(B, T, D)
    keys, values = cross.project_kv(source)
    assert (keys.shape, values.shape) == ((B, 1, S, E), (B, 1, S, D))
    assert_close(cross(x, cache=Cache((keys, values), mask)), cross(x, source, mask))
    altered = torch.where(mask[:, 0, 0, :, None], source, 99.0)
    assert_close(cross(x, altered, mask), cross(x, source, mask))
    with pytest.raises(AssertionError, match="needs a source"):
        cross(x, cache=Cache())


def test_trace_records_weights_and_changes_no_bit() -> None:
    cross, source, mask = make_attention()
    x = numbers(B, T, D)
    before = cross(x, source, mask)
    with look(cross) as trace:
        assert torch.equal(cross(x, source, mask), before)
    assert_close(trace["weights"].sum(-1), torch.ones(B, 1, T).double())
    assert not trace["weights"][~mask.expand(B, 1, T, S)].any()
    assert_close(cross.out(trace["weights"][:, 0] @ source), before)


def test_every_weight_learns() -> None:
    cross, source, mask = make_attention()
    cross(numbers(B, T, D), source, mask).square().sum().backward()
    assert all(weight.grad.abs().max() > 1e-9 for weight in cross.parameters())
