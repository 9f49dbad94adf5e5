"""The parallel and the recurrent form of linear attention agree, with caches, masks and traces."""

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
CHUNKS = [(0, 4), (4, 7), (7, 8), (8, 9)]
KINDS = pytest.mark.parametrize("kind", [LinearAttention, Retention])


def numbers(*shape: int, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.randn(*shape, dtype=dtype)


def mixer_of(kind: type[LinearAttention]) -> LinearAttention:
    torch.manual_seed(5)
    return kind(D, H).double()


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-12), (torch.float32, 1e-6)])
@given(
    seed=st.integers(0, 999),
    length=st.integers(1, 12),
    gamma=st.lists(st.floats(0.01, 1.0), min_size=H, max_size=H),
)
@settings(max_examples=50)
def test_parallel_equals_recurrent(dtype, tolerance, seed: int, length: int, gamma: list[float]) -> None:
    torch.manual_seed(seed)
    q, k, v = (numbers(B, H, length, E, dtype=dtype) / E for _ in range(3))
    state, decay = numbers(B, H, E, E, dtype=dtype) / E, torch.tensor(gamma, dtype=dtype)
    for ours, theirs in zip(
        linear_attention_parallel(q, k, v, decay, state), linear_attention_recurrent(q, k, v, decay, state), strict=True
    ):
        assert_close(ours, theirs, rtol=tolerance, atol=tolerance)


def test_output_is_the_decayed_sum() -> None:
    torch.manual_seed(6)
    q, k, v, gamma = (
        numbers(B, H, T, E),
        numbers(B, H, T, E),
        numbers(B, H, T, E),
        torch.tensor([1.0, 0.5, 0.9]).double(),
    )
    outputs, _ = linear_attention_recurrent(q, k, v, gamma, torch.zeros(B, H, E, E).double())
    for b, h, t in torch.cartesian_prod(*map(torch.arange, (B, H, T))).tolist():
        expected = sum(gamma[h] ** (t - s) * (q[b, h, t] @ k[b, h, s]) * v[b, h, s] for s in range(t + 1))
        assert_close(outputs[b, h, t], expected)


def test_orthogonal_keys_retrieve_the_first_value_times_its_decay() -> None:
    torch.manual_seed(7)
    k, v, state = torch.eye(T).double()[None, None], numbers(1, 1, T, E), torch.zeros(1, 1, T, E).double()
    first = k[:, :, :1].expand(1, 1, T, T)
    for gamma in 1.0, 0.8:
        outputs, _ = linear_attention_parallel(first, k, v, torch.tensor([gamma]).double(), state)
        assert_close(outputs[0, 0], torch.stack([gamma**t * v[0, 0, 0] for t in range(T)]))


@KINDS
def test_chunks_with_a_cache_equal_the_full_forward(kind: type[LinearAttention]) -> None:
    mixer, x, cache = mixer_of(kind), numbers(B, T, D), Cache()
    chunks = []
    for a, b in CHUNKS:
        chunks.append(mixer(x[:, a:b], cache=cache))
        assert cache.length == b
    assert_close(torch.cat(chunks, 1), mixer(x))
    assert [part.shape for part in cache.state] == [(B, H, E, E)]


@KINDS
@pytest.mark.parametrize("changed", range(T))
def test_later_tokens_change_no_earlier_output(kind: type[LinearAttention], changed: int) -> None:
    mixer, x = mixer_of(kind), numbers(B, T, D)
    altered = x.clone()
    altered[:, changed] += 1
    changed_positions = (mixer(x) - mixer(altered)).abs().amax((0, 2)) > 1e-9
    assert changed_positions.tolist() == [t >= changed for t in range(T)]


@KINDS
@given(lengths=st.lists(st.integers(1, 5), min_size=1, max_size=4), causal=st.booleans(), more=st.integers(0, 3))
@settings(max_examples=30)
def test_padding_is_invisible_and_packed_documents_are_independent(
    kind, lengths: list[int], causal: bool, more: int
) -> None:
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


def test_mask_with_a_cache_is_refused() -> None:
    with pytest.raises(AssertionError, match="exclude each other"):
        mixer_of(LinearAttention)(numbers(B, T, D), torch.ones(B, 1, 1, T).bool(), Cache())


def test_masked_token_has_no_influence() -> None:
    mixer, x = mixer_of(LinearAttention), numbers(B, T, D)
    visible = torch.arange(T) != 2
    assert_close(mixer(x, visible[None, None, None])[:, visible], mixer(x[:, visible]))


@KINDS
def test_trace_records_weights_and_changes_no_bit(kind: type[LinearAttention]) -> None:
    mixer, x = mixer_of(kind), numbers(B, T, D)
    before = mixer(x)
    with look(mixer) as trace:
        assert torch.equal(mixer(x), before)
    assert trace["weights"].shape == (B, H, T, T)
    values = trace["value"].unflatten(-1, (H, E)).transpose(1, 2)
    assert_close(mixer.out((trace["weights"] @ values).transpose(1, 2).flatten(2)), before)
    assert not linear_attention_weights(numbers(B, H, T, E), numbers(B, H, T, E), mixer.gamma).triu(1).any()


@KINDS
def test_every_weight_has_a_gradient(kind: type[LinearAttention]) -> None:
    mixer = mixer_of(kind)
    mixer(numbers(B, T, D)).square().sum().backward()
    assert all(weight.grad.abs().max() > 1e-9 for weight in mixer.parameters())


def test_each_head_has_its_own_gamma_and_it_is_not_saved() -> None:
    mixer = Retention(D, H)
    assert torch.all((mixer.gamma > 0) & (mixer.gamma < 1) & (mixer.gamma.diff(prepend=torch.zeros(1)) > 0))
    assert_close(Retention(D, H, [0.9, 0.5, 0.1]).gamma, torch.tensor([0.9, 0.5, 0.1]))
    assert "gamma" not in mixer.state_dict()


@pytest.mark.parametrize("gamma", [[0.5, 0.5], [0.5, 1.0, 0.5], [0.5, 0.0, 0.5]])
def test_invalid_gamma_is_refused(gamma: list[float]) -> None:
    with pytest.raises(ValueError, match=rf"{H} heads .*0\.5, "):
        Retention(D, H, gamma)
