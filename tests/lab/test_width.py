"""Parameter counts follow the formula, training fits what a network can represent; broken networks fail the claim."""

from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from regard.lab import width
from regard.lab.result import no_progress
from regard.lab.small_networks import densenet, resnet
from regard.lab.width import AT, QUICK, count_parameters, fit_network, run, target


@given(dim=st.integers(1, 9), depth=st.integers(1, 12))
@settings(max_examples=30)
def test_parameter_counts_equal_the_formulas(dim: int, depth: int) -> None:
    hidden = 2 * dim
    down = hidden * dim + dim
    assert count_parameters(resnet(dim, depth)) == depth * (dim * hidden + hidden + down)
    assert count_parameters(densenet(dim, depth)) == sum(
        (i * dim) * hidden + hidden + down for i in range(1, depth + 1)
    )


def test_one_unit_fits_a_one_unit_function(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(width, "target", lambda x: 3 * (x + 0.5).relu() - 1)
    torch.manual_seed(3)
    assert min((fit_network(1, 100) - width.target(AT)).abs().max() for _ in range(5)) < 1e-4


def test_fitting_is_deterministic() -> None:
    def once() -> torch.Tensor:
        torch.manual_seed(4)
        return fit_network(3, 5)

    assert torch.equal(once(), once())
    assert once().shape == AT.shape


def test_more_steps_lower_the_error() -> None:
    off = []
    for steps in (1, 10, 60):
        torch.manual_seed(5)
        off.append((fit_network(16, steps) - target(AT)).square().mean().item())
    assert off == sorted(off, reverse=True)


def test_the_claim_holds(quick) -> None:
    result = quick("width")
    assert result.holds
    assert [row["parameters"] for row in result.table[: len(QUICK.widths)]] == [3 * wide + 1 for wide in QUICK.widths]


def test_the_experiment_is_deterministic() -> None:
    few = replace(QUICK, widths=(1, 2), starts=1)
    assert run(few, no_progress).table == run(few, no_progress).table


@pytest.mark.parametrize("defect", ["no gain from width", "no training", "a DenseNet that sees only the layer before"])
def test_the_claim_fails_with(defect: str, monkeypatch: pytest.MonkeyPatch) -> None:
    options = replace(QUICK, starts=1, steps=40)
    if defect == "no gain from width":
        monkeypatch.setattr(width, "fit_network", lambda wide, steps, right=fit_network: right(2, steps))
    elif defect == "no training":
        options = replace(options, steps=1)
    else:
        monkeypatch.setitem(width.DEEP_NETWORKS, "DenseNet", resnet)
    assert not run(options, no_progress).holds


@pytest.mark.parametrize("wrong", [{"widths": (3,)}, {"widths": (0, 4)}, {"starts": 0}, {"steps": 0}, {"depth": 3}])
def test_invalid_options_are_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=f"{next(iter(wrong))} must be"):
        replace(QUICK, **wrong)
