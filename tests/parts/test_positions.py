"""Positions are the waves of the paper, in either order, and end where the context ends; turns and biases know the
distance only, and a cache changes nothing."""

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
    places,
    sinusoids,
)

CONTEXT, D = 40, 12
B, H, G, E = 2, 6, 3, 8


def numbers(*shape: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64)


@given(t=st.integers(0, CONTEXT - 1), j=st.integers(0, D // 2 - 1))
@settings(deadline=None, derandomize=True, max_examples=50)
def test_every_place_holds_the_sine_and_the_cosine_of_its_angle(t: int, j: int) -> None:
    angle = t / 10_000 ** (2 * j / D)
    halves, turns = sinusoids(CONTEXT, D), sinusoids(CONTEXT, D, interleaved=True)
    for table, sine, cosine in (halves, j, D // 2 + j), (turns, 2 * j, 2 * j + 1):
        assert table[t, sine].item() == pytest.approx(math.sin(angle), abs=1e-7)
        assert table[t, cosine].item() == pytest.approx(math.cos(angle), abs=1e-7)


def test_both_forms_are_the_same_columns_in_another_order() -> None:
    halves, turns = sinusoids(CONTEXT, D), sinusoids(CONTEXT, D, interleaved=True)
    order = [column for j in range(D // 2) for column in (j, D // 2 + j)]
    assert torch.equal(turns, halves[:, order])
    assert not torch.equal(turns, halves)


@pytest.mark.parametrize("interleaved", [False, True])
def test_how_alike_two_positions_are_depends_on_their_distance_only(interleaved: bool) -> None:
    table = sinusoids(CONTEXT, D, interleaved)
    alike = table @ table.T
    for distance in range(CONTEXT):
        wanted = sum(math.cos(distance / 10_000 ** (2 * j / D)) for j in range(D // 2))
        assert_close(alike.diagonal(distance), torch.full((CONTEXT - distance,), wanted), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    "positions", [SinusoidalPositions(CONTEXT, D), LearnedPositions(CONTEXT, D)], ids=["sinusoidal", "learned"]
)
class TestBothKinds:
    def test_a_later_start_continues_the_same_table(self, positions) -> None:
        whole = positions(CONTEXT)
        assert whole.shape == (CONTEXT, D)
        assert torch.equal(torch.cat([positions(7), positions(1, start=7), positions(CONTEXT - 8, start=8)]), whole)

    @pytest.mark.parametrize(("length", "start"), [(CONTEXT + 1, 0), (1, CONTEXT), (3, CONTEXT - 2)])
    def test_too_many_tokens_are_refused_with_both_numbers(self, positions, length: int, start: int) -> None:
        with pytest.raises(ValueError, match=rf"{start + length} tokens .*context of {CONTEXT}\b"):
            positions(length, start)

    def test_packed_texts_have_the_positions_of_each_alone(self, positions) -> None:
        packed = positions(7, mask=same_text([[3, 4], [6, 1]]))
        assert packed.shape == (2, 7, D)
        assert torch.equal(packed[0], torch.cat((positions(3), positions(4))))
        assert torch.equal(packed[1], torch.cat((positions(6), positions(1))))
        padded = torch.ones(2, 1, 1, 7, dtype=torch.bool)
        assert torch.equal(positions(7, mask=padded), positions(7))


def same_text(rows: list[list[int]]) -> Tensor:
    """(B,1,T,T) of the lengths of the texts in each row."""
    number = torch.stack([torch.tensor([i for i, n in enumerate(row) for _ in range(n)]) for row in rows])
    return (number[:, :, None] == number[:, None])[:, None]


@given(lengths=st.lists(st.integers(1, 6), min_size=2, max_size=5), split=st.integers(0, 8), causal=st.booleans())
@settings(deadline=None, derandomize=True, max_examples=40)
def test_a_place_counts_the_tokens_of_its_own_text(lengths: list[int], split: int, causal: bool) -> None:
    mask = same_text([lengths])
    mask = mask.tril() if causal else mask
    T = mask.size(-1)
    wanted = [i for n in lengths for i in range(n)]
    assert places(mask, T)[0].tolist() == wanted
    start = min(split, T - 2)
    assert places(mask[:, :, start:], T - start, start)[0].tolist() == wanted[start:]


def test_learned_positions_are_saved_and_sinusoids_are_not() -> None:
    assert [*LearnedPositions(CONTEXT, D).state_dict()] == ["weight"]
    assert [*SinusoidalPositions(CONTEXT, D).state_dict()] == []


def test_an_odd_width_is_refused_with_its_number() -> None:
    with pytest.raises(ValueError, match="even, not 13"):
        sinusoids(CONTEXT, 13)


@given(seed=st.integers(0, 99), ahead=st.integers(0, CONTEXT - 5), base=st.sampled_from([100.0, 1e4, 5e5]))
@settings(deadline=None, derandomize=True, max_examples=40)
def test_rotary_scores_depend_on_the_distance_only_and_lengths_stay(seed: int, ahead: int, base: float) -> None:
    torch.manual_seed(seed)
    turn = RotaryPositions(E, CONTEXT, base)
    q, k = numbers(B, H, 5, E), numbers(B, G, 5, E)
    here, there = turn(q, k, 0), turn(q, k, ahead)
    scores = [x[:, :G] @ y.mT for x, y in (here, there)]
    assert_close(*scores, rtol=1e-5, atol=1e-5)
    for turned, given_one in zip(there, (q, k), strict=True):
        assert_close(turned.norm(dim=-1), given_one.norm(dim=-1), rtol=1e-6, atol=1e-6)


@given(t=st.integers(0, CONTEXT - 1), j=st.integers(0, E // 2 - 1), way=st.sampled_from([1.0, -1.0]))
@settings(deadline=None, derandomize=True, max_examples=40)
def test_a_pair_turns_by_its_angle_as_a_complex_number_does(t: int, j: int, way: float) -> None:
    torch.manual_seed(t)
    x = numbers(B, H, 1, E)
    angle = way * t / 10_000 ** (2 * j / E)
    before = torch.complex(x[..., j], x[..., E // 2 + j])
    turned, _ = RotaryPositions(E, CONTEXT, turn=way)(x, x, t)
    after = torch.complex(turned[..., j], turned[..., E // 2 + j])
    assert_close(after, before * complex(math.cos(angle), math.sin(angle)), rtol=1e-6, atol=1e-6)


@given(
    stretch=st.sampled_from([1.0, 2.0, 8.0, 3.3]), trained=st.integers(0, 5000), base=st.sampled_from([100.0, 1e4, 5e5])
)
@settings(deadline=None, derandomize=True, max_examples=60)
def test_a_stretched_rotary_slows_what_comes_round_too_rarely(stretch: float, trained: int, base: float) -> None:
    """An angle is told by its sine while it is small: one token, and pairs that turn by less than a quarter."""
    plain, slowed = (
        RotaryPositions(64, 2, base).table[1, 1:32],
        RotaryPositions(64, 2, base, 1.0, stretch, trained).table[1, 1:32],
    )
    before, after = plain.double().asin(), slowed.double().asin()
    rounds = trained * before / (2 * math.pi)
    assert_close(after[rounds > 4], before[rounds > 4])
    assert_close(after[rounds < 1], before[rounds < 1] / stretch, rtol=1e-5, atol=1e-9)
    assert (after <= before * (1 + 1e-6)).all()
    assert (after * stretch >= before * (1 - 1e-6)).all()
    assert (after.diff() < 0).all()


@given(trained=st.integers(0, 5000), base=st.sampled_from([100.0, 1e4, 5e5]))
@settings(deadline=None, derandomize=True, max_examples=20)
def test_a_stretch_of_1_changes_nothing(trained: int, base: float) -> None:
    assert torch.equal(
        RotaryPositions(E, CONTEXT, base, trained=trained).table, RotaryPositions(E, CONTEXT, base).table
    )


def test_without_trained_tokens_a_stretch_counts_in_smaller_steps() -> None:
    plain, stretched = RotaryPositions(E, CONTEXT), RotaryPositions(E, 4 * CONTEXT, stretch=4.0)
    assert_close(stretched.table[::4], plain.table)


@pytest.mark.parametrize("trained", [0, 13, 100])
def test_the_angles_are_those_of_transformers(trained: int) -> None:
    """Far out too, where single precision is coarse: bit for bit, unless they are stretched."""
    transformers = pytest.importorskip("transformers", reason="parity needs the dev extra")
    from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

    kind = {"rope_type": "llama3" if trained else "default", "factor": 8.0, "rope_theta": 500.0}
    kind |= {"low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": trained}
    config = transformers.LlamaConfig(
        hidden_size=H * E, num_attention_heads=H, rope_parameters=kind, max_position_embeddings=9000
    )
    cosines, sines = LlamaRotaryEmbedding(config)(torch.zeros(1), torch.arange(9000)[None])
    ours = RotaryPositions(E, 9000, 500.0, stretch=8.0 if trained else 1.0, trained=trained).table
    wanted = torch.cat((sines[0, :, : E // 2], cosines[0, :, : E // 2]), -1)
    if trained:
        assert_close(ours[:100], wanted[:100], rtol=0, atol=1e-5)
    else:
        assert torch.equal(ours, wanted)


def test_a_head_of_odd_width_cannot_turn() -> None:
    with pytest.raises(ValueError, match="even, not 7"):
        RotaryPositions(7, CONTEXT)


def test_nothing_of_a_rotary_is_saved_and_its_context_ends() -> None:
    turn, q = RotaryPositions(E, CONTEXT), numbers(B, H, 3, E)
    assert [*turn.state_dict()] == []
    turn(q, q, CONTEXT - 3)
    with pytest.raises(ValueError, match=rf"{CONTEXT + 1} tokens .*context of {CONTEXT}\b"):
        turn(q, q, CONTEXT - 2)


def test_a_norm_after_the_turn_makes_all_lengths_equal() -> None:
    torch.manual_seed(1)
    q, k = numbers(B, H, 4, E), numbers(B, G, 4, E)
    plain, normed = RotaryPositions(E, CONTEXT, turn=-1.0)(q, k, 5), RotaryQKNorm(E, CONTEXT, turn=-1.0)(q, k, 5)
    for one, other in zip(plain, normed, strict=True):
        assert_close(other, one / one.square().mean(-1, keepdim=True).sqrt(), rtol=1e-5, atol=1e-5)


BIASES = [Alibi(H), RelativePositionBias(H, 8, 6), RelativePositionBias(H, 8, 6, causal=True)]
every_bias = pytest.mark.parametrize("bias", BIASES, ids=["alibi", "relative", "relative causal"])


@every_bias
def test_with_a_cache_a_bias_is_the_last_rows_of_the_whole(bias) -> None:
    whole = bias(9, 9)
    assert whole.shape == (1, H, 9, 9)
    for T in range(1, 10):
        assert torch.equal(bias(T, 9), whole[:, :, 9 - T :])


@every_bias
def test_a_bias_depends_on_the_distance_only(bias) -> None:
    whole = bias(9, 9)
    assert torch.equal(whole[:, :, 1:, 1:], whole[:, :, :-1, :-1])


@pytest.mark.parametrize("heads", [1, 2, 3, 6, 8, 12, 16])
def test_alibi_falls_off_as_its_paper_says(heads: int) -> None:
    """For 8 heads 1/2, 1/4 ... 1/256; whatever their number, slopes differ and none is steeper."""
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
@pytest.mark.parametrize(("buckets", "farthest"), [(32, 128), (8, 20), (6, 5)])
def test_the_buckets_are_those_of_t5(causal: bool, buckets: int, farthest: int) -> None:
    t5 = pytest.importorskip("transformers.models.t5.modeling_t5", reason="parity needs the dev extra")
    ours = RelativePositionBias(H, buckets, farthest, causal)
    forward = torch.arange(200)[None] - torch.arange(200)[:, None]
    theirs = t5.T5Attention._relative_position_bucket(forward, not causal, buckets, farthest)
    assert torch.equal(ours.buckets(200, 200), theirs)
    assert_close(ours(200, 200)[0, 3], ours.weight[theirs, 3])


def test_near_distances_have_a_bucket_each_and_all_far_ones_share_the_last() -> None:
    buckets = RelativePositionBias(H, 32, 128).buckets(300, 300)
    assert buckets[-1].flip(0)[:8].tolist() == [*range(8)]
    assert (buckets[-1].flip(0).diff() >= 0).all()
    assert buckets[-1, : 300 - 128].unique().tolist() == [15]
    assert buckets[0, 128:].unique().tolist() == [31]
    assert buckets[0, 1] == 17


def test_too_few_buckets_are_refused_with_their_number() -> None:
    for buckets, farthest in (3, 128), (32, 8):
        with pytest.raises(ValueError, match=f"{buckets} buckets .* {farthest}"):
            RelativePositionBias(H, buckets, farthest)


def mixer_with(bias, causal: bool) -> SelfAttention:
    torch.manual_seed(3)
    return SelfAttention(H * E, H, G, causal=causal, score_bias=bias).double()


@every_bias
@pytest.mark.parametrize("learning", [False, True])
def test_attention_adds_the_bias_to_its_scores_and_shows_it(bias, learning: bool) -> None:
    T, mixer, plain = 5, mixer_with(bias, False).requires_grad_(learning), mixer_with(None, False)
    x = numbers(B, T, H * E)
    with look(mixer) as seen, look(plain) as without:
        y = mixer(x)
        plain(x)
    wanted = (without["weights"].log() + bias(T, T)).softmax(-1)
    assert_close(seen["weights"], wanted, rtol=1e-6, atol=1e-6)
    v = mixer.value(x).unflatten(-1, (G, E)).repeat_interleave(H // G, 2)
    assert_close(y, mixer.out(torch.einsum("bhts,bshe->bthe", wanted, v).flatten(2)), rtol=1e-6, atol=1e-6)


@every_bias
def test_piece_by_piece_equals_all_at_once_with_a_bias(bias) -> None:
    mixer, x, cache = mixer_with(bias, True), numbers(B, 9, H * E), Cache()
    with torch.no_grad():
        pieces = [mixer(x[:, a:b], cache=cache) for a, b in [(0, 4), (4, 7), (7, 8), (8, 9)]]
    assert_close(torch.cat(pieces, 1), mixer(x))


def test_a_trained_bias_learns() -> None:
    bias = RelativePositionBias(H, 8, 6, causal=True).double()
    mixer_with(bias, True)(numbers(B, 9, H * E)).square().sum().backward()
    learnt = (bias.weight.grad.abs() > 0).all(1)
    assert learnt.nonzero()[:, 0].tolist() == bias.buckets(9, 9).unique().tolist()
