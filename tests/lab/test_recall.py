"""Gradients stop where they are cut, and a body that recalls too little or too much is noticed."""

from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from regard.lab import recall
from regard.lab.recall import (
    GUESSES,
    KNOWS,
    NOT_CLIPPED,
    QUICK,
    STYLES,
    TRUNCATED,
    farthest,
    gradient_sizes,
    run,
    taught,
)
from regard.lab.result import quietly
from regard.lab.synthetic_tasks import named


@settings(max_examples=50)
@given(shares=st.lists(st.floats(0, 1), min_size=1, max_size=6))
def test_the_reach_ends_before_the_first_distance_that_is_not_known(shares: list[float]) -> None:
    distances = [2**n for n in range(len(shares))]
    reach = farthest(distances, shares)
    assert all(share >= KNOWS for d, share in zip(distances, shares, strict=True) if d <= reach)
    assert shares[len([d for d in distances if d <= reach]) :][:1] < [KNOWS]


@pytest.mark.parametrize("kind", ["RNN", "GRU", "LSTM", "Transformer"])
def test_gradients_reach_every_word(kind: str) -> None:
    sizes = gradient_sizes(kind, 12, QUICK)
    assert len(sizes) == 13
    assert sizes[0] == 1
    assert min(sizes) > 0


@pytest.mark.parametrize("cut", [1, 2, 5, 8, 13])
def test_truncation_stops_them_at_the_cut_and_nowhere_else(cut: int) -> None:
    """14 words in pieces of `cut`: only those in the piece of the question, the last word, are reached."""
    sizes = gradient_sizes(TRUNCATED, 12, replace(QUICK, truncate=cut))
    reached = 13 % cut
    assert [size > 0 for size in sizes] == [True] * reached + [False] * (13 - reached)


def test_a_body_that_has_no_lessons_guesses_and_with_some_it_knows() -> None:
    assert taught("Transformer", 3, replace(QUICK, steps=0)) < GUESSES
    assert taught("Transformer", 3, QUICK) >= KNOWS


def test_the_lessons_are_the_same_for_every_body(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []
    monkeypatch.setattr(recall, "named", lambda *asked: seen.append(named(*asked)) or seen[-1])
    for kind in STYLES:
        taught(kind, 2, replace(QUICK, steps=1))
    lessons = [words for words, _ in seen[::2]]
    assert all(torch.equal(words, lessons[0]) for words in lessons)


def test_it_holds(quick) -> None:
    found = quick("recall")
    assert found.holds
    assert [row["body"] for row in found.table] == list(STYLES)
    assert [key for key in found.table[0] if key != "body"] == [f"right at {d}" for d in QUICK.distances]


REACH = {"RNN": 3, NOT_CLIPPED: 3, "GRU": 10, "LSTM": 10, TRUNCATED: 3, "Transformer": 10}


@pytest.mark.parametrize(
    ("why", "reach"),
    [
        ("", {}),
        ("an RNN that does not forget", {"RNN": 10}),
        ("clipping that was all it lacked", {NOT_CLIPPED: 10}),
        ("an LSTM that forgets like an RNN", {"LSTM": 3}),
        ("truncation that does not matter", {TRUNCATED: 10}),
        ("a Transformer that forgets", {"Transformer": 3}),
    ],
)
def test_it_does_not_hold_with(why: str, reach: dict[str, int], monkeypatch: pytest.MonkeyPatch) -> None:
    told = REACH | reach
    monkeypatch.setattr(recall, "taught", lambda kind, distance, knobs: 1.0 if distance <= told[kind] else 0.25)
    assert run(QUICK, quietly).holds is (not why)


def test_it_does_not_hold_if_nothing_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recall, "taught", lambda kind, distance, knobs: 1.0 if distance <= REACH[kind] else 0.25)
    assert not run(replace(QUICK, truncate=99), quietly).holds


@pytest.mark.parametrize(
    "wrong", [{"distances": ()}, {"distances": (0, 4)}, {"names": 2}, {"dim": 10}, {"truncate": 0}]
)
def test_knobs_that_make_no_sense_are_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=f"{next(iter(wrong))} must be"):
        replace(QUICK, **wrong)
