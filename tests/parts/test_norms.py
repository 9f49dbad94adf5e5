"""The fused norms equal their reference formulas."""

import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.testing import assert_close

from regard.parts.norms import BareRMSNorm, BatchNorm, LayerNorm, RMSNorm, bare_rms_norm

B, T, D = 2, 5, 12


def layer_norm_reference(x: Tensor, weight: Tensor, bias: Tensor, eps: float = 1e-5) -> Tensor:
    centred = x - x.mean(-1, keepdim=True)
    return centred * (centred.square().mean(-1, keepdim=True) + eps).rsqrt() * weight + bias


def rms_norm_reference(x: Tensor, weight: Tensor | float = 1.0, eps: float = 1e-5) -> Tensor:
    return x * (x.square().mean(-1, keepdim=True) + eps).rsqrt() * weight


def batch_norm_reference(x: Tensor, weight: Tensor, bias: Tensor, eps: float = 1e-5) -> Tensor:
    """In training mode; at inference, running averages replace mean and variance."""
    centred = x - x.mean((0, 1))
    return centred * (centred.square().mean((0, 1)) + eps).rsqrt() * weight + bias


def numbers(seed: int, scale: float = 1.0) -> torch.Tensor:
    torch.manual_seed(seed)
    return torch.randn(B, T, D, dtype=torch.float64) * scale + scale


@given(seed=st.integers(0, 999), scale=st.sampled_from([1e-3, 1.0, 1e3]))
@settings(deadline=None, derandomize=True, max_examples=30)
def test_fused_norms_equal_their_references(seed: int, scale: float) -> None:
    x = numbers(seed, scale)
    layer, rms, batch = LayerNorm(D).double(), RMSNorm(D, eps=1e-5).double(), BatchNorm(D).double()
    for weight in *layer.parameters(), *rms.parameters(), *batch.parameters():
        torch.nn.init.normal_(weight)
    assert_close(layer(x), layer_norm_reference(x, layer.weight, layer.bias))
    assert_close(rms(x), rms_norm_reference(x, rms.weight))
    assert_close(batch(x), batch_norm_reference(x, batch.weight, batch.bias))
    bare = RMSNorm(D, eps=1e-5, elementwise_affine=False)
    assert not [*bare.parameters()]
    assert_close(bare(x), rms_norm_reference(x))


def test_layer_norm_output_has_mean_zero_and_variance_one() -> None:
    y = LayerNorm(D).double()(numbers(1, 100.0))
    assert_close(y.mean(-1), torch.zeros(B, T, dtype=y.dtype))
    assert_close(y.var(-1, correction=0), torch.ones(B, T, dtype=y.dtype), rtol=1e-6, atol=1e-6)


def test_layer_norm_ignores_shifts_and_both_ignore_scale() -> None:
    x, layer, rms = numbers(2), LayerNorm(D, eps=0.0).double(), RMSNorm(D, eps=0.0).double()
    assert_close(layer(x + 3), layer(x))
    assert (rms(x + 3) - rms(x)).abs().max() > 0.1
    for norm in layer, rms:
        assert_close(norm(x * 7), norm(x))


def test_batch_norm_output_has_mean_zero_and_variance_one_per_feature() -> None:
    y = BatchNorm(D).double()(numbers(1, 100.0)).flatten(0, 1)
    assert_close(y.mean(0), torch.zeros(D, dtype=y.dtype))
    assert_close(y.var(0, correction=0), torch.ones(D, dtype=y.dtype), rtol=1e-6, atol=1e-6)


def changed_tokens(norm: torch.nn.Module) -> int:
    x = numbers(3)
    altered = x.clone()
    altered[1, 2] *= -5
    return int(((norm(x) - norm(altered)).abs().amax(-1) > 1e-9).sum())


def test_only_batch_norm_in_training_mixes_tokens() -> None:
    batch = BatchNorm(D).double()
    assert changed_tokens(batch) == B * T
    assert changed_tokens(batch.eval()) == 1
    assert changed_tokens(LayerNorm(D).double()) == 1


def test_bare_rms_norm_equals_its_reference_with_gradient():
    torch.manual_seed(0)
    x = torch.randn(3, 5, 7, dtype=torch.float64, requires_grad=True)
    torch.testing.assert_close(bare_rms_norm(x, 0.3), rms_norm_reference(x, eps=0.3))
    assert torch.autograd.gradcheck(lambda x: bare_rms_norm(x, 0.3), x)
    assert torch.equal(BareRMSNorm(0.3)(x), bare_rms_norm(x, 0.3))
