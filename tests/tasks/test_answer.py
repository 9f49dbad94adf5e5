"""Answers are words of the document, wherever in it they stand, and what cannot be read is refused by file and line."""

import json
from dataclasses import replace
from itertools import product
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.testing import assert_close

from regard.data.bundled import quiz
from regard.data.pieces import READING, Pieces, learn
from regard.data.questions import Question
from regard.load import load
from regard.models import MODELS
from regard.parts.heads import Model
from regard.tasks.answer import NOWHERE, Answering, best_pairs, overlapping, windows
from regard.tasks.task import Choices
from regard.training.loop import Plan, Progress
from regard.training.loop import learn as learnt
from regard.training.settings import options, settle
from regard.training.train import carry_out, planned, prepare, start

CONTEXT = 192
SMALL = {"dim": 24, "layers": 2, "heads": 2, "hidden": 36, "dropout": 0.0, "context": CONTEXT}
READS = {"pieces": "bpe", "vocab": 420, "lowercase": False}  # so many that most words are one piece
QUIZ = [Question(q.question, q.document, ((q.answer, q.start),), "quiz", i) for i, q in enumerate(quiz.quiz(60), 1)]
TEXT = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=40)


@pytest.fixture(scope="module")
def task() -> Answering:
    return Answering.fit(QUIZ, "reads", READS, {}, longest_answer=30)


def asked(row: Question) -> str:
    return f"{row.question}\t{row.document}"


def model_of(task: Answering, family: str = "bert", **sizes) -> Model:
    torch.manual_seed(1)
    kind = MODELS[family]
    known = {
        name: value
        for name, value in {**SMALL, **sizes, **task.sizes()}.items()
        if name in kind.config.__dataclass_fields__
    }
    return task.head(kind.bodies["reads"](kind.config(**known))).eval()


def by_heart(task: Answering, model: Model, rows: list[Question], steps: int = 60) -> Model:
    plan = Plan(steps=steps, warmup=5, rate=0.02, batch_tokens=10_000, average=0.0)
    for _ in learnt(Progress.new(model, plan), task, task.prepare(rows, model.body.config.context), plan):
        pass
    return model.eval()


class Eye(nn.Module):
    """A body whose vector of a token says which one it is."""

    def __init__(self, vocab: int, context: int):
        super().__init__()
        self.config = SimpleNamespace(dim=vocab, dropout=0.0, context=context)

    def forward(self, ids: Tensor, mask: Tensor) -> Tensor:
        return nn.functional.one_hot(ids, self.config.dim).float()


def spotting(task: Answering, word: str, context: int) -> Model:
    """A model that answers with a word wherever it stands."""
    model = task.head(Eye(len(task.tokenizer), context))
    nn.init.zeros_(model.head.out.weight)
    model.head.out.weight.data[:, task.tokenizer.encode([word])[0][1]] = 9.0
    return model.eval()


# From rows to batches.


def test_a_batch_asks_for_the_places_of_the_answer(task):
    examples = task.prepare(QUIZ, CONTEXT)
    batch = task.batch(examples, np.arange(len(QUIZ)))
    B, T = len(QUIZ), int(examples.lengths.max())
    assert (batch.ids.shape, batch.mask.shape, batch.places.shape) == ((B, T), (B, 1, 1, T), (B, T))
    assert batch.wanted.shape == (B, 2)
    assert batch.places.gather(1, batch.wanted).all()
    assert batch.places[:, 0].all()
    assert not (batch.places & ~batch.mask[:, 0, 0]).any(), "no answer is padding"
    for i, row in enumerate(QUIZ):
        first, last = batch.wanted[i].tolist()
        assert row.document[examples.starts[i][first] : examples.ends[i][last]] == row.answers[0][0]
        question = task.tokenizer.encode([row.question])[0]
        assert not batch.places[i, 1 : len(question)].any(), "no answer is in the question"


@given(document=TEXT.filter(str.strip), data=st.data())
@settings(max_examples=100)
def test_any_words_of_any_document_are_found_again(task, document, data):
    a = data.draw(st.integers(0, len(document) - 1))
    b = data.draw(st.integers(a + 1, len(document)))
    if not document[a:b].strip():
        return
    row = Question("Who?", document, ((document[a:b], a),), "a.jsonl", 7)
    [encoding] = task.tokenizer.encodings([("Who?", document)])
    [window] = windows(0, row, encoding, 10_000)
    first, last = window.wanted
    start, end = window.spots[first][0], window.spots[last][1]
    assert document[a:b].strip() in document[start:end]
    assert document[start:end] == document[start:end].strip()


