"""The two ways to write a memory agree, and it keeps what its formula says: everything, or less of what is older."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.testing import assert_close

from regard.look import look
from regard.parts.cache import Cache
from regard.parts.linear_attention import (
    LinearAttention,
    Retention,
    linear_attention_parallel,
    linear_attention_recurrent,
    linear_attention_weights,
)

B, H, T, E = 2, 3, 9, 4
D = H * E
PIECES = [(0, 4), (4, 7), (7, 8), (8, 9)]
KINDS = pytest.mark.parametrize("kind", [LinearAttention, Retention])


def numbers(*shape: int, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.randn(*shape, dtype=dtype)


def mixer_of(kind: type[LinearAttention]) -> LinearAttention:
    torch.manual_seed(5)
    return kind(D, H).double()


@pytest.mark.parametrize(("dtype", "near"), [(torch.float64, 1e-12), (torch.float32, 1e-6)])
@given(
    seed=st.integers(0, 999),
    length=st.integers(1, 12),
    gamma=st.lists(st.floats(0.01, 1.0), min_size=H, max_size=H),
)
@settings(max_examples=50)
def test_all_at_once_equals_token_by_token(dtype, near, seed: int, length: int, gamma: list[float]) -> None:
    torch.manual_seed(seed)
    q, k, v = (numbers(B, H, length, E, dtype=dtype) / E for _ in range(3))
    state, kept = numbers(B, H, E, E, dtype=dtype) / E, torch.tensor(gamma, dtype=dtype)
    for ours, theirs in zip(
        linear_attention_parallel(q, k, v, kept, state), linear_attention_recurrent(q, k, v, kept, state), strict=True
    ):
        assert_close(ours, theirs, rtol=near, atol=near)


def test_an_answer_is_the_faded_sum_done_by_hand() -> None:
    torch.manual_seed(6)
    q, k, v, gamma = (
        numbers(B, H, T, E),
        numbers(B, H, T, E),
        numbers(B, H, T, E),
        torch.tensor([1.0, 0.5, 0.9]).double(),
    )
    got, _ = linear_attention_recurrent(q, k, v, gamma, torch.zeros(B, H, E, E).double())
    for b, h, t in torch.cartesian_prod(*map(torch.arange, (B, H, T))).tolist():
        wanted = sum(gamma[h] ** (t - s) * (q[b, h, t] @ k[b, h, s]) * v[b, h, s] for s in range(t + 1))
        assert_close(got[b, h, t], wanted)


def test_a_sum_finds_what_it_met_first_and_a_fading_memory_less_and_less_of_it() -> None:
    """Keys at right angles do not blur."""
    torch.manual_seed(7)
    k, v, state = torch.eye(T).double()[None, None], numbers(1, 1, T, E), torch.zeros(1, 1, T, E).double()
    first = k[:, :, :1].expand(1, 1, T, T)
    for gamma in 1.0, 0.8:
        answers, _ = linear_attention_parallel(first, k, v, torch.tensor([gamma]).double(), state)
        assert_close(answers[0, 0], torch.stack([gamma**t * v[0, 0, 0] for t in range(T)]))


@KINDS
def test_piece_by_piece_equals_all_at_once(kind: type[LinearAttention]) -> None:
    mixer, x, cache = mixer_of(kind), numbers(B, T, D), Cache()
    pieces = []
    for a, b in PIECES:
        pieces.append(mixer(x[:, a:b], cache=cache))
        assert cache.length == b
    assert_close(torch.cat(pieces, 1), mixer(x))
    assert [part.shape for part in cache.state] == [(B, H, E, E)]


@KINDS
@pytest.mark.parametrize("changed", range(T))
def test_what_comes_later_cannot_change_what_came_before(kind: type[LinearAttention], changed: int) -> None:
    mixer, x = mixer_of(kind), numbers(B, T, D)
    other = x.clone()
    other[:, changed] += 1
    differs = (mixer(x) - mixer(other)).abs().amax((0, 2)) > 1e-9
    assert differs.tolist() == [t >= changed for t in range(T)]


@KINDS
@given(lengths=st.lists(st.integers(1, 5), min_size=1, max_size=4), causal=st.booleans(), more=st.integers(0, 3))
@settings(max_examples=30)
def test_padding_is_invisible_and_packed_documents_are_alone(kind, lengths: list[int], causal: bool, more: int) -> None:
    mixer = mixer_of(kind)
    real = torch.arange(max(lengths) + more) < torch.tensor(lengths)[:, None]
    x = torch.where(real[..., None], numbers(*real.shape, D), 99.0)
    padded = mixer(x, real[:, None, None])
    document = torch.arange(len(lengths)).repeat_interleave(torch.tensor(lengths))
    mask = document[:, None] == document
    packed = mixer(x[real][None], (mask.tril() if causal else mask)[None, None])
    for b, length in enumerate(lengths):
        alone = mixer(x[b : b + 1, :length])[0]
        assert_close(padded[b, :length], alone)
        assert_close(packed[0, document == b], alone)


def test_a_mask_with_a_cache_is_refused() -> None:
    with pytest.raises(AssertionError, match="nothing to mask"):
        mixer_of(LinearAttention)(numbers(B, T, D), torch.ones(B, 1, 1, T).bool(), Cache())


def test_a_hidden_token_adds_nothing_wherever_it_stands() -> None:
    mixer, x = mixer_of(LinearAttention), numbers(B, T, D)
    hidden = torch.arange(T) != 2
    assert_close(mixer(x, hidden[None, None, None])[:, hidden], mixer(x[:, hidden]))


@KINDS
def test_looking_shows_the_weights_and_changes_no_bit(kind: type[LinearAttention]) -> None:
    mixer, x = mixer_of(kind), numbers(B, T, D)
    before = mixer(x)
    with look(mixer) as seen:
        assert torch.equal(mixer(x), before)
    assert seen["weights"].shape == (B, H, T, T)
    values = seen["value"].unflatten(-1, (H, E)).transpose(1, 2)
    assert_close(mixer.out((seen["weights"] @ values).transpose(1, 2).flatten(2)), before)
    assert not linear_attention_weights(numbers(B, H, T, E), numbers(B, H, T, E), mixer.gamma).triu(1).any()


@KINDS
def test_every_weight_learns(kind: type[LinearAttention]) -> None:
    mixer = mixer_of(kind)
    mixer(numbers(B, T, D)).square().sum().backward()
    assert all(weight.grad.abs().max() > 1e-9 for weight in mixer.parameters())


def test_each_head_fades_at_its_own_pace_and_nothing_of_it_is_saved() -> None:
    mixer = Retention(D, H)
    assert torch.all((mixer.gamma > 0) & (mixer.gamma < 1) & (mixer.gamma.diff(prepend=torch.zeros(1)) > 0))
    assert_close(Retention(D, H, [0.9, 0.5, 0.1]).gamma, torch.tensor([0.9, 0.5, 0.1]))
    assert "gamma" not in mixer.state_dict()


@pytest.mark.parametrize("gamma", [[0.5, 0.5], [0.5, 1.0, 0.5], [0.5, 0.0, 0.5]])
def test_a_gamma_that_cannot_be_is_refused_with_its_numbers(gamma: list[float]) -> None:
    with pytest.raises(ValueError, match=rf"{H} heads .*0\.5, "):
        Retention(D, H, gamma)
