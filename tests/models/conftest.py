"""Shared by the tests of models: random weights, and weights of transformers under our names."""

import re
from collections.abc import Mapping

import pytest
import torch
from torch import Tensor, nn


def randomize(model: nn.Module) -> nn.Module:
    """Add noise to every weight, so that none stays at its initial zero or one."""
    generator = torch.Generator().manual_seed(5)
    with torch.no_grad():
        for weight in model.parameters():
            weight.add_(torch.randn(weight.shape, generator=generator) * 0.2)
    return model


def copy_weights(tensors: Mapping[str, Tensor], model: nn.Module, table: Mapping[str, str]) -> nn.Module:
    """Copy all weights of `model` from `tensors`; `table` maps their names to ours, and {} is a layer number."""
    missing = dict(model.named_parameters())
    for name, tensor in tensors.items():
        layer = re.search(r"(?<=\.)\d+(?=\.)", name)
        ours = table[re.sub(r"(?<=\.)\d+(?=\.)", "{}", name)].format(layer and layer[0])
        assert tensor.shape == missing[ours].shape, (name, ours)
        missing.pop(ours).data.copy_(tensor)
    assert not missing, f"no tensor for {[*missing]}"
    return model


@pytest.fixture(name="randomize", scope="session")
def randomize_fixture():
    return randomize


@pytest.fixture(name="copy_weights", scope="session")
def copy_weights_fixture():
    return copy_weights