# Accents as letters of their own, letters that grow when made small, letters of several bytes, spaces of all kinds.
ODD = st.lists(
    st.sampled_from(["e\u0301", "\u0301", "\u1112\u1161", "İ", "ß", "👨‍👩‍👧", "\u200b", "\x1c", "\u3000", "a", " "])
)
TOKENIZERS = {
    (kind, small): learn([row.document for row in QUIZ], Pieces(kind, None, small), READING)
    for kind in ("bpe", "unigram", "characters")
    for small in (False, True)
}


@pytest.mark.parametrize("how", TOKENIZERS)
@given(letters=ODD, data=st.data())
@settings(max_examples=60)
def test_no_letter_of_an_answer_is_lost_however_it_is_spelt(how, letters, data):
    document = f"a{''.join(letters)}"
    a = data.draw(st.integers(0, len(document) - 1))
    b = data.draw(st.integers(a + 1, len(document)))
    if not document[a:b].strip():
        return
    row = Question("Who?", document, ((document[a:b], a),), "a.jsonl", 7)
    [window] = windows(0, row, TOKENIZERS[how].encodings([("Who?", document)])[0], 10_000)
    first, last = window.wanted
    assert document[a:b].strip() in document[window.spots[first, 0] : window.spots[last, 1]]


def test_a_tokenizer_that_would_cut_long_texts_does_not_cut_documents():
    task = Answering.fit(QUIZ, "reads", READS, {})
    whole = task.prepare(QUIZ, CONTEXT)
    task.tokenizer.most = 40  # as the folder of a model may have it
    again = task.prepare(QUIZ, CONTEXT)
    assert (again.ids.ids.tolist(), again.wanted.tolist()) == (whole.ids.ids.tolist(), whole.wanted.tolist())


def test_an_answer_inside_of_a_token_is_the_whole_token(task):
    document = "Anna sold three lamps."
    row = Question("What?", document, (("lamp", document.index("lamp")),), "a.jsonl", 1)
    [window] = windows(0, row, task.tokenizer.encodings([("What?", document)])[0], CONTEXT)
    (start, _), (_, end) = (window.spots[place] for place in window.wanted)
    assert document[start:end] == "lamps"


