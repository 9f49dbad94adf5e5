"""Attention equals its formula, respects masks and caches, and a trace changes nothing."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.testing import assert_close

from regard.batch_invariant import reproducible
from regard.look import look
from regard.parts import attention
from regard.parts.attention import (
    CrossAttention,
    SelfAttention,
    attend,
    attention_reference,
    attention_weights,
    resolve_mask,
    split_heads,
)
from regard.parts.cache import Cache

B, H, G, T, S, E = 2, 6, 3, 5, 7, 4
D = H * E
CHUNKS = [(0, 4), (4, 7), (7, 8), (8, 9)]  # the lengths 4, 3, 1, 1 cover every branch of resolve_mask
PATHS = pytest.mark.parametrize("limit", [0, 2**20], ids=["fused", "stored"])


def numbers(*shape: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64)


@st.composite
def attention_inputs(draw: st.DrawFn) -> tuple[list[Tensor], dict[str, object]]:
    """q, k, v of matching random shapes, and any of mask, bias, causal and scale."""
    torch.manual_seed(draw(st.integers(0, 999)))
    size = st.integers(1, 4)
    b, g, h, e, t = draw(size), draw(size), draw(size), draw(size), draw(st.integers(1, 6))
    s = t + draw(st.integers(0, 5))
    mask = torch.rand(b, 1, draw(st.sampled_from([1, t])), s) < 0.6
    mask[..., 0] = True  # no fully masked row
    bias = numbers(draw(st.sampled_from([1, b])), h * g, t, s)
    options = {
        "mask": draw(st.sampled_from([None, mask])),
        "bias": draw(st.sampled_from([None, bias])),
        "causal": draw(st.booleans()),
        "scale": draw(st.sampled_from([None, 1.0, 0.3])),
    }
    return [numbers(b, h * g, t, e), numbers(b, g, s, e), numbers(b, g, s, e)], options


def by_hand(q: Tensor, k: Tensor, v: Tensor, mask, bias, causal, scale) -> Tensor:
    """Number by number, without matrices and broadcasting."""
    (b, h, t, e), s, share = q.shape, k.size(2), q.size(1) // k.size(1)
    scale = e**-0.5 if scale is None else scale
    mask = torch.ones(b, h, t, s).bool() if mask is None else mask.expand(b, h, t, s)
    bias = torch.zeros(b, h, t, s) if bias is None else bias.expand(b, h, t, s)
    out = torch.zeros(b, h, t, e, dtype=q.dtype)
    for i, j, now in torch.cartesian_prod(*map(torch.arange, (b, h, t))).view(-1, 3).tolist():
        visible = [x for x in range(s) if mask[i, j, now, x] and (not causal or x <= now + s - t)]
        power = [math.exp(q[i, j, now] @ k[i, j // share, x] * scale + bias[i, j, now, x]) for x in visible]
        out[i, j, now] = sum(p / sum(power) * v[i, j // share, x] for p, x in zip(power, visible, strict=True))
    return out


@given(inputs=attention_inputs())
@settings(deadline=None, derandomize=True, max_examples=60)
def test_reference_equals_computation_by_hand(inputs) -> None:
    qkv, options = inputs
    assert_close(attention_reference(*qkv, **options), by_hand(*qkv, **options))


@PATHS
@given(inputs=attention_inputs())
@settings(deadline=None, derandomize=True, max_examples=80)
def test_kernel_equals_reference_with_gradients(limit: int, inputs) -> None:
    qkv, options = inputs
    leaves = [x.requires_grad_() for x in [*qkv, *([options["bias"]] if options["bias"] is not None else [])]]
    expected = attention_reference(*qkv, **options)
    weighting = torch.randn_like(expected)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(attention, "UNFUSED_LIMIT", limit)
        actual = attend(*qkv, **options)
    assert_close(actual, expected)
    gradients = [torch.autograd.grad((y * weighting).sum(), leaves) for y in (actual, expected)]
    assert_close(*gradients)


def test_only_short_training_on_a_cpu_is_unfused(monkeypatch: pytest.MonkeyPatch) -> None:
    stored = []
    monkeypatch.setattr(attention, "attention_reference", lambda q, *_: stored.append(True) or q)
    monkeypatch.setattr(attention, "UNFUSED_LIMIT", T * S)
    q, k, longer = numbers(B, H, T, E), numbers(B, H, S, E), numbers(B, H, S + 1, E)
    for requires_grad, keys, expected in [(True, k, True), (False, k, False), (True, longer, False)]:
        stored.clear()
        attend(q.clone().requires_grad_(requires_grad), keys, keys)
        assert bool(stored) is expected


@given(inputs=attention_inputs())
@settings(deadline=None, derandomize=True, max_examples=40)
def test_weights_sum_to_one_and_are_zero_where_masked(inputs) -> None:
    (q, k, _), options = inputs
    weights = attention_weights(q, k, **options)
    assert_close(weights.sum(-1), torch.ones_like(weights[..., 0]))
    if options["mask"] is not None:
        assert not weights[~options["mask"].expand_as(weights)].any()


def test_worked_example_of_112_and_96() -> None:
    q = torch.ones(1, 1, 1, 64)
    k = torch.stack([torch.full((64,), 112 / 64), torch.full((64,), 96 / 64)])[None, None]
    assert (q @ k.mT).flatten().tolist() == [112, 96]
    weights = attention_weights(q, k).flatten()
    assert_close(weights, torch.tensor([14.0, 12.0]).softmax(-1))
    assert [round(w, 2) for w in weights.tolist()] == [0.88, 0.12]


class TestResolveMask:
    def test_mask_is_unchanged_if_not_causal_or_for_one_new_token(self) -> None:
        q, k, mask = numbers(B, H, T, E), numbers(B, H, S, E), torch.ones(B, 1, 1, S).bool()
        for padding in None, mask:
            assert resolve_mask(q, k, padding, causal=False) == (padding, False)
            assert resolve_mask(q[:, :, :1], k, padding, causal=True) == (padding, False)

    def test_is_causal_only_for_as_many_queries_as_keys(self) -> None:
        q, k = numbers(B, H, T, E), numbers(B, H, S, E)
        assert resolve_mask(q, q, None, causal=True) == (None, True)
        mask, is_causal = resolve_mask(q, k, None, causal=True)
        assert mask is not None
        assert not is_causal

    @pytest.mark.parametrize("masked", [False, True])
    def test_causal_mask_is_aligned_with_the_last_key(self, masked: bool) -> None:
        q, k = numbers(B, H, T, E), numbers(B, H, S, E)
        mask = (torch.arange(S) != 1) if masked else None
        trace, is_causal = resolve_mask(q, k, mask, causal=True)
        assert not is_causal
        assert trace.tolist() == [[s <= t + S - T and not (masked and s == 1) for s in range(S)] for t in range(T)]

    def test_materialize_always_returns_a_mask(self) -> None:
        q = numbers(B, H, T, E)
        trace, is_causal = resolve_mask(q, q, None, causal=True, materialize=True)
        assert not is_causal
        assert torch.equal(trace, torch.ones(T, T).tril().bool())


def self_attention(causal: bool = True, **options: object) -> SelfAttention:
    torch.manual_seed(3)
    return SelfAttention(D, H, G, causal=causal, **options).double()


@PATHS
@pytest.mark.parametrize("changed", range(T))
def test_causal_attention_ignores_later_tokens(changed: int, limit: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attention, "UNFUSED_LIMIT", limit)
    mixer, x = self_attention(), numbers(B, T, D)
    altered = x.clone()
    altered[:, changed] += 1
    changed_positions = (mixer(x) - mixer(altered)).abs().amax((0, 2)) > 1e-9
    assert changed_positions.tolist() == [t >= changed for t in range(T)]
    mixer = self_attention(causal=False)
    assert ((mixer(x) - mixer(altered)).abs().amax((0, 2)) > 1e-9).all()


def shift(q: Tensor, k: Tensor, start: int) -> tuple[Tensor, Tensor]:
    """A stand-in for rotary positions: depends on the absolute position."""
    offset = (torch.arange(start, start + q.size(2), dtype=q.dtype) * 0.7).sin()[:, None]
    return q + offset, k * (1 + offset)


@PATHS
@pytest.mark.parametrize("rotate", [None, shift])
def test_chunks_with_a_cache_equal_the_full_forward(rotate, limit: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attention, "UNFUSED_LIMIT", limit)
    mixer, x, cache = self_attention(rotate=rotate), numbers(B, 9, D), Cache()
    with torch.no_grad():
        chunks = [mixer(x[:, a:b], cache=cache) for a, b in CHUNKS]
    assert_close(torch.cat(chunks, 1), mixer(x))


def cross_attention() -> tuple[CrossAttention, Tensor, Tensor]:
    torch.manual_seed(4)
    mask = torch.arange(S) < torch.tensor([S, S - 3])[:, None]
    return CrossAttention(D, H).double(), numbers(B, S, D), mask[:, None, None]


@pytest.mark.parametrize("tokens", [1, T])
def test_beams_that_share_a_source_equal_repeated_sources(tokens: int) -> None:
    cross, source, mask = cross_attention()
    beams = 3
    x = numbers(B * beams, tokens, D)
    repeated = cross(x, source.repeat_interleave(beams, 0), mask.repeat_interleave(beams, 0))
    assert_close(cross(x, source, mask), repeated)
    with look(cross) as shared:
        cross(x, source, mask)
    with look(cross) as alone:
        cross(x, source.repeat_interleave(beams, 0), mask.repeat_interleave(beams, 0))
    assert_close(shared["weights"], alone["weights"])


def test_cached_source_equals_the_source_itself() -> None:
    cross, source, mask = cross_attention()
    cache = Cache(cross.project_kv(source), mask)
    x = numbers(B, T, D)
    assert_close(cross(x, cache=cache), cross(x, source, mask))
    hidden = torch.where(mask[:, 0, 0, :, None], source, 99.0)
    assert_close(cross(x, hidden, mask), cross(x, source, mask))


@pytest.mark.parametrize("requires_grad", [False, True])
def test_trace_records_weights_and_changes_no_bit(requires_grad: bool) -> None:
    mixer, x = self_attention().requires_grad_(requires_grad), numbers(B, T, D)  # fused, then unfused
    before = mixer(x)
    with look(mixer) as trace:
        during = mixer(x)
    saved = {name: tensor.clone() for name, tensor in trace.items()}
    assert torch.equal(before, during)
    assert torch.equal(trace[""], before)
    assert_close(
        trace["weights"], attention_weights(split_heads(trace["query"], H), split_heads(trace["key"], G), causal=True)
    )
    mixer(x + 1)
    assert all(torch.equal(trace[name], saved[name]) for name in saved)
    assert not any(module._forward_hooks for module in mixer.modules())


def test_trace_ends_when_the_model_fails() -> None:
    mixer = self_attention()
    with pytest.raises(RuntimeError), look(mixer):
        mixer(numbers(B, T, D + 1))
    assert not any(module._forward_hooks for module in mixer.modules())
    assert not attention.is_traced()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_fully_masked_row_is_finite(dtype):
    """In the kernel and the reference, with and without bias and gradients; the other rows do not change."""
    torch.manual_seed(1)
    q, k, v = (torch.randn(2, 2, 5, 16, dtype=dtype) for _ in range(3))
    mask = torch.ones(2, 1, 5, 5, dtype=torch.bool)
    mask[1, :, 3] = False
    for bias in (None, torch.randn(1, 2, 5, 5, dtype=dtype)):
        for requires_grad in (False, True):
            q.requires_grad_(requires_grad)
            outputs = [function(q, k, v, mask, bias) for function in (attend, attention_reference)]
            assert all(y.isfinite().all() for y in outputs)
            visible_rows = torch.arange(10).view(2, 1, 5, 1).expand(2, 2, 5, 16) != 8
            unmasked = attention_reference(q, k, v, None, bias)
            assert_close(outputs[1][visible_rows], unmasked[visible_rows], rtol=0, atol=0)
    if dtype == torch.float32:
        with reproducible():
            assert attend(q.detach(), k, v, mask).isfinite().all()
    q = q.detach().requires_grad_()
    attend(q, k, v, mask).sum().backward()
    assert q.grad.isfinite().all()
