"""What greedy misses a beam finds, a beam as wide as the tree finds all, and what is drawn is what was asked."""

from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from regard.generate import generate
from regard.lab import beam
from regard.lab.beam import QUICK, TEXTS, Knobs, languages, run, search
from regard.lab.finding import quietly

LANGUAGES = st.builds(
    Knobs,
    languages=st.integers(1, 4),
    words=st.integers(2, 4),
    length=st.integers(2, 4),
    sharpness=st.sampled_from([0.3, 1.0, 3.0]),
    seed=st.integers(0, 999),
)


def step_by_step(joint: Tensor) -> tuple[int, ...]:
    """Greedy by hand, in one language: the word after which most of the probability is left."""
    text = ()
    while joint.dim():
        best = max(range(len(joint)), key=lambda word: joint[word].sum().item())
        text, joint = (*text, best), joint[best]
    return text


@given(knobs=LANGUAGES)
@settings(max_examples=30)
def test_greedy_takes_the_best_next_word_and_a_beam_of_all_finds_the_best_text(knobs: Knobs) -> None:
    joint = languages(knobs)
    assert joint.flatten(1).sum(1) == pytest.approx(1.0, abs=1e-5)
    assert search(joint, 1).texts == [step_by_step(language) for language in joint]
    everything = search(joint, knobs.words ** (knobs.length - 1))
    torch.testing.assert_close(everything.chances, joint.flatten(1).amax(1))


@given(knobs=LANGUAGES, width=st.integers(2, 5))
@settings(max_examples=30)
def test_no_more_beginnings_are_asked_than_the_beam_is_wide(knobs: Knobs, width: int) -> None:
    found = search(languages(replace(knobs, languages=1)), width)
    for length in range(knobs.length + 1):
        assert 1 <= sum(len(text) == length for text in found.asked) <= min(width, knobs.words**length)
    assert found.texts[0] in found.asked


def test_the_lecture_s_tree_is_exact() -> None:
    assert sum(TEXTS.values()) == pytest.approx(1.0)
    greedy, wider, all_of_them = run(QUICK, quietly).table
    assert (greedy["text"], greedy["P"]) == ("time flies by", 0.11)
    assert (wider["text"], wider["P"]) == (all_of_them["text"], all_of_them["P"]) == ("fruit flies buzz", 0.3)


def test_the_claim_holds_and_the_tree_shows_what_was_kept_and_what_was_pruned() -> None:
    found = run(QUICK, quietly)
    assert found.holds
    colours = {text.get_text(): text.get_color() for text in found.figure.axes[0].texts}
    assert colours["fruit\n0.40"] == colours["time\n0.50"] == colours["buzz\n0.30"] == "black"
    assert colours["sand\n0.10"] == colours["will\n0.15"] == colours["bite\n0.06"] == "grey"
    assert "out\n0.10" not in colours


def test_a_search_that_is_greedy_whatever_it_is_told_does_not_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    def narrow(*asked, **more):
        *others, how, numbers = asked
        return generate(*others, replace(how, beam=1), numbers)

    monkeypatch.setattr(beam, "generate", narrow)
    assert not run(QUICK, quietly).holds


def test_too_many_texts_are_refused() -> None:
    with pytest.raises(ValueError, match="length must be shorter, for 100 words make too many texts, not 4"):
        Knobs(words=100)