@given(begin=st.integers(1, 9), tokens=st.integers(1, 60), room=st.integers(2, 25))
def test_windows_hold_every_token_and_every_short_span_in_one_piece(begin, tokens, room):
    end = begin + tokens
    parts = list(overlapping(begin, end, room))
    assert all(begin <= a < b <= end and b - a <= room for a, b in parts)
    assert (parts[0][0], parts[-1][1]) == (begin, end)
    assert len(parts) == 1 or all(b < end for _, b in parts[:-1]), "no window more than needed"
    for size in range(1, room // 2 + 1):
        for first in range(begin, end - size + 1):
            assert any(a <= first and first + size <= b for a, b in parts)


def test_a_window_without_the_answer_wants_place_0(task):
    row = QUIZ[0]
    examples = task.prepare([row], 40)
    assert len(examples.ids) > 2
    assert examples.numbers == [0] * len(examples.ids)
    text, start = row.answers[0]
    for i, (first, last) in enumerate(examples.wanted):
        if (first, last) != (0, 0):
            assert (examples.starts[i][first], examples.ends[i][last]) == (start, start + len(text))
        else:
            places = {*zip(examples.starts[i].tolist(), examples.ends[i].tolist(), strict=True)} - {NOWHERE}
            whole = min(a for a, _ in places) <= start and start + len(text) <= max(b for _, b in places)
            assert not whole


# The loss.


def test_the_loss_is_that_of_start_and_end_over_the_places_of_the_document(task):
    model = model_of(task)
    batch = task.batch(task.prepare(QUIZ[:5], CONTEXT), np.arange(5))
    logits, total = model(batch.ids, batch.mask), 0.0
    for i, side in product(range(5), range(2)):
        allowed = logits[i, batch.places[i], side]
        total = total + allowed.logsumexp(0) - logits[i, batch.wanted[i, side], side]
    loss = task.loss(model, batch)
    assert loss.count == 5
    assert_close(loss.total, total)


@pytest.mark.parametrize("family", [name for name, family in MODELS.items() if "reads" in family.bodies])
def test_any_model_that_reads_can_learn_it_and_padding_changes_nothing(task, family):
    model = model_of(task, family, kv_heads=2)
    examples = task.prepare(QUIZ[:6], CONTEXT)
    together = task.loss(model, task.batch(examples, np.arange(6))).total
    alone = sum(task.loss(model, task.batch(examples, np.array([i]))).total for i in range(6))
    assert_close(together, alone, rtol=1e-4, atol=1e-4)
    together.backward()
    assert model.head.out.weight.grad.abs().sum() > 0


# The answers.


@given(st.integers(0, 999), st.integers(2, 7), st.integers(1, 6), st.integers(1, 5))
def test_the_best_spans_are_those_of_trying_all(seed, T, longest, count):
    torch.manual_seed(seed)
    logprobs = torch.randn(2, T, 2).log_softmax(1)
    nothing, values, firsts, lasts = best_pairs(logprobs, longest, count)
    for i in range(2):
        spans = [(a, b) for a in range(1, T) for b in range(a, min(T, a + longest))]
        wanted = sorted(((logprobs[i, a, 0] + logprobs[i, b, 1]).item(), a, b) for a, b in spans)[::-1][:count]
        found = [*zip(values[i].tolist(), firsts[i].tolist(), lasts[i].tolist(), strict=True)][: len(wanted)]
        assert found == wanted
        assert_close(nothing[i], logprobs[i, 0].sum())


def test_the_best_span_of_all_windows_wins(task):
    model, row = model_of(task, context=40), QUIZ[0]
    examples, wanted = task.prepare([row], 40), {}
    for i in range(len(examples.ids)):
        start, end = task.log_probs(model, task.batch(examples, np.array([i])))[0].T.tolist()
        words = [t for t, at in enumerate(examples.starts[i].tolist()) if at >= 0]
        for first, last in ((a, b) for a in words for b in words if a <= b < a + task.longest_answer):
            span = (examples.starts[i][first], examples.ends[i][last])
            wanted[span] = max(wanted.get(span, -99.0), start[first] + end[last])
    best = sorted(((logp, *span) for span, logp in wanted.items()), reverse=True)[:40]
    [found], _ = task.spans(model, [row], 40)
    assert [span[1:] for span in found] == [span[1:] for span in best]
    assert [span.logp for span in found] == pytest.approx([logp for logp, *_ in best])


@pytest.mark.parametrize("always", [True, False])
def test_answers_are_words_of_the_document(task, always):
    task = replace(task, always=always)
    lines = [asked(row) for row in QUIZ[:8]]
    for row, best in zip(QUIZ, task.predict(model_of(task, context=48), lines, Choices(num_return=5)), strict=False):
        assert len(best) == 5
        assert len({(a.more["start"], a.text) for a in best}) == 5
        assert [a.logp for a in best] == sorted((a.logp for a in best), reverse=True)
        for answer in best:
            assert answer.score == pytest.approx(np.exp(answer.logp))
            if answer.more["start"] is None:
                assert (answer.text, always) == ("", False)
            else:
                assert row.document.startswith(answer.text, answer.more["start"])
                assert answer.text == answer.text.strip() != ""


@given(words=st.integers(1, 80), place=st.floats(0, 1, exclude_max=True), context=st.integers(12, 60))
@settings(max_examples=40)
def test_an_answer_is_found_wherever_it_stands_in_a_long_document(task, words, place, context):
    text = ["the"] * words
    text[int(place * words)] = "Anna"
    document = " ".join(text)
    [[best]] = task.predict(spotting(task, "Anna", context), [f"Who?\t{document}"], Choices())
    assert (best.text, best.more["start"]) == ("Anna", document.index("Anna"))


def test_a_batch_is_learnt_by_heart(task):
    rows = QUIZ[:8]
    scores = task.score(by_heart(task, model_of(task), rows), rows)
    assert (scores["exact"], scores["f1"]) == (100.0, 100.0)
    assert scores["loss"] < 0.5
    assert scores["answers"] == [row.answers[0][0] for row in rows]
    worse = task.score(model_of(task), rows)
    assert worse["loss"] > 4
    assert task.rank(scores) > task.rank(worse)


def test_nothing_is_an_answer_if_training_knew_it(task):
    some = list({row.document: row for row in QUIZ}.values())[:4]
    rows = [*(row._replace(answers=()) for row in some), *(row._replace(question="Who is it?") for row in some)]
    task = replace(task, always=False)
    model = by_heart(task, model_of(task), rows)
    scores = task.score(model, rows)
    assert scores["exact"] == 100.0
    assert scores["answers"][:4] == [""] * 4
    assert all(replace(task, always=True).score(model, rows)["answers"])
    assert not Answering.fit(rows + QUIZ, "reads", READS, {}).always
    assert Answering.fit(QUIZ, "reads", READS, {}).always


def test_nothing_is_said_only_if_every_window_says_so(task):
    """A window without the answer is surer of that than the other is of the answer."""
    model = spotting(task, "Anna", 14)
    model.head.out.weight.data[:, task.tokenizer.begin] = 8.5
    document = " ".join(["the"] * 40 + ["Anna"])
    task = replace(task, always=False)
    [best, none] = task.predict(model, [f"Who?\t{document}", f"Who?\t{document[:-4]}"], Choices(num_return=2))
    assert [answer.text for answer in best] == ["Anna", ""]
    assert (none[0].text, none[0].more) == ("", {"start": None})
    assert none[0].logp > best[0].logp


def test_a_question_is_asked_with_a_tab_or_as_json(task):
    model, row = model_of(task), QUIZ[3]
    told = json.dumps({"question": row.question, "context": row.document, "id": 3})
    one, other = task.predict(model, [asked(row), told], Choices(num_return=3))
    assert [a.text for a in one] == [a.text for a in other]
    assert_close([a.logp for a in one], [a.logp for a in other])


def test_a_saved_model_answers_as_before(tmp_path):
    lines = [
        {
            "question": r.question,
            "context": r.document,
            "answers": [{"text": t, "answer_start": s} for t, s in r.answers],
        }
        for r in QUIZ
    ]
    file = tmp_path / "quiz.jsonl"
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    given = {"steps": 6, "checks": 1, "held_out": 0.2, "longest_answer": 7, **SMALL}
    job = planned(prepare(start("answer", data=str(file), out=str(tmp_path / "run"), **given)))
    for step in carry_out(job):
        last = step
    assert {"loss", "exact", "f1"} <= last.scores.keys()
    loaded = load(tmp_path / "run", device="cpu")
    assert (loaded.task.longest_answer, loaded.task.always) == (7, True)
    lines = [asked(row) for row in QUIZ[:9]]
    before = [*job.task.predict(job.progress.model.eval(), lines, Choices(num_return=3))]
    assert [*loaded.generate(lines, num_return=3)] == before
    assert loaded(lines[0]) == before[0][0].text
    assert loaded.task.score(loaded.model, loaded.rows([str(file)]))["loss"] > 0


# What does not fit.


def test_what_cannot_be_read_is_refused_by_file_and_line(task):
    row = Question("Who?", "Anna and Ben", (("Anna and Ben", 0),), "a.jsonl", 7)
    with pytest.raises(ValueError, match=r"a\.jsonl:7: the question has 30 tokens .*--context than 30"):
        task.prepare([row._replace(question="the " * 30)], 30)
    with pytest.raises(ValueError, match=r"a\.jsonl:7: the answer has 3 tokens, .* windows of 2: .*--context than 7"):
        task.prepare([row], 7)
    with pytest.raises(ValueError, match=r"a\.jsonl:7: the document has no letters"):
        task.prepare([row._replace(document=" \n")], CONTEXT)


@pytest.mark.parametrize(
    "text", ["Who was it?", "\tAnna", "Who?\t ", '{"question": "Who?"}', '{"question": 1, "context": "a"}', "{", "[]"]
)
def test_what_is_no_question_is_refused(task, text):
    lines = [*["Who?\tAnna"] * 70, text]
    with pytest.raises(ValueError, match="input:71: give a question and a document"):
        list(task.predict(spotting(task, "Anna", 9), lines, Choices()))


def test_misfits_are_refused_before_anything_is_read():
    with pytest.raises(ValueError, match="answer needs a model that makes a vector of every token"):
        settle("answer", "pooled")
    with pytest.raises(ValueError, match="longest-answer must be at least 1, not 0"):
        Answering(longest_answer=0, tokenizer=learn(["a b"], Pieces(), READING))
    assert [name for name, option in options("answer", "bert", "tiny").items() if not option.help] == []
