"""Names read a line of a table both ways: words, tensors that are kept, weights that are stored twice."""

from dataclasses import MISSING

import pytest
import torch
from torch import nn

from regard.hub.family_map import FamilyMap, ValueMap
from regard.hub.match_state_dict import sorted_out
from regard.parts.heads import Model

WORD = ValueMap("activation", {"gelu_new": "tanh", "gelu_fast": "tanh", "relu": "relu"})
NAMES = FamilyMap(
    family="some",
    architecture="SomeModel",
    model="some",
    sizes={"width": "dim", "act": WORD},
    theirs={},
    weights={"one.{}.weight": "body.{}.one", "shared.weight": "body.shared"},
    prefix="some.",
    reads={"longest": lambda config: min(config["length"], config.get("window", 99))},
    written={"length": lambda c: c["longest"], "window": lambda c: MISSING if c["longest"] > 10 else None},
    absent={"act": "relu"},
    twins={"again.weight": "shared.weight"},
    ignored=("mask",),
    kept=("pooler.{}.weight",),
)


def test_several_words_of_theirs_are_one_of_ours_and_the_first_is_written() -> None:
    for theirs, ours in WORD.words.items():
        assert NAMES.config_to_ours({"width": 3, "act": theirs, "length": 5})["activation"] == ours
    assert NAMES.config_to_ours({"width": 3, "length": 5})["activation"] == "relu"
    assert NAMES.config_to_theirs({"dim": 3, "activation": "tanh", "longest": 5})["act"] == "gelu_new"


@pytest.mark.parametrize("word", ["mish", 3, ["relu"], {"relu": 1}])
def test_a_word_that_is_not_known_is_refused_with_those_that_are(word: object) -> None:
    with pytest.raises(ValueError, match="act is .*, but only 'gelu_new' or 'gelu_fast' or 'relu' can be read here"):
        NAMES.config_to_ours({"width": 3, "act": word, "length": 5})


def test_a_field_may_follow_from_several_keys() -> None:
    assert NAMES.config_to_ours({"width": 3, "length": 50, "window": 7})["longest"] == 7
    assert NAMES.config_to_theirs({"dim": 3, "activation": "relu", "longest": 7})["window"] is None
    assert "window" not in NAMES.config_to_theirs({"dim": 3, "activation": "relu", "longest": 70})


@pytest.mark.parametrize("prefix", ["", "some."])
def test_what_is_kept_is_passed_over_but_known(prefix: str) -> None:
    one, rest = torch.ones(2), torch.zeros(3)
    tensors = {f"{prefix}one.4.weight": one, f"{prefix}pooler.1.weight": rest, f"{prefix}mask": rest}
    assert NAMES.to_ours(tensors) == {"body.4.one": one}
    assert [name for name in tensors if NAMES.keeps(name)] == [f"{prefix}pooler.1.weight"]


@pytest.mark.parametrize("names", [("again.weight", "shared.weight"), ("shared.weight", "again.weight")])
def test_a_shared_weight_may_be_there_twice_if_it_is_the_same(names: tuple[str, str]) -> None:
    def sorted_once(tensors: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        return sorted_out(tensors, NAMES, Model(nn.Identity(), nn.Identity()), "")

    a = torch.ones(2)
    assert torch.equal(sorted_once({name: a.clone() for name in names})["body.shared"], a)
    assert torch.equal(sorted_once({"again.weight": a})["body.shared"], a)
    with pytest.raises(ValueError, match="again.weight and shared.weight are one weight in this model, but differ"):
        sorted_once({names[0]: a, names[1]: a + 1})
    for sort in sorted_once, NAMES.to_ours:
        with pytest.raises(ValueError, match="some.one.4.weight is there twice"):
            sort({"one.4.weight": a, "some.one.4.weight": a})
