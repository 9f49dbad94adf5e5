"""One kernel gives what the formula says, nobody sees what they may not, and looking changes nothing."""

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
    attend_openly,
    split,
    weights_openly,
    what_may_be_seen,
)
from regard.parts.cache import Cache

B, H, G, T, S, E = 2, 6, 3, 5, 7, 4
D = H * E
PIECES = [(0, 4), (4, 7), (7, 8), (8, 9)]  # the lengths 4, 3, 1, 1 meet every branch of what_may_be_seen
PATHS = pytest.mark.parametrize("short", [0, 2**20], ids=["fused", "stored"])


def numbers(*shape: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64)


@st.composite
def questions(draw: st.DrawFn) -> tuple[list[Tensor], dict[str, object]]:
    """q, k, v of any shape that fits, and any of mask, bias, causality and scale."""
    torch.manual_seed(draw(st.integers(0, 999)))
    size = st.integers(1, 4)
    b, g, h, e, t = draw(size), draw(size), draw(size), draw(size), draw(st.integers(1, 6))
    s = t + draw(st.integers(0, 5))
    mask = torch.rand(b, 1, draw(st.sampled_from([1, t])), s) < 0.6
    mask[..., 0] = True  # a token that sees nothing has no answer
    bias = numbers(draw(st.sampled_from([1, b])), h * g, t, s)
    how = {
        "mask": draw(st.sampled_from([None, mask])),
        "bias": draw(st.sampled_from([None, bias])),
        "causal": draw(st.booleans()),
        "scale": draw(st.sampled_from([None, 1.0, 0.3])),
    }
    return [numbers(b, h * g, t, e), numbers(b, g, s, e), numbers(b, g, s, e)], how


