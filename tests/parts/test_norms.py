"""The fused norms compute what the open formulas say."""

import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.testing import assert_close

from regard.parts.norms import LayerNorm, RMSNorm, layer_norm_openly, rms_norm_openly

B, T, D = 2, 5, 12


def numbers(seed: int, scale: float = 1.0) -> torch.Tensor:
    torch.manual_seed(seed)
    return torch.randn(B, T, D, dtype=torch.float64) * scale + scale


@given(seed=st.integers(0, 999), scale=st.sampled_from([1e-3, 1.0, 1e3]))
@settings(deadline=None, derandomize=True, max_examples=30)
def test_fused_equals_open(seed: int, scale: float) -> None:
    x = numbers(seed, scale)
    layer, rms = LayerNorm(D).double(), RMSNorm(D, eps=1e-5).double()
    for weight in *layer.parameters(), *rms.parameters():
        torch.nn.init.normal_(weight)
    assert_close(layer(x), layer_norm_openly(x, layer.weight, layer.bias))
    assert_close(rms(x), rms_norm_openly(x, rms.weight))


def test_a_layer_norm_leaves_mean_zero_and_variance_one() -> None:
    y = LayerNorm(D).double()(numbers(1, 100.0))
    assert_close(y.mean(-1), torch.zeros(B, T, dtype=y.dtype))
    assert_close(y.var(-1, correction=0), torch.ones(B, T, dtype=y.dtype), rtol=1e-6, atol=1e-6)


def test_shifting_a_token_changes_only_the_rms_norm_and_scaling_it_neither() -> None:
    x, layer, rms = numbers(2), LayerNorm(D, eps=0.0).double(), RMSNorm(D, eps=0.0).double()
    assert_close(layer(x + 3), layer(x))
    assert (rms(x + 3) - rms(x)).abs().max() > 0.1
    for norm in layer, rms:
        assert_close(norm(x * 7), norm(x))
