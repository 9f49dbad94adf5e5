"""Truncation stops gradients at the segment, and a model that recalls too little or too much fails the claim."""

from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from regard.lab import recall
from regard.lab.recall import (
    MAX_ACCURACY_RNN,
    MIN_ACCURACY,
    NOT_CLIPPED,
    QUICK,
    STYLES,
    TRUNCATED,
    max_distance,
    relative_gradients,
    run,
    train_and_test,
)
from regard.lab.result import no_progress
from regard.lab.synthetic_data import recall_batch


@settings(max_examples=50)
@given(accuracy=st.lists(st.floats(0, 1), min_size=1, max_size=6))
def test_max_distance_ends_before_the_first_failure(accuracy: list[float]) -> None:
    distances = [2**n for n in range(len(accuracy))]
    reach = max_distance(distances, accuracy)
    assert all(share >= MIN_ACCURACY for d, share in zip(distances, accuracy, strict=True) if d <= reach)
    assert accuracy[len([d for d in distances if d <= reach]) :][:1] < [MIN_ACCURACY]


@pytest.mark.parametrize("kind", ["RNN", "GRU", "LSTM", "Transformer"])
def test_gradients_reach_every_word(kind: str) -> None:
    sizes = relative_gradients(kind, 12, QUICK)
    assert len(sizes) == 13
    assert sizes[0] == 1
    assert min(sizes) > 0


@pytest.mark.parametrize("cut", [1, 2, 5, 8, 13])
def test_truncation_stops_gradients_at_the_segment(cut: int) -> None:
    """14 words in segments of `cut`: only those in the segment of the question, the last word, have a gradient."""
    sizes = relative_gradients(TRUNCATED, 12, replace(QUICK, bptt_length=cut))
    reached = 13 % cut
    assert [size > 0 for size in sizes] == [True] * reached + [False] * (13 - reached)


def test_training_raises_the_accuracy() -> None:
    assert train_and_test("Transformer", 3, replace(QUICK, steps=0)) < MAX_ACCURACY_RNN
    assert train_and_test("Transformer", 3, QUICK) >= MIN_ACCURACY


def test_every_model_sees_the_same_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    batches = []
    monkeypatch.setattr(recall, "recall_batch", lambda *args: batches.append(recall_batch(*args)) or batches[-1])
    for kind in STYLES:
        train_and_test(kind, 2, replace(QUICK, steps=1))
    inputs = [words for words, _ in batches[::2]]
    assert all(torch.equal(words, inputs[0]) for words in inputs)


def test_the_claim_holds(quick) -> None:
    result = quick("recall")
    assert result.holds
    assert [row["model"] for row in result.table] == list(STYLES)
    assert [key for key in result.table[0] if key != "model"] == [f"accuracy at {d}" for d in QUICK.distances]


REACH = {"RNN": 3, NOT_CLIPPED: 3, "GRU": 10, "LSTM": 10, TRUNCATED: 3, "Transformer": 10}


@pytest.mark.parametrize(
    ("defect", "reach"),
    [
        ("", {}),
        ("an RNN that does not forget", {"RNN": 10}),
        ("clipping that was all it lacked", {NOT_CLIPPED: 10}),
        ("an LSTM that forgets like an RNN", {"LSTM": 3}),
        ("truncation that does not matter", {TRUNCATED: 10}),
        ("a Transformer that forgets", {"Transformer": 3}),
    ],
)
def test_the_claim_fails_with(defect: str, reach: dict[str, int], monkeypatch: pytest.MonkeyPatch) -> None:
    reaches = REACH | reach
    monkeypatch.setattr(
        recall, "train_and_test", lambda kind, distance, options: 1.0 if distance <= reaches[kind] else 0.25
    )
    assert run(QUICK, no_progress).holds is (not defect)


def test_the_claim_fails_without_truncation(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        recall, "train_and_test", lambda kind, distance, options: 1.0 if distance <= REACH[kind] else 0.25
    )
    assert not run(replace(QUICK, bptt_length=99), no_progress).holds


@pytest.mark.parametrize(
    "wrong", [{"distances": ()}, {"distances": (0, 4)}, {"names": 2}, {"dim": 10}, {"bptt_length": 0}]
)
def test_invalid_options_are_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=f"{next(iter(wrong)).replace('_', '-')} must be"):
        replace(QUICK, **wrong)
