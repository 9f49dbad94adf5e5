"""FamilyMap in both directions: values, preserved tensors, tied weights."""

from dataclasses import MISSING

import pytest
import torch
from torch import nn

from regard.hub.family_map import FamilyMap, ValueMap
from regard.hub.match_state_dict import rename_tensors
from regard.parts.heads import Model

ACTIVATION = ValueMap("activation", {"gelu_new": "tanh", "gelu_fast": "tanh", "relu": "relu"})
FAMILY_MAP = FamilyMap(
    family="some",
    architecture="SomeModel",
    model="some",
    config_fields={"width": "dim", "act": ACTIVATION},
    required={},
    weights={"one.{}.weight": "body.{}.one", "shared.weight": "body.shared"},
    prefix="some.",
    derived_fields={"longest": lambda config: min(config["length"], config.get("window", 99))},
    written_keys={"length": lambda c: c["longest"], "window": lambda c: MISSING if c["longest"] > 10 else None},
    defaults={"act": "relu"},
    tied={"again.weight": "shared.weight"},
    ignored=("mask",),
    preserved=("pooler.{}.weight",),
)


def test_several_hf_values_map_to_one_and_the_first_is_written() -> None:
    for hf_value, value in ACTIVATION.values.items():
        assert FAMILY_MAP.config_from_hf({"width": 3, "act": hf_value, "length": 5})["activation"] == value
    assert FAMILY_MAP.config_from_hf({"width": 3, "length": 5})["activation"] == "relu"
    assert FAMILY_MAP.config_to_hf({"dim": 3, "activation": "tanh", "longest": 5})["act"] == "gelu_new"


@pytest.mark.parametrize("value", ["mish", 3, ["relu"], {"relu": 1}])
def test_an_unknown_value_is_refused_with_the_choices(value: object) -> None:
    with pytest.raises(ValueError, match="act is .*, but only 'gelu_new' or 'gelu_fast' or 'relu' is supported"):
        FAMILY_MAP.config_from_hf({"width": 3, "act": value, "length": 5})


def test_a_derived_field_reads_several_keys() -> None:
    assert FAMILY_MAP.config_from_hf({"width": 3, "length": 50, "window": 7})["longest"] == 7
    assert FAMILY_MAP.config_to_hf({"dim": 3, "activation": "relu", "longest": 7})["window"] is None
    assert "window" not in FAMILY_MAP.config_to_hf({"dim": 3, "activation": "relu", "longest": 70})


@pytest.mark.parametrize("prefix", ["", "some."])
def test_ignored_and_preserved_tensors_are_not_renamed(prefix: str) -> None:
    weight, unused = torch.ones(2), torch.zeros(3)
    tensors = {f"{prefix}one.4.weight": weight, f"{prefix}pooler.1.weight": unused, f"{prefix}mask": unused}
    assert FAMILY_MAP.tensors_from_hf(tensors) == {"body.4.one": weight}
    assert [name for name in tensors if FAMILY_MAP.is_preserved(name)] == [f"{prefix}pooler.1.weight"]


@pytest.mark.parametrize("names", [("again.weight", "shared.weight"), ("shared.weight", "again.weight")])
def test_a_tied_weight_may_be_stored_twice_if_equal(names: tuple[str, str]) -> None:
    def rename(tensors: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        return rename_tensors(tensors, FAMILY_MAP, Model(nn.Identity(), nn.Identity()), "")

    a = torch.ones(2)
    assert torch.equal(rename({name: a.clone() for name in names})["body.shared"], a)
    assert torch.equal(rename({"again.weight": a})["body.shared"], a)
    with pytest.raises(ValueError, match="again.weight and shared.weight are one weight in this model, but differ"):
        rename({names[0]: a, names[1]: a + 1})
    for read in rename, FAMILY_MAP.tensors_from_hf:
        with pytest.raises(ValueError, match="some.one.4.weight occurs twice"):
            read({"one.4.weight": a, "some.one.4.weight": a})
