"""What is counted is words in their places, and translators that are all alike fail."""

from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch

from regard.lab import bottleneck
from regard.lab.bottleneck import GOOD, LOST, QUICK, STYLES, run, share_right
from regard.lab.result import quietly

WITHOUT, WITH = STYLES


@pytest.mark.parametrize(
    ("says", "share"),
    [(lambda words: words[::-1], 1.0), (lambda words: words, 1 / 5), (lambda words: [*words[:0:-1], 99], 4 / 5)],
    ids=["backwards", "forwards, where the middle is right", "the last word wrong"],
)
def test_words_in_their_places_are_counted(says, share: float, monkeypatch: pytest.MonkeyPatch) -> None:
    def writes(step, source, **asked):
        return [[SimpleNamespace(ids=says(words))] for words in source.tolist()]

    monkeypatch.setattr(bottleneck, "generate", writes)
    reader = SimpleNamespace(head=None, body=SimpleNamespace(read=lambda source: source))
    assert share_right(reader, 5, QUICK) == pytest.approx(share)


def test_it_holds(quick) -> None:
    found = quick("bottleneck")
    assert found.holds
    assert [row["words in the sentence"] for row in found.table] == list(range(2, QUICK.longest + 1))
    assert found.table[-1][WITHOUT] < LOST < GOOD <= found.table[-1][WITH]


def test_attention_looks_from_the_end_to_the_beginning(quick) -> None:
    """What is drawn is (written, read): each word that is written looks most at its own."""
    picture = quick("bottleneck").figure.axes[1].images[0].get_array()
    looked = torch.tensor(picture)[: QUICK.longest].argmax(1).tolist()
    own = list(range(QUICK.longest))[::-1]
    assert sum(abs(a - b) <= 1 for a, b in zip(looked, own, strict=True)) >= QUICK.longest - 2


@pytest.mark.parametrize(
    ("why", "shares"),
    [
        ("", {}),
        ("no bottleneck", {(False, 8): 0.9}),
        ("attention that does not help", {(True, 8): 0.7}),
        ("a translator that knows nothing", {(False, 2): 0.5}),
    ],
)
def test_it_does_not_hold_with(
    why: str, shares: dict[tuple[bool, int], float], monkeypatch: pytest.MonkeyPatch
) -> None:
    right = {(False, 2): 1.0, (True, 2): 1.0, (False, 8): 0.4, (True, 8): 1.0} | shares
    monkeypatch.setattr(
        bottleneck,
        "share_right",
        lambda model, length, knobs: right.get((model.body.config.attention, length), 1.0),
    )
    assert run(replace(QUICK, steps=1), quietly).holds is (not why)


def test_without_lessons_it_does_not_hold() -> None:
    assert not run(replace(QUICK, steps=1), quietly).holds


@pytest.mark.parametrize("wrong", [{"longest": 3}, {"words": 7}, {"steps": 0}])
def test_knobs_that_make_no_sense_are_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=f"{next(iter(wrong))} must be"):
        replace(QUICK, **wrong)
