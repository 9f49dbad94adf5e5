"""Beam search finds what greedy search misses, and the figure shows what it pruned."""

from dataclasses import replace

import pytest
import torch

from regard.generate import generate
from regard.lab import beam, synthetic_data
from regard.lab.beam import QUICK, TEXTS, BeamOptions, run
from regard.lab.result import LabResult, no_progress


def test_the_worked_example_is_exact(quick) -> None:
    assert sum(TEXTS.values()) == pytest.approx(1.0)
    greedy, wider, all_of_them = quick("beam").table
    assert (greedy["text"], greedy["P"]) == ("time flies by", 0.11)
    assert (wider["text"], wider["P"]) == (all_of_them["text"], all_of_them["P"]) == ("fruit flies buzz", 0.3)


def colours(result: LabResult) -> dict[str, str]:
    return {text.get_text(): text.get_color() for text in result.figure.axes[0].texts}


def test_the_claim_holds_and_the_tree_marks_pruned_prefixes(quick) -> None:
    assert quick("beam").holds
    plot = colours(quick("beam"))
    assert plot["start"] == plot["fruit\n0.40"] == plot["time\n0.50"] == plot["buzz\n0.30"] == "black"
    assert plot["sand\n0.10"] == plot["will\n0.15"] == plot["heals\n0.15"] == plot["bite\n0.06"] == "grey"
    assert "out\n0.10" not in plot  # a pruned prefix is not expanded
    assert not [label for label in plot if label.endswith("0.00")]


def test_a_full_beam_prunes_nothing() -> None:
    result = run(replace(QUICK, beam=9), no_progress)
    assert result.holds
    plot = colours(result)
    assert set(plot.values()) == {"black"}
    assert {label.split("\n")[0] for label in plot} == {"start", *" ".join(TEXTS).split()}


def test_wider_beams_find_the_best_text_more_often(quick) -> None:
    best, _ = (line.get_ydata() for line in quick("beam").figure.axes[1].lines)
    assert list(best) == sorted(best)
    assert best[-1] == 1


def test_the_claim_fails_if_every_search_is_greedy(monkeypatch: pytest.MonkeyPatch) -> None:
    def narrow(*args, options, numbers):
        return generate(*args, options=replace(options, num_beams=1), numbers=numbers)

    monkeypatch.setattr(synthetic_data, "generate", narrow)
    assert not run(QUICK, no_progress).holds


def test_the_claim_fails_if_greedy_is_always_right(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where every next word has the same probability in every context, the best first word begins the best text."""

    def alike(count: int, words: int, length: int, *_: float) -> torch.Tensor:
        assert length == 3
        p = torch.arange(1.0, words + 1).softmax(-1)
        return (p[:, None, None] * p[:, None] * p).expand(count, -1, -1, -1)

    monkeypatch.setattr(beam, "random_languages", alike)
    assert not run(QUICK, no_progress).holds


@pytest.mark.parametrize("wrong", [{"beam": 1}, {"words": 1}, {"length": 1}, {"languages": 0}])
def test_invalid_options_are_refused(wrong: dict[str, int]) -> None:
    with pytest.raises(ValueError, match=f"{next(iter(wrong))} must be"):
        replace(QUICK, **wrong)


def test_too_many_texts_are_refused() -> None:
    with pytest.raises(ValueError, match="length must be shorter, for 100 words make too many texts, not 4"):
        BeamOptions(words=100)
