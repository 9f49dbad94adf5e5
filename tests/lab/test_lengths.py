"""Each reader is told of order in its own way, and one that only seems to read on fails."""

from dataclasses import replace

import pytest
import torch
from torch.testing import assert_close

from regard.lab import lengths, sequence_models
from regard.lab.lengths import QUICK, Knobs, run
from regard.lab.result import quietly
from regard.lab.sequence_models import told_of_order
from regard.parts.positions import Alibi

TOLD = pytest.mark.parametrize("name", ["learned", "sinusoidal", "rotary", "ALiBi"])


def last(name: str, ids: list[int]) -> torch.Tensor:
    torch.manual_seed(3)
    return told_of_order(5, context=32, dim=12, layers=1, heads=3)[name](torch.tensor([ids]))[0, -1]


def test_one_layer_without_positions_cannot_tell_the_order() -> None:
    assert_close(last("none", [1, 2, 3, 4, 0]), last("none", [3, 1, 4, 2, 0]))


@TOLD
def test_with_positions_it_can(name: str) -> None:
    apart = (last(name, [1, 2, 3, 4, 0]) - last(name, [3, 1, 4, 2, 0])).abs().max()
    assert apart > 1e-3


def test_the_claim_holds(quick) -> None:
    found = quick("lengths")
    assert found.holds
    assert [row["positions"] for row in found.table] == ["none", "learned", "sinusoidal", "rotary", "ALiBi"]


def test_the_spans_cover_every_place_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A loss that is the place itself, so that the mean of a span tells where it is."""
    monkeypatch.setattr(lengths, "teach", lambda *_: None)
    monkeypatch.setattr(lengths, "losses", lambda model, ids: torch.arange(2.0, ids.size(1) + 1).expand(2, -1))
    row = run(Knobs(length=8, asked=2), quietly).table[0]
    means = [sum(span) / len(span) for span in (range(3, 10), range(10, 18), range(18, 34))]
    assert list(row.values()) == ["none", *means]


def test_readers_that_learnt_nothing_do_not_pass() -> None:
    assert not run(replace(QUICK, steps=1), quietly).holds


def test_a_bias_of_the_wrong_sign_does_not_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sequence_models, "Alibi", lambda heads: lambda T, S: -Alibi(heads)(T, S))
    assert not run(QUICK, quietly).holds


@pytest.mark.parametrize("wrong", [{"length": 3}, {"asked": 0}, {"dim": 20}])
def test_knobs_that_make_no_sense_are_refused(wrong: dict[str, int]) -> None:
    with pytest.raises(ValueError, match=f"{next(iter(wrong))} must be"):
        replace(QUICK, **wrong)
