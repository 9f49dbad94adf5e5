"""Without input a step back multiplies by the matrix; clipping is exact; broken parts fail the claim."""

from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.testing import assert_close

from regard.lab import gradients
from regard.lab.gradients import QUICK, GradientsOptions, clip, gradients_through_time, run
from regard.lab.result import growth_per_step, no_progress, relative_to_first
from regard.parts.recurrence import RNN

SEEDS = st.integers(0, 999)


def matrix_of(dim: int, seed: int) -> torch.Tensor:
    torch.manual_seed(seed)
    return torch.randn(dim, dim).double() / dim**0.5


@settings(max_examples=30)
@given(dim=st.integers(1, 5), steps=st.integers(1, 7), seed=SEEDS)
def test_without_input_a_gradient_is_a_power_of_the_matrix(dim: int, steps: int, seed: int) -> None:
    matrix = matrix_of(dim, seed)
    sent = gradients_through_time(matrix, torch.zeros(steps + 1, dim).double())
    assert sent.shape == (steps + 1, dim, dim)
    for back, gradient in enumerate(sent):
        assert_close(gradient, torch.linalg.matrix_power(matrix, back))


@settings(max_examples=20)
@given(dim=st.integers(1, 4), steps=st.integers(1, 5), seed=SEEDS)
def test_with_input_a_gradient_equals_the_jacobian(dim: int, steps: int, seed: int) -> None:
    matrix = matrix_of(dim, seed)
    words = torch.randn(steps + 1, dim).double()

    def last_state(words: torch.Tensor) -> torch.Tensor:
        h = torch.zeros(dim).double()
        for word in words:
            h = (word + matrix @ h).tanh()
        return h

    expected = torch.autograd.functional.jacobian(last_state, words)  # (numbers, T, D)
    assert_close(gradients_through_time(matrix, words), expected.transpose(0, 1).flip(0))


@settings(max_examples=30)
@given(dim=st.integers(1, 6), size=st.floats(0.5, 1.5), seed=SEEDS)
def test_a_scaled_rotation_grows_by_its_eigenvalue(dim: int, size: float, seed: int) -> None:
    turn, _ = torch.linalg.qr(matrix_of(dim, seed))
    sent = relative_to_first(
        torch.linalg.matrix_norm(gradients_through_time(size * turn, torch.zeros(9, dim).double()))
    )
    assert growth_per_step(sent, 4) == pytest.approx(size)
    assert sent == pytest.approx([size**back for back in range(9)])


@settings(max_examples=40)
@given(seed=SEEDS, size=st.floats(1e-6, 1e6), max_norm=st.floats(0.1, 10), clip_value=st.floats(0.01, 1))
def test_clipping_by_norm_keeps_the_direction_and_by_value_the_small_numbers(
    seed: int, size: float, max_norm: float, clip_value: float
) -> None:
    gradient = size * matrix_of(5, seed)[0]
    whole, by_norm, by_value = clip(gradient, GradientsOptions(grad_clip=max_norm, clip_value=clip_value)).values()
    assert torch.equal(whole, gradient)
    assert by_norm.norm() == pytest.approx(min(max_norm, gradient.norm().item()), rel=1e-4)
    assert_close(by_norm / by_norm.norm(), gradient / gradient.norm())
    for before, after in zip(gradient.tolist(), by_value.tolist(), strict=True):
        assert after == (
            before if abs(before) <= clip_value else pytest.approx(clip_value if before > 0 else -clip_value)
        )


def test_the_claim_holds_and_explodes_above_1_and_vanishes_below(quick) -> None:
    result = quick("gradients")
    assert result.holds
    short, same, long = result.table
    assert short["growth per step"] == pytest.approx(0.8, rel=0.01)
    assert long["growth per step"] == pytest.approx(1.2, rel=0.01)
    assert short["not clipped"] < 1e-3 < 1e3 < long["not clipped"]
    assert short["clipped by norm"] == short["clipped by value"] == short["not clipped"]
    assert long["clipped by norm"] == pytest.approx(QUICK.grad_clip, rel=1e-4)
    assert long["clipped by value"] <= QUICK.clip_value * QUICK.dim**0.5


def test_with_large_inputs_even_a_large_eigenvalue_does_not_explode() -> None:
    result = run(replace(QUICK, input_std=3.0), no_progress)
    assert result.holds
    assert all(row["with input"] < 1 for row in result.table)


def test_the_claim_fails_if_gradients_underflow() -> None:
    assert not run(replace(QUICK, eigenvalues=(1e-9, 1.0)), no_progress).holds


class Summed(RNN):
    """Every state reaches the output directly."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(x).cumsum(1)


WRONG = {
    "states that are added up": ("RNN", Summed),
    "no clipping by norm": ("scale_and_clip", lambda words, count, max_norm: None),
    "clipping that lengthens": (
        "scale_and_clip",
        lambda words, count, max_norm: words[0].grad.div_(words[0].grad.norm()),
    ),
    "no clipping by value": ("clip_grad_value_", lambda words, clip_value: None),
    "clipping to nothing": ("clip_grad_value_", lambda words, clip_value: words[0].grad.zero_()),
}


@pytest.mark.parametrize("defect", WRONG)
def test_the_claim_fails_with(defect: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gradients, *WRONG[defect])
    assert not run(QUICK, no_progress).holds


def test_the_claim_fails_with_another_growth_factor(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        gradients, "gradients_through_time", lambda matrix, words: gradients_through_time(0.97 * matrix, words)
    )
    assert not run(QUICK, no_progress).holds


@pytest.mark.parametrize(
    "wrong",
    [
        {"eigenvalues": ()},
        {"eigenvalues": (0.0, 1.0)},
        {"steps": 3},
        {"dim": 0},
        {"grad_clip": 0.0},
        {"clip_value": 0.0},
    ],
)
def test_invalid_options_are_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=f"{next(iter(wrong)).replace('_', '-')} must be"):
        replace(QUICK, **wrong)
