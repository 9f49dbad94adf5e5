"""What the tests of models share: random weights that all matter, and weights of transformers under our names."""

import re
from collections.abc import Mapping

import pytest
import torch
from torch import Tensor, nn


def stirred(model: nn.Module) -> nn.Module:
    """No weight stays the zero or the one that it began as."""
    generator = torch.Generator().manual_seed(5)
    with torch.no_grad():
        for weight in model.parameters():
            weight.add_(torch.randn(weight.shape, generator=generator) * 0.2)
    return model


def copied(tensors: Mapping[str, Tensor], model: nn.Module, table: Mapping[str, str]) -> nn.Module:
    """`model` with all of its weights from `tensors`, under the names of `table`, where {} is the number of a layer."""
    wanted = dict(model.named_parameters())
    for name, tensor in tensors.items():
        layer = re.search(r"(?<=\.)\d+(?=\.)", name)
        ours = table[re.sub(r"(?<=\.)\d+(?=\.)", "{}", name)].format(layer and layer[0])
        assert tensor.shape == wanted[ours].shape, (name, ours)
        wanted.pop(ours).data.copy_(tensor)
    assert not wanted, f"nothing was copied to {[*wanted]}"
    return model


@pytest.fixture(name="stirred", scope="session")
def stirred_fixture():
    return stirred


@pytest.fixture(name="copied", scope="session")
def copied_fixture():
    return copied