def by_hand(q: Tensor, k: Tensor, v: Tensor, mask, bias, causal, scale) -> Tensor:
    """Number by number: no matrices, no broadcasting, no tricks."""
    (b, h, t, e), s, share = q.shape, k.size(2), q.size(1) // k.size(1)
    scale = e**-0.5 if scale is None else scale
    mask = torch.ones(b, h, t, s).bool() if mask is None else mask.expand(b, h, t, s)
    bias = torch.zeros(b, h, t, s) if bias is None else bias.expand(b, h, t, s)
    out = torch.zeros(b, h, t, e, dtype=q.dtype)
    for at in torch.cartesian_prod(*map(torch.arange, (b, h, t))).view(-1, 3).tolist():
        i, j, now = at
        told = [x for x in range(s) if mask[i, j, now, x] and (not causal or x <= now + s - t)]
        power = [math.exp(q[i, j, now] @ k[i, j // share, x] * scale + bias[i, j, now, x]) for x in told]
        out[i, j, now] = sum(p / sum(power) * v[i, j // share, x] for p, x in zip(power, told, strict=True))
    return out


@given(asked=questions())
@settings(deadline=None, derandomize=True, max_examples=60)
def test_the_open_formula_is_the_one_done_by_hand(asked) -> None:
    qkv, how = asked
    assert_close(attend_openly(*qkv, **how), by_hand(*qkv, **how))


@PATHS
@given(asked=questions())
@settings(deadline=None, derandomize=True, max_examples=80)
def test_the_kernel_gives_the_answers_and_gradients_of_the_open_formula(short: int, asked) -> None:
    qkv, how = asked
    leaves = [x.requires_grad_() for x in [*qkv, *([how["bias"]] if how["bias"] is not None else [])]]
    wanted = attend_openly(*qkv, **how)
    weighting = torch.randn_like(wanted)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(attention, "SHORT", short)
        got = attend(*qkv, **how)
    assert_close(got, wanted)
    gradients = [torch.autograd.grad((y * weighting).sum(), leaves) for y in (got, wanted)]
    assert_close(*gradients)


def test_only_short_training_on_a_cpu_stores_the_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    stored = []
    monkeypatch.setattr(attention, "attend_openly", lambda q, *_: stored.append(True) or q)
    monkeypatch.setattr(attention, "SHORT", T * S)
    q, k, longer = numbers(B, H, T, E), numbers(B, H, S, E), numbers(B, H, S + 1, E)
    for learning, keys, expected in [(True, k, True), (False, k, False), (True, longer, False)]:
        stored.clear()
        attend(q.clone().requires_grad_(learning), keys, keys)
        assert bool(stored) is expected


@given(asked=questions())
@settings(deadline=None, derandomize=True, max_examples=40)
def test_every_row_of_weights_sums_to_one_and_is_zero_where_hidden(asked) -> None:
    (q, k, _), how = asked
    weights = weights_openly(q, k, **how)
    assert_close(weights.sum(-1), torch.ones_like(weights[..., 0]))
    if how["mask"] is not None:
        assert not weights[~how["mask"].expand_as(weights)].any()


def test_the_worked_example_of_112_and_96() -> None:
    q = torch.ones(1, 1, 1, 64)
    k = torch.stack([torch.full((64,), 112 / 64), torch.full((64,), 96 / 64)])[None, None]
    assert (q @ k.mT).flatten().tolist() == [112, 96]
    weights = weights_openly(q, k).flatten()
    assert_close(weights, torch.tensor([14.0, 12.0]).softmax(-1))
    assert [round(w, 2) for w in weights.tolist()] == [0.88, 0.12]


class TestWhatMayBeSeen:
    def test_nothing_changes_without_causality_or_for_one_new_token(self) -> None:
        q, k, mask = numbers(B, H, T, E), numbers(B, H, S, E), torch.ones(B, 1, 1, S).bool()
        for given_mask in None, mask:
            assert what_may_be_seen(q, k, given_mask, causal=False) == (given_mask, False)
            assert what_may_be_seen(q[:, :, :1], k, given_mask, causal=True) == (given_mask, False)

    def test_the_kernel_masks_by_itself_only_when_as_many_ask_as_answer(self) -> None:
        q, k = numbers(B, H, T, E), numbers(B, H, S, E)
        assert what_may_be_seen(q, q, None, causal=True) == (None, True)
        mask, switch = what_may_be_seen(q, k, None, causal=True)
        assert mask is not None
        assert not switch

    @pytest.mark.parametrize("masked", [False, True])
    def test_the_last_of_the_new_tokens_sees_all_and_each_before_it_one_less(self, masked: bool) -> None:
        q, k = numbers(B, H, T, E), numbers(B, H, S, E)
        mask = (torch.arange(S) != 1) if masked else None
        seen, switch = what_may_be_seen(q, k, mask, causal=True)
        assert not switch
        assert seen.tolist() == [[s <= t + S - T and not (masked and s == 1) for s in range(S)] for t in range(T)]

    def test_spelled_out_it_is_always_a_mask(self) -> None:
        q = numbers(B, H, T, E)
        seen, switch = what_may_be_seen(q, q, None, causal=True, spell=True)
        assert not switch
        assert torch.equal(seen, torch.ones(T, T).tril().bool())


def self_attention(causal: bool = True, **how: object) -> SelfAttention:
    torch.manual_seed(3)
    return SelfAttention(D, H, G, causal=causal, **how).double()


@PATHS
@pytest.mark.parametrize("changed", range(T))
def test_what_comes_later_cannot_change_what_came_before(
    changed: int, short: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attention, "SHORT", short)
    mixer, x = self_attention(), numbers(B, T, D)
    other = x.clone()
    other[:, changed] += 1
    differs = (mixer(x) - mixer(other)).abs().amax((0, 2)) > 1e-9
    assert differs.tolist() == [t >= changed for t in range(T)]
    mixer = self_attention(causal=False)
    assert ((mixer(x) - mixer(other)).abs().amax((0, 2)) > 1e-9).all()


def shifted(q: Tensor, k: Tensor, start: int) -> tuple[Tensor, Tensor]:
    """Stands for rotary positions: what is done to a token depends on its place in the whole text."""
    places = (torch.arange(start, start + q.size(2), dtype=q.dtype) * 0.7).sin()[:, None]
    return q + places, k * (1 + places)


@PATHS
@pytest.mark.parametrize("rotate", [None, shifted])
def test_piece_by_piece_equals_all_at_once(rotate, short: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attention, "SHORT", short)
    mixer, x, cache = self_attention(rotate=rotate), numbers(B, 9, D), Cache()
    with torch.no_grad():
        pieces = [mixer(x[:, a:b], cache=cache) for a, b in PIECES]
    assert_close(torch.cat(pieces, 1), mixer(x))


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


def test_a_source_in_the_cache_equals_the_source_itself() -> None:
    cross, source, mask = cross_attention()
    cache = Cache(cross.answers(source), mask)
    x = numbers(B, T, D)
    assert_close(cross(x, cache=cache), cross(x, source, mask))
    hidden = torch.where(mask[:, 0, 0, :, None], source, 99.0)
    assert_close(cross(x, hidden, mask), cross(x, source, mask))


@pytest.mark.parametrize("learning", [False, True])
def test_looking_shows_the_weights_changes_no_bit_and_leaves_nothing_behind(learning: bool) -> None:
    mixer, x = self_attention().requires_grad_(learning), numbers(B, T, D)  # the stored weights, then the fused kernel
    before = mixer(x)
    with look(mixer) as seen:
        during = mixer(x)
    kept = {name: tensor.clone() for name, tensor in seen.items()}
    assert torch.equal(before, during)
    assert torch.equal(seen[""], before)
    assert_close(seen["weights"], weights_openly(split(seen["query"], H), split(seen["key"], G), causal=True))
    mixer(x + 1)
    assert all(torch.equal(seen[name], kept[name]) for name in kept)
    assert not any(module._forward_hooks for module in mixer.modules())


def test_looking_ends_when_the_model_fails() -> None:
    mixer = self_attention()
    with pytest.raises(RuntimeError), look(mixer):
        mixer(numbers(B, T, D + 1))
    assert not any(module._forward_hooks for module in mixer.modules())
    assert not attention.is_traced()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_a_row_that_sees_nothing_is_finite(dtype):
    """In the kernel, in the open, with a bias, and when gradients flow; and all other rows are as ever."""
    torch.manual_seed(1)
    q, k, v = (torch.randn(2, 2, 5, 16, dtype=dtype) for _ in range(3))
    mask = torch.ones(2, 1, 5, 5, dtype=torch.bool)
    mask[1, :, 3] = False
    for bias in (None, torch.randn(1, 2, 5, 5, dtype=dtype)):
        for learning in (False, True):
            q.requires_grad_(learning)
            found = [way(q, k, v, mask, bias) for way in (attend, attend_openly)]
            assert all(y.isfinite().all() for y in found)
            others = torch.arange(10).view(2, 1, 5, 1).expand(2, 2, 5, 16) != 8
            whole = attend_openly(q, k, v, None, bias)
            assert_close(found[1][others], whole[others], rtol=0, atol=0)
    if dtype == torch.float32:
        with reproducible():
            assert attend(q.detach(), k, v, mask).isfinite().all()
    q = q.detach().requires_grad_()
    attend(q, k, v, mask).sum().backward()
    assert q.grad.isfinite().all()
