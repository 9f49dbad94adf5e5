"""Token accuracy is counted by position, and models that are all alike fail the claim."""

from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch

from regard.lab import bottleneck
from regard.lab.bottleneck import MAX_ACCURACY, MIN_ACCURACY, QUICK, STYLES, run, token_accuracy
from regard.lab.result import no_progress

WITHOUT, WITH = STYLES


@pytest.mark.parametrize(
    ("says", "share"),
    [(lambda words: words[::-1], 1.0), (lambda words: words, 1 / 5), (lambda words: [*words[:0:-1], 99], 4 / 5)],
    ids=["backwards", "forwards, where the middle is right", "the last word wrong"],
)
def test_token_accuracy_is_the_share_of_correct_tokens(says, share: float, monkeypatch: pytest.MonkeyPatch) -> None:
    def writes(step, source, **kwargs):
        return [[SimpleNamespace(ids=says(words))] for words in source.tolist()]

    monkeypatch.setattr(bottleneck, "generate", writes)
    reader = SimpleNamespace(head=None, body=SimpleNamespace(decoder_caches=lambda source: source))
    assert token_accuracy(reader, 5, QUICK) == pytest.approx(share)


def test_the_claim_holds(quick) -> None:
    result = quick("bottleneck")
    assert result.holds
    assert [row["words in the sentence"] for row in result.table] == list(range(2, QUICK.longest + 1))
    assert result.table[-1][WITHOUT] < MAX_ACCURACY < MIN_ACCURACY <= result.table[-1][WITH]


def test_attention_runs_from_the_end_to_the_beginning(quick) -> None:
    """The figure is (target, source): each target word attends most to its source word."""
    picture = quick("bottleneck").figure.axes[1].images[0].get_array()
    looked = torch.tensor(picture)[: QUICK.longest].argmax(1).tolist()
    own = list(range(QUICK.longest))[::-1]
    assert sum(abs(a - b) <= 1 for a, b in zip(looked, own, strict=True)) >= QUICK.longest - 2


@pytest.mark.parametrize(
    ("defect", "shares"),
    [
        ("", {}),
        ("no bottleneck", {(False, 8): 0.9}),
        ("attention that does not help", {(True, 8): 0.7}),
        ("a translator that knows nothing", {(False, 2): 0.5}),
    ],
)
def test_the_claim_fails_with(
    defect: str, shares: dict[tuple[bool, int], float], monkeypatch: pytest.MonkeyPatch
) -> None:
    right = {(False, 2): 1.0, (True, 2): 1.0, (False, 8): 0.4, (True, 8): 1.0} | shares
    monkeypatch.setattr(
        bottleneck,
        "token_accuracy",
        lambda model, length, options: right.get((model.body.config.attention, length), 1.0),
    )
    assert run(replace(QUICK, steps=1), no_progress).holds is (not defect)


def test_the_claim_fails_without_training() -> None:
    assert not run(replace(QUICK, steps=1), no_progress).holds


@pytest.mark.parametrize("wrong", [{"longest": 3}, {"words": 7}, {"steps": 0}])
def test_invalid_options_are_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=f"{next(iter(wrong))} must be"):
        replace(QUICK, **wrong)
