"""Parameters are counted as the formula says, enough units fit exactly what they can, and a narrow stack is noticed."""

from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from regard.lab import width
from regard.lab.deep_networks import densenet, resnet
from regard.lab.result import quietly
from regard.lab.width import AT, QUICK, count, fitted, function, run


@given(dim=st.integers(1, 9), depth=st.integers(1, 12))
@settings(max_examples=30)
def test_parameters_are_those_of_the_formula(dim: int, depth: int) -> None:
    hidden = 2 * dim
    down = hidden * dim + dim
    assert count(resnet(dim, depth)) == depth * (dim * hidden + hidden + down)
    assert count(densenet(dim, depth)) == sum((i * dim) * hidden + hidden + down for i in range(1, depth + 1))


def test_one_unit_learns_what_one_unit_can(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(width, "function", lambda x: 3 * (x + 0.5).relu() - 1)
    torch.manual_seed(3)
    assert min((fitted(1, 100) - width.function(AT)).abs().max() for _ in range(5)) < 1e-4


def test_fitting_starts_from_the_seed() -> None:
    def once() -> torch.Tensor:
        torch.manual_seed(4)
        return fitted(3, 5)

    assert torch.equal(once(), once())
    assert once().shape == AT.shape


def test_more_steps_come_nearer() -> None:
    off = []
    for steps in (1, 10, 60):
        torch.manual_seed(5)
        off.append((fitted(16, steps) - function(AT)).square().mean().item())
    assert off == sorted(off, reverse=True)


def test_it_holds(quick) -> None:
    found = quick("width")
    assert found.holds
    assert [row["parameters"] for row in found.table[: len(QUICK.widths)]] == [3 * wide + 1 for wide in QUICK.widths]


def test_the_same_knobs_find_the_same() -> None:
    few = replace(QUICK, widths=(1, 2), starts=1)
    assert run(few, quietly).table == run(few, quietly).table


@pytest.mark.parametrize("why", ["no gain from width", "no training", "a DenseNet that sees only the layer before"])
def test_it_does_not_hold_with(why: str, monkeypatch: pytest.MonkeyPatch) -> None:
    knobs = replace(QUICK, starts=1, steps=40)
    if why == "no gain from width":
        monkeypatch.setattr(width, "fitted", lambda wide, steps, right=fitted: right(2, steps))
    elif why == "no training":
        knobs = replace(knobs, steps=1)
    else:
        monkeypatch.setitem(width.DEEP, "DenseNet", resnet)
    assert not run(knobs, quietly).holds


@pytest.mark.parametrize("wrong", [{"widths": (3,)}, {"widths": (0, 4)}, {"starts": 0}, {"steps": 0}, {"depth": 3}])
def test_knobs_that_make_no_sense_are_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=f"{next(iter(wrong))} must be"):
        replace(QUICK, **wrong)
