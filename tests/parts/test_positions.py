"""Positions are the waves of the paper, in either order, and end where the context ends."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.testing import assert_close

from regard.parts.positions import Learned, Sinusoidal, sinusoids

CONTEXT, D = 40, 12


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


@pytest.mark.parametrize("positions", [Sinusoidal(CONTEXT, D), Learned(CONTEXT, D)], ids=["sinusoidal", "learned"])
class TestBothKinds:
    def test_a_later_start_continues_the_same_table(self, positions) -> None:
        whole = positions(CONTEXT)
        assert whole.shape == (CONTEXT, D)
        assert torch.equal(torch.cat([positions(7), positions(1, start=7), positions(CONTEXT - 8, start=8)]), whole)

    @pytest.mark.parametrize(("length", "start"), [(CONTEXT + 1, 0), (1, CONTEXT), (3, CONTEXT - 2)])
    def test_too_many_tokens_are_refused_with_both_numbers(self, positions, length: int, start: int) -> None:
        with pytest.raises(ValueError, match=rf"{start + length} tokens .*context of {CONTEXT}\b"):
            positions(length, start)


def test_learned_positions_are_saved_and_sinusoids_are_not() -> None:
    assert [*Learned(CONTEXT, D).state_dict()] == ["weight"]
    assert [*Sinusoidal(CONTEXT, D).state_dict()] == []


def test_an_odd_width_is_refused_with_its_number() -> None:
    with pytest.raises(ValueError, match="even, not 13"):
        sinusoids(CONTEXT, 13)
