"""Positions equal their formulas and the papers, depend on distances, and work with a cache."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.testing import assert_close

from regard.look import look
from regard.parts.attention import SelfAttention
from regard.parts.cache import Cache
from regard.parts.positions import (
    Alibi,
    LearnedPositions,
    RelativePositionBias,
    RotaryPositions,
    RotaryQKNorm,
    SinusoidalPositions,
    position_ids,
    sinusoids,
)

CONTEXT, D = 40, 12
B, H, G, E = 2, 6, 3, 8


def numbers(*shape: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64)


@given(t=st.integers(0, CONTEXT - 1), j=st.integers(0, D // 2 - 1))
@settings(deadline=None, derandomize=True, max_examples=50)
def test_table_holds_sine_and_cosine_of_each_angle(t: int, j: int) -> None:
    angle = t / 10_000 ** (2 * j / D)
    table_halves, interleaved_table = sinusoids(CONTEXT, D), sinusoids(CONTEXT, D, interleaved=True)
    for table, sine, cosine in (table_halves, j, D // 2 + j), (interleaved_table, 2 * j, 2 * j + 1):
        assert table[t, sine].item() == pytest.approx(math.sin(angle), abs=1e-7)
        assert table[t, cosine].item() == pytest.approx(math.cos(angle), abs=1e-7)


def test_both_layouts_have_the_same_columns() -> None:
    table_halves, interleaved_table = sinusoids(CONTEXT, D), sinusoids(CONTEXT, D, interleaved=True)
    order = [column for j in range(D // 2) for column in (j, D // 2 + j)]
    assert torch.equal(interleaved_table, table_halves[:, order])
    assert not torch.equal(interleaved_table, table_halves)


@pytest.mark.parametrize("interleaved", [False, True])
def test_similarity_of_positions_depends_on_their_distance(interleaved: bool) -> None:
    table = sinusoids(CONTEXT, D, interleaved)
    similarity = table @ table.T
    for distance in range(CONTEXT):
        expected = sum(math.cos(distance / 10_000 ** (2 * j / D)) for j in range(D // 2))
        assert_close(similarity.diagonal(distance), torch.full((CONTEXT - distance,), expected), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    "positions", [SinusoidalPositions(CONTEXT, D), LearnedPositions(CONTEXT, D)], ids=["sinusoidal", "learned"]
)
class TestAddedPositions:
    def test_start_offset_continues_the_table(self, positions) -> None:
        full = positions(CONTEXT)
        assert full.shape == (CONTEXT, D)
        assert torch.equal(torch.cat([positions(7), positions(1, start=7), positions(CONTEXT - 8, start=8)]), full)

    @pytest.mark.parametrize(("length", "start"), [(CONTEXT + 1, 0), (1, CONTEXT), (3, CONTEXT - 2)])
    def test_too_many_tokens_are_refused(self, positions, length: int, start: int) -> None:
        with pytest.raises(ValueError, match=rf"{start + length} tokens .*context of {CONTEXT}\b"):
            positions(length, start)

    def test_packed_texts_have_their_own_positions(self, positions) -> None:
        packed = positions(7, mask=same_text([[3, 4], [6, 1]]))
        assert packed.shape == (2, 7, D)
        assert torch.equal(packed[0], torch.cat((positions(3), positions(4))))
        assert torch.equal(packed[1], torch.cat((positions(6), positions(1))))
        padded = torch.ones(2, 1, 1, 7, dtype=torch.bool)
        assert torch.equal(positions(7, mask=padded), positions(7))


def same_text(rows: list[list[int]]) -> Tensor:
    """A mask (B,1,T,T) from the lengths of the texts in each row."""
    number = torch.stack([torch.tensor([i for i, n in enumerate(row) for _ in range(n)]) for row in rows])
    return (number[:, :, None] == number[:, None])[:, None]


@given(lengths=st.lists(st.integers(1, 6), min_size=2, max_size=5), split=st.integers(0, 8), causal=st.booleans())
@settings(deadline=None, derandomize=True, max_examples=40)
def test_position_counts_tokens_of_the_same_text(lengths: list[int], split: int, causal: bool) -> None:
    mask = same_text([lengths])
    mask = mask.tril() if causal else mask
    T = mask.size(-1)
    expected = [i for n in lengths for i in range(n)]
    assert position_ids(mask, T)[0].tolist() == expected
    start = min(split, T - 2)
    assert position_ids(mask[:, :, start:], T - start, start)[0].tolist() == expected[start:]


def test_only_learned_positions_are_saved() -> None:
    assert [*LearnedPositions(CONTEXT, D).state_dict()] == ["weight"]
    assert [*SinusoidalPositions(CONTEXT, D).state_dict()] == []


def test_odd_width_is_refused() -> None:
    with pytest.raises(ValueError, match="even, not 13"):
        sinusoids(CONTEXT, 13)


@given(seed=st.integers(0, 99), start=st.integers(0, CONTEXT - 5), theta=st.sampled_from([100.0, 1e4, 5e5]))
@settings(deadline=None, derandomize=True, max_examples=40)
def test_rotary_scores_depend_on_the_distance_and_norms_stay(seed: int, start: int, theta: float) -> None:
    torch.manual_seed(seed)
    rotary = RotaryPositions(E, CONTEXT, theta)
    q, k = numbers(B, H, 5, E), numbers(B, G, 5, E)
    first, second = rotary(q, k, 0), rotary(q, k, start)
    scores = [x[:, :G] @ y.mT for x, y in (first, second)]
    assert_close(*scores, rtol=1e-5, atol=1e-5)
    for rotated, original in zip(second, (q, k), strict=True):
        assert_close(rotated.norm(dim=-1), original.norm(dim=-1), rtol=1e-6, atol=1e-6)


@given(t=st.integers(0, CONTEXT - 1), j=st.integers(0, E // 2 - 1), sign=st.sampled_from([1.0, -1.0]))
@settings(deadline=None, derandomize=True, max_examples=40)
def test_rotary_equals_complex_multiplication(t: int, j: int, sign: float) -> None:
    torch.manual_seed(t)
    x = numbers(B, H, 1, E)
    angle = sign * t / 10_000 ** (2 * j / E)
    before = torch.complex(x[..., j], x[..., E // 2 + j])
    rotated, _ = RotaryPositions(E, CONTEXT, sign=sign)(x, x, t)
    after = torch.complex(rotated[..., j], rotated[..., E // 2 + j])
    assert_close(after, before * complex(math.cos(angle), math.sin(angle)), rtol=1e-6, atol=1e-6)


@given(
    factor=st.sampled_from([1.0, 2.0, 8.0, 3.3]),
    original_context=st.integers(0, 5000),
    theta=st.sampled_from([100.0, 1e4, 5e5]),
)
@settings(deadline=None, derandomize=True, max_examples=60)
def test_factor_slows_low_frequencies(factor: float, original_context: int, theta: float) -> None:
    """Angles are recovered from sines, so only those below a quarter rotation are compared."""
    default, scaled = (
        RotaryPositions(64, 2, theta).table[1, 1:32],
        RotaryPositions(64, 2, theta, 1.0, factor, original_context).table[1, 1:32],
    )
    before, after = default.double().asin(), scaled.double().asin()
    rounds = original_context * before / (2 * math.pi)
    assert_close(after[rounds > 4], before[rounds > 4])
    assert_close(after[rounds < 1], before[rounds < 1] / factor, rtol=1e-5, atol=1e-9)
    assert (after <= before * (1 + 1e-6)).all()
    assert (after * factor >= before * (1 - 1e-6)).all()
    assert (after.diff() < 0).all()


@given(original_context=st.integers(0, 5000), theta=st.sampled_from([100.0, 1e4, 5e5]))
@settings(deadline=None, derandomize=True, max_examples=20)
def test_factor_1_changes_nothing(original_context: int, theta: float) -> None:
    assert torch.equal(
        RotaryPositions(E, CONTEXT, theta, original_context=original_context).table,
        RotaryPositions(E, CONTEXT, theta).table,
    )


def test_linear_scaling_divides_positions() -> None:
    default, scaled = RotaryPositions(E, CONTEXT), RotaryPositions(E, 4 * CONTEXT, factor=4.0)
    assert_close(scaled.table[::4], default.table)


@pytest.mark.parametrize("original_context", [0, 13, 100])
def test_rotary_angles_equal_transformers(original_context: int) -> None:
    """Bit for bit without scaling, also at large positions, where single precision is coarse."""
    transformers = pytest.importorskip("transformers", reason="parity needs the dev extra")
    from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

    kind = {"rope_type": "llama3" if original_context else "default", "factor": 8.0, "rope_theta": 500.0}
    kind |= {"low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": original_context}
    config = transformers.LlamaConfig(
        hidden_size=H * E, num_attention_heads=H, rope_parameters=kind, max_position_embeddings=9000
    )
    cosines, sines = LlamaRotaryEmbedding(config)(torch.zeros(1), torch.arange(9000)[None])
    ours = RotaryPositions(
        E, 9000, 500.0, factor=8.0 if original_context else 1.0, original_context=original_context
    ).table
    expected = torch.cat((sines[0, :, : E // 2], cosines[0, :, : E // 2]), -1)
    if original_context:
        assert_close(ours[:100], expected[:100], rtol=0, atol=1e-5)
    else:
        assert torch.equal(ours, expected)


def test_odd_head_dim_is_refused() -> None:
    with pytest.raises(ValueError, match="even, not 7"):
        RotaryPositions(7, CONTEXT)


def test_rotary_saves_nothing_and_checks_the_context() -> None:
    rotary, q = RotaryPositions(E, CONTEXT), numbers(B, H, 3, E)
    assert [*rotary.state_dict()] == []
    rotary(q, q, CONTEXT - 3)
    with pytest.raises(ValueError, match=rf"{CONTEXT + 1} tokens .*context of {CONTEXT}\b"):
        rotary(q, q, CONTEXT - 2)


def test_qk_norm_normalises_after_the_rotation() -> None:
    torch.manual_seed(1)
    q, k = numbers(B, H, 4, E), numbers(B, G, 4, E)
    rotary, qk_norm = RotaryPositions(E, CONTEXT, sign=-1.0), RotaryQKNorm(E, CONTEXT, sign=-1.0)
    for rotated, normed in zip(rotary(q, k, 5), qk_norm(q, k, 5), strict=True):
        assert_close(normed, rotated / rotated.square().mean(-1, keepdim=True).sqrt(), rtol=1e-5, atol=1e-5)


BIASES = [Alibi(H), RelativePositionBias(H, 8, 6), RelativePositionBias(H, 8, 6, causal=True)]
every_bias = pytest.mark.parametrize("bias", BIASES, ids=["alibi", "relative", "relative causal"])


@every_bias
def test_bias_with_a_cache_is_the_last_rows(bias) -> None:
    full = bias(9, 9)
    assert full.shape == (1, H, 9, 9)
    for T in range(1, 10):
        assert torch.equal(bias(T, 9), full[:, :, 9 - T :])


@every_bias
def test_bias_depends_on_the_distance(bias) -> None:
    full = bias(9, 9)
    assert torch.equal(full[:, :, 1:, 1:], full[:, :, :-1, :-1])


@pytest.mark.parametrize("heads", [1, 2, 3, 6, 8, 12, 16])
def test_alibi_slopes_equal_the_paper(heads: int) -> None:
    """For 8 heads 1/2, 1/4 ... 1/256; for any number of heads the slopes are distinct."""
    bias = Alibi(heads)(7, 7)[0]
    slopes = -bias[:, -1, -2]
    assert_close(bias[:, -1], -slopes[:, None] * torch.arange(6, -1, -1))
    if heads == 8:
        assert slopes.tolist() == [2.0**-i for i in range(1, 9)]
    assert len(set(slopes.tolist())) == heads
    assert slopes.min() >= 2**-8
    assert slopes.max() < 1
    assert_close(bias, bias.mT)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(("buckets", "max_distance"), [(32, 128), (8, 20), (6, 5)])
def test_buckets_equal_t5(causal: bool, buckets: int, max_distance: int) -> None:
    t5 = pytest.importorskip("transformers.models.t5.modeling_t5", reason="parity needs the dev extra")
    ours = RelativePositionBias(H, buckets, max_distance, causal)
    forward = torch.arange(200)[None] - torch.arange(200)[:, None]
    theirs = t5.T5Attention._relative_position_bucket(forward, not causal, buckets, max_distance)
    assert torch.equal(ours.buckets(200, 200), theirs)
    assert_close(ours(200, 200)[0, 3], ours.weight[theirs, 3])


def test_small_distances_have_their_own_bucket_and_large_ones_share_the_last() -> None:
    buckets = RelativePositionBias(H, 32, 128).buckets(300, 300)
    assert buckets[-1].flip(0)[:8].tolist() == [*range(8)]
    assert (buckets[-1].flip(0).diff() >= 0).all()
    assert buckets[-1, : 300 - 128].unique().tolist() == [15]
    assert buckets[0, 128:].unique().tolist() == [31]
    assert buckets[0, 1] == 17


def test_too_few_buckets_are_refused() -> None:
    for buckets, max_distance in (3, 128), (32, 8):
        with pytest.raises(ValueError, match=f"{buckets} buckets .* {max_distance}"):
            RelativePositionBias(H, buckets, max_distance)


def mixer_with(bias, causal: bool) -> SelfAttention:
    torch.manual_seed(3)
    return SelfAttention(H * E, H, G, causal=causal, score_bias=bias).double()


@every_bias
@pytest.mark.parametrize("requires_grad", [False, True])
def test_attention_adds_the_bias_to_its_scores(bias, requires_grad: bool) -> None:
    T, mixer, default = 5, mixer_with(bias, False).requires_grad_(requires_grad), mixer_with(None, False)
    x = numbers(B, T, H * E)
    with look(mixer) as trace, look(default) as plain_trace:
        y = mixer(x)
        default(x)
    expected = (plain_trace["weights"].log() + bias(T, T)).softmax(-1)
    assert_close(trace["weights"], expected, rtol=1e-6, atol=1e-6)
    v = mixer.value(x).unflatten(-1, (G, E)).repeat_interleave(H // G, 2)
    assert_close(y, mixer.out(torch.einsum("bhts,bshe->bthe", expected, v).flatten(2)), rtol=1e-6, atol=1e-6)


@every_bias
def test_chunks_with_a_cache_equal_the_full_forward_with_a_bias(bias) -> None:
    mixer, x, cache = mixer_with(bias, True), numbers(B, 9, H * E), Cache()
    with torch.no_grad():
        chunks = [mixer(x[:, a:b], cache=cache) for a, b in [(0, 4), (4, 7), (7, 8), (8, 9)]]
    assert_close(torch.cat(chunks, 1), mixer(x))


def test_relative_bias_has_gradients() -> None:
    bias = RelativePositionBias(H, 8, 6, causal=True).double()
    mixer_with(bias, True)(numbers(B, 9, H * E)).square().sum().backward()
    updated = (bias.weight.grad.abs() > 0).all(1)
    assert updated.nonzero()[:, 0].tolist() == bias.buckets(9, 9).unique().tolist()
