"""The toy language obeys its grammar, head statistics are exact, and useless heads fail the claim."""

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from regard.lab import heads
from regard.lab.heads import QUICK, HeadsOptions, run
from regard.lab.result import LabResult, no_progress
from regard.lab.synthetic_data import CATEGORIES, MASK, PAD, SENTENCE, SUBJECTS, WORDS, all_sentences
from regard.look import ablate_heads
from regard.parts.heads import Model

CATEGORY = {word: category for category, words in CATEGORIES.items() for word in words}


@pytest.fixture(scope="module")
def trained() -> tuple[LabResult, Model]:
    """A quick run and its model."""
    models = []
    with pytest.MonkeyPatch.context() as patch:
        train = heads.train
        patch.setattr(heads, "train", lambda *args: models.append(train(*args)) or models[0])
        return run(QUICK, no_progress), models[0]


def test_sentences_are_grammatical_and_unique() -> None:
    sentences = [[WORDS[i] for i in row if i != PAD] for row in all_sentences().tolist()]
    assert sentences[0] == SENTENCE
    assert len({tuple(sentence) for sentence in sentences}) == len(sentences) > 4000
    for sentence in sentences:
        categories = [CATEGORY[word] for word in sentence if CATEGORY[word] != "adjective"]
        assert categories == ["subject", "verb", "link", "article", "noun"]
        subject, verb, link, article, noun = (word for word in sentence if CATEGORY[word] != "adjective")
        assert subject.endswith("s") != verb.endswith("s")
        assert (article == "an") == (sentence[sentence.index(article) + 1][0] in "aeiou")
        assert (link == "like") == (noun in SUBJECTS[subject].split())


def test_the_claim_holds(trained: tuple[LabResult, Model]) -> None:
    result, _ = trained
    assert result.holds
    assert len(result.table) == QUICK.heads
    for row in result.table:
        assert all(0 <= row[share] <= 1 for share in ("first", "previous", "same", "next"))
        assert row["previous"] + row["same"] + row["next"] <= 1.01


def test_the_lectures_sentence_is_not_in_the_training_set(monkeypatch: pytest.MonkeyPatch) -> None:
    training_sets = []

    def record_training(sentences: Tensor, *others) -> Model:
        training_sets.append(sentences)
        return train(sentences[:0], *others)

    train = heads.train
    monkeypatch.setattr(heads, "train", record_training)
    run(replace(QUICK, steps=0), no_progress)
    assert len(training_sets[0]) == len(all_sentences()) - 1 - QUICK.sentences
    assert all_sentences()[0].tolist() not in training_sets[0].tolist()


def test_the_predicted_word_is_masked(trained: tuple[LabResult, Model]) -> None:
    _, model = trained
    row, at = all_sentences()[:1], torch.tensor([4])
    other = row.scatter(1, at[:, None], WORDS.index("hill"))
    with torch.no_grad():
        probabilities = [(-heads.masked_losses(model, ids, at)).exp().item() for ids in (row, other)]
    assert sum(probabilities) < 1  # probabilities of two words from the same prediction
    inputs: list[Tensor] = []
    hook = model.body.tokens.register_forward_pre_hook(lambda _, ids: inputs.append(ids[0]))
    heads.predict(model, row, at)
    hook.remove()
    assert inputs[0][0, 4] == MASK
    assert torch.equal(inputs[0][0, :4], row[0, :4])


def test_statistics_are_those_of_the_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    """Head 1 attends to the query, head 2 to the first word, head 3 to the previous word, if there is one."""

    def fixed_attention(model: Model, ids: Tensor, at: Tensor, change=None) -> tuple[Tensor, Tensor]:
        positions = torch.stack((at, torch.zeros_like(at), (at - 1).clamp(min=0)), 1)  # (N,H)
        return torch.zeros(len(at)), torch.eye(ids.size(1))[positions]

    monkeypatch.setattr(heads, "predict", fixed_attention)
    result = run(HeadsOptions(heads=3, dim=6, steps=0, sentences=20), no_progress)
    same, first, before = result.table
    assert (same["distance"], same["entropy"], same["same"], same["previous"], same["next"]) == (0, 0, 1, 0, 0)
    assert first["first"] == 1
    assert first["distance"] > 2
    assert before["previous"] + before["same"] == pytest.approx(1, abs=0.01)
    assert before["next"] == before["entropy"] == 0
    assert not result.holds


def test_ablation_removes_one_head(trained: tuple[LabResult, Model]) -> None:
    """Its weights become 0, those of the others stay, and the prediction changes."""
    _, model = trained
    ids, at = all_sentences()[:1], torch.tensor([2])
    loss, all_weights = heads.predict(model, ids, at)
    for head in range(QUICK.heads):
        other, weights = heads.predict(model, ids, at, ablate_heads(head))
        assert not weights[:, head].any()
        assert torch.equal(
            weights[:, torch.arange(QUICK.heads) != head], all_weights[:, torch.arange(QUICK.heads) != head]
        )
        assert other != loss


def test_the_claim_fails_without_training() -> None:
    assert not run(replace(QUICK, steps=0), no_progress).holds


def test_the_claim_fails_if_all_heads_attend_alike(
    trained: tuple[LabResult, Model], monkeypatch: pytest.MonkeyPatch
) -> None:
    _, model = trained

    def mean_attention(*args) -> tuple[Tensor, Tensor]:
        loss, weights = predict(*args)
        return loss, weights.mean(1, keepdim=True).expand_as(weights)

    predict = heads.predict
    monkeypatch.setattr(heads, "train", lambda *_: model)
    monkeypatch.setattr(heads, "predict", mean_attention)
    assert not run(QUICK, no_progress).holds


def test_the_claim_fails_if_ablation_has_no_effect(
    trained: tuple[LabResult, Model], monkeypatch: pytest.MonkeyPatch
) -> None:
    _, model = trained
    monkeypatch.setattr(heads, "train", lambda *_: model)
    monkeypatch.setattr(heads, "ablate_heads", lambda *_: lambda weights: weights)
    assert not run(QUICK, no_progress).holds


@pytest.mark.parametrize("wrong", [{"heads": 1}, {"sentences": 19}, {"sentences": 2001}])
def test_invalid_options_are_refused(wrong: dict[str, int]) -> None:
    with pytest.raises(ValueError, match=f"{next(iter(wrong))} must be"):
        replace(QUICK, **wrong)
