"""Every layer could be the identity, only depth keeps a plain network from it, and a residual that fails is noticed."""

from dataclasses import replace

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from regard.lab import depth
from regard.lab.deep_networks import layer, plain_kept_in_size
from regard.lab.depth import NETWORKS, QUICK, Knobs, losses, run
from regard.lab.result import quietly
from regard.parts.residual import PreNorm

D = 3


def as_identity(one: nn.Sequential) -> None:
    """relu(x) - relu(-x) = x"""
    up, _, down = one
    with torch.no_grad():
        up.weight.copy_(torch.cat((torch.eye(D, up.in_features), -torch.eye(D, up.in_features))))
        down.weight.copy_(torch.cat((torch.eye(D), -torch.eye(D)), 1))
        for linear in (up, down):
            linear.bias.zero_()


@pytest.mark.parametrize(("name", "all_layers"), [("plain", True), ("DenseNet", False)])
def test_there_are_weights_that_hand_everything_on(name: str, all_layers: bool) -> None:
    torch.manual_seed(1)
    network, x = NETWORKS[name](D, 5), torch.randn(7, D)
    for one in network if all_layers else [network[-1]]:
        as_identity(one)
    assert_close(network(x), x)


@pytest.mark.parametrize("name", ["ResNet", "ResNet + layer norm"])
def test_a_residual_hands_everything_on_when_its_layers_say_nothing(name: str) -> None:
    network, x = NETWORKS[name](D, 5), torch.randn(7, D)
    for part in network:
        nn.init.zeros_(part.inner[2].weight)
        nn.init.zeros_(part.inner[2].bias)
    assert torch.equal(network(x), x)


@pytest.mark.parametrize("deep", [1, 2, 5])
def test_every_network_is_as_deep_as_it_says(deep: int) -> None:
    for make in NETWORKS.values():
        network = make(D, deep)
        assert sum(isinstance(part, nn.Linear) for part in network.modules()) == 2 * deep
        assert network(torch.randn(7, D)).shape == (7, D)


def test_one_plain_network_keeps_the_size_of_its_numbers() -> None:
    torch.manual_seed(2)
    wide = 256
    x = torch.randn(64, wide)
    assert 0.5 < plain_kept_in_size(wide, 6)(x).std() < 2
    assert NETWORKS["plain"](wide, 6)(x).std() < 0.1


def test_silence_misses_all_and_the_identity_nothing() -> None:
    knobs = Knobs(dim=D, steps=20)
    silent, perfect = layer(D, D), layer(D, D)
    as_identity(perfect)
    for weight in silent[2].parameters():
        nn.init.zeros_(weight)
    assert losses(silent, knobs)[0] == 1
    assert losses(perfect, knobs)[0] < 1e-12


def test_it_holds(quick) -> None:
    found = quick("depth")
    assert found.holds
    assert [row["network"] for row in found.table] == list(NETWORKS)


def test_the_same_knobs_find_the_same() -> None:
    few = replace(QUICK, depths=(1, 2), steps=20)
    assert run(few, quietly).table == run(few, quietly).table


def test_it_does_not_hold_if_residuals_do_not_add(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(PreNorm, "forward", lambda self, x: self.inner(self.norm(x)))
    found = run(QUICK, quietly)
    assert not found.holds
    assert {row["network"] for row in found.table if row["depth 10"] > depth.FAILED} == {*NETWORKS} - {"DenseNet"}


def test_it_does_not_hold_if_the_plain_network_is_not_deep() -> None:
    found = run(replace(QUICK, depths=(1, 1)), quietly)
    assert not found.holds
    assert all(row["depth 1"] < depth.FAILED for row in found.table)


@pytest.mark.parametrize("wrong", [{"depths": (3,)}, {"depths": (0, 4)}, {"steps": 3}, {"rate": 0.0}, {"dim": 0}])
def test_knobs_that_make_no_sense_are_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=f"{next(iter(wrong))} must be"):
        replace(QUICK, **wrong)
