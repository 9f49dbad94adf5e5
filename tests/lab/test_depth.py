"""Every network can represent the identity, only deep plain ones fail to learn it; broken residuals fail the claim."""

from dataclasses import replace

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from regard.lab import depth
from regard.lab.depth import NETWORKS, QUICK, DepthOptions, losses, run
from regard.lab.result import no_progress
from regard.lab.small_networks import plain_he_init, two_layer_mlp
from regard.parts.block import PreNorm

D = 3


def as_identity(layer: nn.Sequential) -> None:
    """relu(x) - relu(-x) = x"""
    up, _, down = layer
    with torch.no_grad():
        up.weight.copy_(torch.cat((torch.eye(D, up.in_features), -torch.eye(D, up.in_features))))
        down.weight.copy_(torch.cat((torch.eye(D), -torch.eye(D)), 1))
        for linear in (up, down):
            linear.bias.zero_()


@pytest.mark.parametrize(("name", "all_layers"), [("plain", True), ("DenseNet", False)])
def test_identity_weights_exist(name: str, all_layers: bool) -> None:
    torch.manual_seed(1)
    network, x = NETWORKS[name](D, 5), torch.randn(7, D)
    for layer in network if all_layers else [network[-1]]:
        as_identity(layer)
    assert_close(network(x), x)


@pytest.mark.parametrize("name", ["ResNet", "ResNet + layer norm"])
def test_a_residual_network_with_zero_layers_is_the_identity(name: str) -> None:
    network, x = NETWORKS[name](D, 5), torch.randn(7, D)
    for part in network:
        nn.init.zeros_(part.inner[2].weight)
        nn.init.zeros_(part.inner[2].bias)
    assert torch.equal(network(x), x)


@pytest.mark.parametrize("deep", [1, 2, 5])
def test_every_network_has_its_depth(deep: int) -> None:
    for make in NETWORKS.values():
        network = make(D, deep)
        assert sum(isinstance(part, nn.Linear) for part in network.modules()) == 2 * deep
        assert network(torch.randn(7, D)).shape == (7, D)


def test_he_initialisation_preserves_variance() -> None:
    torch.manual_seed(2)
    wide = 256
    x = torch.randn(64, wide)
    assert 0.5 < plain_he_init(wide, 6)(x).std() < 2
    assert NETWORKS["plain"](wide, 6)(x).std() < 0.1


def test_the_loss_is_1_for_zero_output_and_0_for_the_identity() -> None:
    options = DepthOptions(dim=D, steps=20)
    silent, perfect = two_layer_mlp(D, D), two_layer_mlp(D, D)
    as_identity(perfect)
    for weight in silent[2].parameters():
        nn.init.zeros_(weight)
    assert losses(silent, options)[0] == 1
    assert losses(perfect, options)[0] < 1e-12


def test_the_claim_holds(quick) -> None:
    result = quick("depth")
    assert result.holds
    assert [row["network"] for row in result.table] == list(NETWORKS)


def test_the_experiment_is_deterministic() -> None:
    few = replace(QUICK, depths=(1, 2), steps=20)
    assert run(few, no_progress).table == run(few, no_progress).table


def test_the_claim_fails_without_residual_connections(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(PreNorm, "forward", lambda self, x: self.inner(self.norm(x)))
    result = run(QUICK, no_progress)
    assert not result.holds
    assert {row["network"] for row in result.table if row["depth 10"] > depth.MIN_LOSS_PLAIN} == {*NETWORKS} - {
        "DenseNet"
    }


def test_the_claim_fails_for_a_shallow_plain_network() -> None:
    result = run(replace(QUICK, depths=(1, 1)), no_progress)
    assert not result.holds
    assert all(row["depth 1"] < depth.MIN_LOSS_PLAIN for row in result.table)


@pytest.mark.parametrize("wrong", [{"depths": (3,)}, {"depths": (0, 4)}, {"steps": 3}, {"lr": 0.0}, {"dim": 0}])
def test_invalid_options_are_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=f"{next(iter(wrong))} must be"):
        replace(QUICK, **wrong)
