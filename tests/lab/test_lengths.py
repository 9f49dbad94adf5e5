"""Each decoder encodes positions in its own way, and one that does not extrapolate fails the claim."""

from dataclasses import replace

import pytest
import torch
from torch.testing import assert_close

from regard.lab import lengths, small_networks
from regard.lab.lengths import QUICK, LengthsOptions, run
from regard.lab.result import no_progress
from regard.lab.small_networks import decoders_by_position
from regard.parts.positions import Alibi

WITH_POSITIONS = pytest.mark.parametrize("name", ["learned", "sinusoidal", "rotary", "ALiBi"])


def last(name: str, ids: list[int]) -> torch.Tensor:
    torch.manual_seed(3)
    return decoders_by_position(5, context=32, dim=12, layers=1, heads=3)[name](torch.tensor([ids]))[0, -1]


def test_one_layer_without_positions_ignores_order() -> None:
    assert_close(last("none", [1, 2, 3, 4, 0]), last("none", [3, 1, 4, 2, 0]))


@WITH_POSITIONS
def test_with_positions_order_matters(name: str) -> None:
    apart = (last(name, [1, 2, 3, 4, 0]) - last(name, [3, 1, 4, 2, 0])).abs().max()
    assert apart > 1e-3


def test_the_claim_holds(quick) -> None:
    result = quick("lengths")
    assert result.holds
    assert [row["positions"] for row in result.table] == ["none", "learned", "sinusoidal", "rotary", "ALiBi"]


def test_the_spans_cover_every_position_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The loss is the position itself, so that the mean of a span gives its position."""
    monkeypatch.setattr(lengths, "train", lambda *_: None)
    monkeypatch.setattr(lengths, "losses", lambda model, ids: torch.arange(2.0, ids.size(1) + 1).expand(2, -1))
    row = run(LengthsOptions(length=8, texts=2), no_progress).table[0]
    means = [sum(span) / len(span) for span in (range(3, 10), range(10, 18), range(18, 34))]
    assert list(row.values()) == ["none", *means]


def test_the_claim_fails_without_training() -> None:
    assert not run(replace(QUICK, steps=1), no_progress).holds


def test_the_claim_fails_with_a_bias_of_the_wrong_sign(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(small_networks, "Alibi", lambda heads: lambda T, S: -Alibi(heads)(T, S))
    assert not run(QUICK, no_progress).holds


@pytest.mark.parametrize("wrong", [{"length": 3}, {"texts": 0}, {"dim": 20}])
def test_invalid_options_are_refused(wrong: dict[str, int]) -> None:
    with pytest.raises(ValueError, match=f"{next(iter(wrong))} must be"):
        replace(QUICK, **wrong)
