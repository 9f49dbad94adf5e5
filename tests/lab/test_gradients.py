"""At rest a step back is a product with the matrix, clipping does what it says, and a part that does not is noticed."""

from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.testing import assert_close

from regard.lab import gradients
from regard.lab.gradients import QUICK, Knobs, clip, run, sent_back
from regard.lab.result import of_the_first, per_step, quietly
from regard.parts.recurrence import RNN

SEEDS = st.integers(0, 999)


def matrix_of(dim: int, seed: int) -> torch.Tensor:
    torch.manual_seed(seed)
    return torch.randn(dim, dim).double() / dim**0.5


@settings(max_examples=30)
@given(dim=st.integers(1, 5), steps=st.integers(1, 7), seed=SEEDS)
def test_at_rest_a_gradient_is_a_power_of_the_matrix(dim: int, steps: int, seed: int) -> None:
    matrix = matrix_of(dim, seed)
    sent = sent_back(matrix, torch.zeros(steps + 1, dim).double())
    assert sent.shape == (steps + 1, dim, dim)
    for back, gradient in enumerate(sent):
        assert_close(gradient, torch.linalg.matrix_power(matrix, back))


@settings(max_examples=20)
@given(dim=st.integers(1, 4), steps=st.integers(1, 5), seed=SEEDS)
def test_while_it_reads_a_gradient_is_that_of_the_formula(dim: int, steps: int, seed: int) -> None:
    matrix = matrix_of(dim, seed)
    words = torch.randn(steps + 1, dim).double()

    def last_state(words: torch.Tensor) -> torch.Tensor:
        h = torch.zeros(dim).double()
        for word in words:
            h = (word + matrix @ h).tanh()
        return h

    wanted = torch.autograd.functional.jacobian(last_state, words)  # (numbers, T, D)
    assert_close(sent_back(matrix, words), wanted.transpose(0, 1).flip(0))


@settings(max_examples=30)
@given(dim=st.integers(1, 6), size=st.floats(0.5, 1.5), seed=SEEDS)
def test_a_matrix_that_only_turns_and_stretches_has_its_eigenvalue_as_growth(dim: int, size: float, seed: int) -> None:
    turn, _ = torch.linalg.qr(matrix_of(dim, seed))
    sent = of_the_first(torch.linalg.matrix_norm(sent_back(size * turn, torch.zeros(9, dim).double())))
    assert per_step(sent, 4) == pytest.approx(size)
    assert sent == pytest.approx([size**back for back in range(9)])


@settings(max_examples=40)
@given(seed=SEEDS, size=st.floats(1e-6, 1e6), longest=st.floats(0.1, 10), largest=st.floats(0.01, 1))
def test_clipping_by_norm_keeps_the_direction_and_by_value_the_small_numbers(
    seed: int, size: float, longest: float, largest: float
) -> None:
    gradient = size * matrix_of(5, seed)[0]
    whole, by_norm, by_value = clip(gradient, Knobs(clip=longest, largest=largest)).values()
    assert torch.equal(whole, gradient)
    assert by_norm.norm() == pytest.approx(min(longest, gradient.norm().item()), rel=1e-4)
    assert_close(by_norm / by_norm.norm(), gradient / gradient.norm())
    for before, after in zip(gradient.tolist(), by_value.tolist(), strict=True):
        assert after == (before if abs(before) <= largest else pytest.approx(largest if before > 0 else -largest))


def test_it_holds_and_explodes_above_1_and_vanishes_below(quick) -> None:
    found = quick("gradients")
    assert found.holds
    short, same, long = found.table
    assert short["growth of a step back"] == pytest.approx(0.8, rel=0.01)
    assert long["growth of a step back"] == pytest.approx(1.2, rel=0.01)
    assert short["as it comes"] < 1e-3 < 1e3 < long["as it comes"]
    assert short["clipped by norm"] == short["clipped by value"] == short["as it comes"]
    assert long["clipped by norm"] == pytest.approx(QUICK.clip, rel=1e-4)
    assert long["clipped by value"] <= QUICK.largest * QUICK.dim**0.5


def test_while_it_reads_loudly_even_a_large_eigenvalue_does_not_explode() -> None:
    loud = run(replace(QUICK, loud=3.0), quietly)
    assert loud.holds
    assert all(row["while it reads"] < 1 for row in loud.table)


def test_a_gradient_that_is_too_short_for_a_number_is_no_proof() -> None:
    assert not run(replace(QUICK, eigenvalues=(1e-9, 1.0)), quietly).holds


class Summed(RNN):
    """Every state reaches the end by itself."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(x).cumsum(1)


WRONG = {
    "states that are added up": ("RNN", Summed),
    "no clipping by norm": ("scale_and_clip", lambda words, count, longest: None),
    "clipping that lengthens": (
        "scale_and_clip",
        lambda words, count, longest: words[0].grad.div_(words[0].grad.norm()),
    ),
    "no clipping by value": ("clip_grad_value_", lambda words, largest: None),
    "clipping to nothing": ("clip_grad_value_", lambda words, largest: words[0].grad.zero_()),
}


@pytest.mark.parametrize("why", WRONG)
def test_it_does_not_hold_with(why: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gradients, *WRONG[why])
    assert not run(QUICK, quietly).holds


def test_it_does_not_hold_if_a_step_is_another_factor(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gradients, "sent_back", lambda matrix, words: sent_back(0.97 * matrix, words))
    assert not run(QUICK, quietly).holds


@pytest.mark.parametrize(
    "wrong",
    [{"eigenvalues": ()}, {"eigenvalues": (0.0, 1.0)}, {"steps": 3}, {"dim": 0}, {"clip": 0.0}, {"largest": 0.0}],
)
def test_knobs_that_make_no_sense_are_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=f"{next(iter(wrong))} must be"):
        replace(QUICK, **wrong)
