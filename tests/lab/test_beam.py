"""What greedy misses a beam finds, and what is drawn is what the search kept and pruned."""

from dataclasses import replace

import pytest
import torch

from regard.generate import generate
from regard.lab import beam, tabular_lm
from regard.lab.beam import QUICK, TEXTS, Knobs, run
from regard.lab.result import Finding, quietly


def test_the_tree_is_exact(quick) -> None:
    assert sum(TEXTS.values()) == pytest.approx(1.0)
    greedy, wider, all_of_them = quick("beam").table
    assert (greedy["text"], greedy["P"]) == ("time flies by", 0.11)
    assert (wider["text"], wider["P"]) == (all_of_them["text"], all_of_them["P"]) == ("fruit flies buzz", 0.3)


def colours(found: Finding) -> dict[str, str]:
    return {text.get_text(): text.get_color() for text in found.figure.axes[0].texts}


def test_it_holds_and_the_tree_shows_what_was_kept_and_what_was_pruned(quick) -> None:
    assert quick("beam").holds
    drawn = colours(quick("beam"))
    assert drawn["start"] == drawn["fruit\n0.40"] == drawn["time\n0.50"] == drawn["buzz\n0.30"] == "black"
    assert drawn["sand\n0.10"] == drawn["will\n0.15"] == drawn["heals\n0.15"] == drawn["bite\n0.06"] == "grey"
    assert "out\n0.10" not in drawn  # nobody looks at what follows a beginning that was pruned
    assert not [told for told in drawn if told.endswith("0.00")]


def test_a_beam_that_keeps_all_prunes_nothing() -> None:
    found = run(replace(QUICK, beam=9), quietly)
    assert found.holds
    drawn = colours(found)
    assert set(drawn.values()) == {"black"}
    assert {told.split("\n")[0] for told in drawn} == {"start", *" ".join(TEXTS).split()}


def test_a_wider_beam_misses_less_and_one_that_holds_all_misses_nothing(quick) -> None:
    best, _ = (line.get_ydata() for line in quick("beam").figure.axes[1].lines)
    assert list(best) == sorted(best)
    assert best[-1] == 1


def test_a_search_that_is_greedy_whatever_it_is_told_does_not_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    def narrow(*asked, how, numbers):
        return generate(*asked, how=replace(how, beam=1), numbers=numbers)

    monkeypatch.setattr(tabular_lm, "generate", narrow)
    assert not run(QUICK, quietly).holds


def test_languages_in_which_greedy_is_always_right_do_not_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where every next word has the same chances, whatever came before, the best first word begins the best text."""

    def alike(count: int, words: int, length: int, *_: float) -> torch.Tensor:
        assert length == 3
        p = torch.arange(1.0, words + 1).softmax(-1)
        return (p[:, None, None] * p[:, None] * p).expand(count, -1, -1, -1)

    monkeypatch.setattr(beam, "languages", alike)
    assert not run(QUICK, quietly).holds


@pytest.mark.parametrize("wrong", [{"beam": 1}, {"words": 1}, {"length": 1}, {"languages": 0}])
def test_knobs_that_make_no_sense_are_refused(wrong: dict[str, int]) -> None:
    with pytest.raises(ValueError, match=f"{next(iter(wrong))} must be"):
        replace(QUICK, **wrong)


def test_too_many_texts_are_refused() -> None:
    with pytest.raises(ValueError, match="length must be shorter, for 100 words make too many texts, not 4"):
        Knobs(words=100)
