"""The small language obeys its rules, what is measured of a head is what it does, and heads that do nothing fail."""

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from regard.lab import heads
from regard.lab.heads import QUICK, Knobs, run
from regard.lab.result import Finding, quietly
from regard.lab.toy_language import HIDDEN, KINDS, NONE, SENTENCE, SUBJECTS, WORDS, language
from regard.look import without
from regard.parts.heads import Model

KIND = {word: kind for kind, words in KINDS.items() for word in words}


@pytest.fixture(scope="module")
def learnt() -> tuple[Finding, Model]:
    """A quick run, and the model it made."""
    models = []
    with pytest.MonkeyPatch.context() as patch:
        train = heads.trained
        patch.setattr(heads, "trained", lambda *asked: models.append(train(*asked)) or models[0])
        return run(QUICK, quietly), models[0]


def test_every_sentence_obeys_the_rules_and_none_comes_twice() -> None:
    sentences = [[WORDS[i] for i in row if i != NONE] for row in language().tolist()]
    assert sentences[0] == SENTENCE
    assert len({tuple(sentence) for sentence in sentences}) == len(sentences) > 4000
    for sentence in sentences:
        kinds = [KIND[word] for word in sentence if KIND[word] != "adjective"]
        assert kinds == ["subject", "verb", "link", "article", "noun"]
        subject, verb, link, article, noun = (word for word in sentence if KIND[word] != "adjective")
        assert subject.endswith("s") != verb.endswith("s")
        assert (article == "an") == (sentence[sentence.index(article) + 1][0] in "aeiou")
        assert (link == "like") == (noun in SUBJECTS[subject].split())


def test_the_claim_holds_on_numbers_that_make_sense(learnt: tuple[Finding, Model]) -> None:
    found, _ = learnt
    assert found.holds
    assert len(found.table) == QUICK.heads
    for row in found.table:
        assert all(0 <= row[share] <= 1 for share in ("first", "previous", "same", "next"))
        assert row["previous"] + row["same"] + row["next"] <= 1.01


def test_the_lecture_s_sentence_is_never_learnt_from(monkeypatch: pytest.MonkeyPatch) -> None:
    given = []

    def untrained(sentences: Tensor, *others) -> Model:
        given.append(sentences)
        return heads_of_nothing(sentences[:0], *others)

    heads_of_nothing = heads.trained
    monkeypatch.setattr(heads, "trained", untrained)
    run(replace(QUICK, steps=0), quietly)
    assert len(given[0]) == len(language()) - 1 - QUICK.asked
    assert language()[0].tolist() not in given[0].tolist()


def test_the_hidden_word_is_hidden(learnt: tuple[Finding, Model]) -> None:
    _, model = learnt
    row, at = language()[:1], torch.tensor([4])
    other = row.scatter(1, at[:, None], WORDS.index("hill"))
    with torch.no_grad():
        chances = [(-heads.answers(model, ids, at)).exp().item() for ids in (row, other)]
    assert sum(chances) < 1  # two words in one place: the same guess, asked for each of them
    seen: list[Tensor] = []
    hook = model.body.tokens.register_forward_pre_hook(lambda _, ids: seen.append(ids[0]))
    heads.guess(model, row, at)
    hook.remove()
    assert seen[0][0, 4] == HIDDEN
    assert torch.equal(seen[0][0, :4], row[0, :4])


def test_shares_and_distances_are_those_of_the_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    """Head 1 looks at itself, head 2 at the first word, head 3 at the word before, if there is one."""

    def known(model: Model, ids: Tensor, at: Tensor, change=None) -> tuple[Tensor, Tensor]:
        looked = torch.stack((at, torch.zeros_like(at), (at - 1).clamp(min=0)), 1)  # (N,H)
        return torch.zeros(len(at)), torch.eye(ids.size(1))[looked]

    monkeypatch.setattr(heads, "guess", known)
    found = run(Knobs(heads=3, dim=6, steps=0, asked=20), quietly)
    same, first, before = found.table
    assert (same["distance"], same["entropy"], same["same"], same["previous"], same["next"]) == (0, 0, 1, 0, 0)
    assert first["first"] == 1
    assert first["distance"] > 2
    assert before["previous"] + before["same"] == pytest.approx(1, abs=0.01)
    assert before["next"] == before["entropy"] == 0
    assert not found.holds


def test_the_removed_head_is_the_one_that_is_told(learnt: tuple[Finding, Model]) -> None:
    """Its weights become 0, those of the others stay, and so the guess is another one."""
    _, model = learnt
    ids, at = language()[:1], torch.tensor([2])
    loss, whole = heads.guess(model, ids, at)
    for head in range(QUICK.heads):
        other, weights = heads.guess(model, ids, at, without(head))
        assert not weights[:, head].any()
        assert torch.equal(weights[:, torch.arange(QUICK.heads) != head], whole[:, torch.arange(QUICK.heads) != head])
        assert other != loss


def test_heads_that_learnt_nothing_do_not_pass() -> None:
    assert not run(replace(QUICK, steps=0), quietly).holds


def test_heads_that_all_look_alike_do_not_pass(learnt: tuple[Finding, Model], monkeypatch: pytest.MonkeyPatch) -> None:
    _, model = learnt

    def alike(*asked) -> tuple[Tensor, Tensor]:
        loss, weights = guess(*asked)
        return loss, weights.mean(1, keepdim=True).expand_as(weights)

    guess = heads.guess
    monkeypatch.setattr(heads, "trained", lambda *_: model)
    monkeypatch.setattr(heads, "guess", alike)
    assert not run(QUICK, quietly).holds


def test_a_removal_that_removes_nothing_does_not_pass(
    learnt: tuple[Finding, Model], monkeypatch: pytest.MonkeyPatch
) -> None:
    _, model = learnt
    monkeypatch.setattr(heads, "trained", lambda *_: model)
    monkeypatch.setattr(heads, "without", lambda *_: lambda weights: weights)
    assert not run(QUICK, quietly).holds


@pytest.mark.parametrize("wrong", [{"heads": 1}, {"asked": 19}, {"asked": 2001}])
def test_knobs_that_make_no_sense_are_refused(wrong: dict[str, int]) -> None:
    with pytest.raises(ValueError, match=f"{next(iter(wrong))} must be"):
        replace(QUICK, **wrong)
