"""Answer: predictions are spans of the document, wherever they stand; unusable rows are refused by file and line."""

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

from regard.data.tokenizer_train import BERT_LAYOUT, TokenizerOptions, train_tokenizer
from regard.load import load
from regard.modalities.protocols import FitOptions, Target
from regard.modalities.synthetic import quiz
from regard.modalities.text.modality import TextModality
from regard.modalities.text.preprocessor import TextPreprocessor
from regard.modalities.text.questions import Question, QuestionRow, question_row
from regard.models import MODELS
from regard.options import OptionGroups
from regard.parts.heads import Body, Model
from regard.tasks.answer import NO_OFFSET, QuestionAnswering, document_windows, overlapping_ranges, top_spans
from regard.tasks.compatibility import find_fit, fitting_models
from regard.tasks.task import DecodeOptions
from regard.training.file_job import FileJob
from regard.training.loop import Progress, TrainOptions
from regard.training.loop import train_steps as fitted
from regard.training.settings import options, resolve
from regard.training.start import make_settings

CONTEXT = 192
SMALL = {"dim": 24, "layers": 2, "heads": 2, "hidden": 36, "dropout": 0.0, "context": CONTEXT}
READS = OptionGroups(TokenizerOptions("bpe", 420))  # most words are one token
QUIZ = [question_row(q.question, q.document, ((q.answer, q.start),), "quiz", i) for i, q in enumerate(quiz.quiz(60), 1)]
TEXT = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=40)


def fit_task(rows: list[QuestionRow], max_answer_length: int = 30) -> QuestionAnswering:
    preprocessor = TextModality().fit(rows, FitOptions(Target.SPAN, READS))
    return QuestionAnswering.fit(rows, preprocessor, None, max_answer_length=max_answer_length)


@pytest.fixture(scope="module")
def task() -> QuestionAnswering:
    return fit_task(QUIZ)


def input_line(row: QuestionRow) -> str:
    return f"{row.input.question}\t{row.input.document}"


def make_model(task: QuestionAnswering, family: str = "bert", **sizes) -> Model:
    torch.manual_seed(1)
    kind = MODELS[family]
    config_values = {
        name: value
        for name, value in {**SMALL, **sizes, **task.sizes()}.items()
        if name in kind.config.__dataclass_fields__
    }
    return task.head(find_fit("answer", QuestionAnswering, family).body(kind.config(**config_values))).eval()


def overfit(task: QuestionAnswering, model: Model, rows: list[QuestionRow], steps: int = 60) -> Model:
    train_options = TrainOptions(steps=steps, warmup_steps=5, lr=0.02, batch_tokens=10_000, ema=0.0)
    for _ in fitted(
        Progress.new(model, train_options), task, task.encode(rows, model.body.config.context), train_options
    ):
        pass
    return model.eval()


class OneHotBody(Body):
    """A body whose output is the one-hot vector of the token."""

    def __init__(self, vocab: int, context: int):
        super().__init__(SimpleNamespace(dim=vocab, dropout=0.0, context=context))

    def forward(self, ids: Tensor, mask: Tensor) -> Tensor:
        return nn.functional.one_hot(ids, self.config.dim).float()


def make_spotter(task: QuestionAnswering, word: str, context: int) -> Model:
    """A model that predicts a given word wherever it stands."""
    model = task.head(OneHotBody(len(task.tokenizer), context))
    nn.init.zeros_(model.head.out.weight)
    model.head.out.weight.data[:, task.tokenizer.encode([word])[0][1]] = 9.0
    return model.eval()


# From rows to batches.


def test_targets_are_the_tokens_of_the_answer(task):
    examples = task.encode(QUIZ, CONTEXT)
    batch = task.collate(examples, np.arange(len(QUIZ)))
    B, T = len(QUIZ), int(examples.lengths.max())
    assert (batch.inputs.x.shape, batch.inputs.mask.shape, batch.positions.shape) == ((B, T), (B, 1, 1, T), (B, T))
    assert batch.targets.shape == (B, 2)
    assert batch.positions.gather(1, batch.targets).all()
    assert batch.positions[:, 0].all()
    assert not (batch.positions & ~batch.inputs.mask[:, 0, 0]).any(), "an answer position is padding"
    for i, row in enumerate(QUIZ):
        first, last = batch.targets[i].tolist()
        assert row.input.document[examples.starts[i][first] : examples.ends[i][last]] == row.target[0][0]
        question = task.tokenizer.encode([row.input.question])[0]
        assert not batch.positions[i, 1 : len(question)].any(), "an answer position is in the question"


@given(document=TEXT.filter(str.strip), data=st.data())
@settings(max_examples=100)
def test_the_target_tokens_cover_any_answer(task, document, data):
    a = data.draw(st.integers(0, len(document) - 1))
    b = data.draw(st.integers(a + 1, len(document)))
    if not document[a:b].strip():
        return
    row = question_row("Who?", document, ((document[a:b], a),), "a.jsonl", 7)
    [encoding] = task.tokenizer.encodings([("Who?", document)])
    [window] = document_windows(0, row, encoding, 10_000)
    first, last = window.targets
    start, end = window.offsets[first][0], window.offsets[last][1]
    assert document[a:b].strip() in document[start:end]
    assert document[start:end] == document[start:end].strip()


# Combining accents, characters that grow when lowercased, characters of several bytes, spaces of all kinds.
ODD = st.lists(
    st.sampled_from(["e\u0301", "\u0301", "\u1112\u1161", "İ", "ß", "👨‍👩‍👧", "\u200b", "\x1c", "\u3000", "a", " "])
)
TOKENIZERS = {
    (kind, small): train_tokenizer(
        [row.input.document for row in QUIZ], TokenizerOptions(kind, None, small), BERT_LAYOUT
    )
    for kind in ("bpe", "unigram", "characters")
    for small in (False, True)
}


@pytest.mark.parametrize("options", TOKENIZERS)
@given(letters=ODD, data=st.data())
@settings(max_examples=60)
def test_the_target_tokens_cover_unusual_characters(options, letters, data):
    document = f"a{''.join(letters)}"
    a = data.draw(st.integers(0, len(document) - 1))
    b = data.draw(st.integers(a + 1, len(document)))
    if not document[a:b].strip():
        return
    row = question_row("Who?", document, ((document[a:b], a),), "a.jsonl", 7)
    [window] = document_windows(0, row, TOKENIZERS[options].encodings([("Who?", document)])[0], 10_000)
    first, last = window.targets
    assert document[a:b].strip() in document[window.offsets[first, 0] : window.offsets[last, 1]]


def test_documents_are_not_truncated_by_the_tokenizer():
    task = fit_task(QUIZ)
    whole = task.encode(QUIZ, CONTEXT)
    task.tokenizer.model_max_length = 40  # as a model folder may set it
    shorter = task.encode(QUIZ, CONTEXT)
    assert (shorter.ids.ids.tolist(), shorter.targets.tolist()) == (
        whole.ids.ids.tolist(),
        whole.targets.tolist(),
    )


def test_an_answer_inside_a_token_becomes_the_whole_token(task):
    document = "Anna sold three lamps."
    row = question_row("What?", document, (("lamp", document.index("lamp")),), "a.jsonl", 1)
    [window] = document_windows(0, row, task.tokenizer.encodings([("What?", document)])[0], CONTEXT)
    (start, _), (_, end) = (window.offsets[token] for token in window.targets)
    assert document[start:end] == "lamps"


@given(begin=st.integers(1, 9), tokens=st.integers(1, 60), room=st.integers(2, 25))
def test_windows_hold_every_token_and_every_short_span(begin, tokens, room):
    end = begin + tokens
    parts = list(overlapping_ranges(begin, end, room))
    assert all(begin <= a < b <= end and b - a <= room for a, b in parts)
    assert (parts[0][0], parts[-1][1]) == (begin, end)
    assert len(parts) == 1 or all(b < end for _, b in parts[:-1]), "no window more than needed"
    for size in range(1, room // 2 + 1):
        for first in range(begin, end - size + 1):
            assert any(a <= first and first + size <= b for a, b in parts)


def test_the_target_of_a_window_without_the_answer_is_0(task):
    row = QUIZ[0]
    examples = task.encode([row], 40)
    assert len(examples.ids) > 2
    assert examples.numbers == [0] * len(examples.ids)
    text, start = row.target[0]
    for i, (first, last) in enumerate(examples.targets):
        if (first, last) != (0, 0):
            assert (examples.starts[i][first], examples.ends[i][last]) == (start, start + len(text))
        else:
            places = {*zip(examples.starts[i].tolist(), examples.ends[i].tolist(), strict=True)} - {NO_OFFSET}
            whole = min(a for a, _ in places) <= start and start + len(text) <= max(b for _, b in places)
            assert not whole


# The loss.


def test_loss_equals_its_formula(task):
    model = make_model(task)
    batch = task.collate(task.encode(QUIZ[:5], CONTEXT), np.arange(5))
    logits, total = model(*batch.inputs.arguments), 0.0
    for i, side in product(range(5), range(2)):
        allowed = logits[i, batch.positions[i], side]
        total = total + allowed.logsumexp(0) - logits[i, batch.targets[i, side], side]
    loss = task.loss(model, batch)
    assert loss.count == 5
    assert_close(loss.total, total)


@pytest.mark.parametrize("family", fitting_models(QuestionAnswering, TextModality()))
def test_padding_changes_no_loss_of_any_encoder(task, family):
    model = make_model(task, family, kv_heads=2)
    examples = task.encode(QUIZ[:6], CONTEXT)
    together = task.loss(model, task.collate(examples, np.arange(6))).total
    alone = sum(task.loss(model, task.collate(examples, np.array([i]))).total for i in range(6))
    assert_close(together, alone, rtol=1e-4, atol=1e-4)
    together.backward()
    assert model.head.out.weight.grad.abs().sum() > 0


# Predictions.


@given(st.integers(0, 999), st.integers(2, 7), st.integers(1, 6), st.integers(1, 5))
def test_top_spans_equal_brute_force(seed, T, longest, count):
    torch.manual_seed(seed)
    logprobs = torch.randn(2, T, 2).log_softmax(1)
    no_answer, values, firsts, lasts = top_spans(logprobs, longest, count)
    for i in range(2):
        spans = [(a, b) for a in range(1, T) for b in range(a, min(T, a + longest))]
        expected = sorted(((logprobs[i, a, 0] + logprobs[i, b, 1]).item(), a, b) for a, b in spans)[::-1][:count]
        top = [*zip(values[i].tolist(), firsts[i].tolist(), lasts[i].tolist(), strict=True)]
        assert top[: len(expected)] == expected
        assert_close(no_answer[i], logprobs[i, 0].sum())


def test_the_best_span_of_all_windows_is_predicted(task):
    model, row = make_model(task, context=40), QUIZ[0]
    examples, expected = task.encode([row], 40), {}
    for i in range(len(examples.ids)):
        start, end = task.log_probs(model, task.collate(examples, np.array([i])))[0].T.tolist()
        words = [t for t, at in enumerate(examples.starts[i].tolist()) if at >= 0]
        for first, last in ((a, b) for a in words for b in words if a <= b < a + task.max_answer_length):
            span = (examples.starts[i][first], examples.ends[i][last])
            expected[span] = max(expected.get(span, -99.0), start[first] + end[last])
    best = sorted(((logprob, *span) for span, logprob in expected.items()), reverse=True)[:40]
    [spans], _ = task.best_spans(model, [row], 40)
    assert [span[1:] for span in spans] == [span[1:] for span in best]
    assert [span.logprob for span in spans] == pytest.approx([logprob for logprob, *_ in best])


@pytest.mark.parametrize("always", [True, False])
def test_predictions_are_spans_of_the_document(task, always):
    task = replace(task, always_answerable=always)
    lines = [input_line(row) for row in QUIZ[:8]]
    for row, best in zip(
        QUIZ, task.predict(make_model(task, context=48), lines, DecodeOptions(num_return=5)), strict=False
    ):
        assert len(best) == 5
        assert len({(a.extra["start"], a.text) for a in best}) == 5
        assert [a.logprob for a in best] == sorted((a.logprob for a in best), reverse=True)
        for answer in best:
            assert answer.score == pytest.approx(np.exp(answer.logprob))
            if answer.extra["start"] is None:
                assert (answer.text, always) == ("", False)
            else:
                assert row.input.document.startswith(answer.text, answer.extra["start"])
                assert answer.text == answer.text.strip() != ""


@given(words=st.integers(1, 80), place=st.floats(0, 1, exclude_max=True), context=st.integers(12, 60))
@settings(max_examples=40)
def test_an_answer_is_found_anywhere_in_a_long_document(task, words, place, context):
    text = ["the"] * words
    text[int(place * words)] = "Anna"
    document = " ".join(text)
    [[best]] = task.predict(make_spotter(task, "Anna", context), [f"Who?\t{document}"], DecodeOptions())
    assert (best.text, best.extra["start"]) == ("Anna", document.index("Anna"))


def test_a_batch_is_overfitted(task):
    rows = QUIZ[:8]
    scores = task.score(overfit(task, make_model(task), rows), rows)
    assert (scores["exact"], scores["f1"]) == (100.0, 100.0)
    assert scores["loss"] < 0.5
    assert scores["predictions"] == [row.target[0][0] for row in rows]
    worse = task.score(make_model(task), rows)
    assert worse["loss"] > 4
    assert task.rank(scores) > task.rank(worse)


def test_no_answer_is_predicted_if_training_had_it(task):
    base = list({row.input.document: row for row in QUIZ}.values())[:4]
    rows = [
        *(row._replace(target=()) for row in base),
        *(row._replace(input=Question("Who is it?", row.input.document)) for row in base),
    ]
    task = replace(task, always_answerable=False)
    model = overfit(task, make_model(task), rows)
    scores = task.score(model, rows)
    assert scores["exact"] == 100.0
    assert scores["predictions"][:4] == [""] * 4
    assert all(replace(task, always_answerable=True).score(model, rows)["predictions"])
    assert not fit_task(rows + QUIZ).always_answerable
    assert fit_task(QUIZ).always_answerable


def test_no_answer_is_predicted_only_if_all_windows_agree(task):
    """A window without the answer is more certain of that than another one is of the answer."""
    model = make_spotter(task, "Anna", 14)
    model.head.out.weight.data[:, task.tokenizer.bos_token_id] = 8.5
    document = " ".join(["the"] * 40 + ["Anna"])
    task = replace(task, always_answerable=False)
    [best, none] = task.predict(model, [f"Who?\t{document}", f"Who?\t{document[:-4]}"], DecodeOptions(num_return=2))
    assert [answer.text for answer in best] == ["Anna", ""]
    assert (none[0].text, none[0].extra) == ("", {"start": None})
    assert none[0].logprob > best[0].logprob


def test_an_input_has_a_tab_or_is_json(task):
    model, row = make_model(task), QUIZ[3]
    as_json = json.dumps({"question": row.input.question, "context": row.input.document, "id": 3})
    from_tab, from_json = task.predict(model, [input_line(row), as_json], DecodeOptions(num_return=3))
    assert [a.text for a in from_tab] == [a.text for a in from_json]
    assert_close([a.logprob for a in from_tab], [a.logprob for a in from_json])


def test_a_saved_model_predicts_as_before(tmp_path):
    lines = [
        {
            "question": r.input.question,
            "context": r.input.document,
            "answers": [{"text": t, "answer_start": s} for t, s in r.target],
        }
        for r in QUIZ
    ]
    file = tmp_path / "quiz.jsonl"
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    given = {"steps": 6, "evals": 1, "valid_share": 0.2, "max_answer_length": 7, **SMALL}
    job = FileJob.open(make_settings("answer", data=str(file), output_dir=str(tmp_path / "run"), **given)).plan()
    for step in job.train():
        last = step
    assert {"loss", "exact", "f1"} <= last.scores.keys()
    loaded = load(tmp_path / "run", device="cpu")
    assert (loaded.task.max_answer_length, loaded.task.always_answerable) == (7, True)
    lines = [input_line(row) for row in QUIZ[:9]]
    before = [*job.task.predict(job.progress.model.eval(), lines, DecodeOptions(num_return=3))]
    assert [*loaded.generate(lines, num_return=3)] == before
    assert loaded(lines[0]) == before[0][0].text
    assert loaded.task.score(loaded.model, loaded.rows([str(file)]))["loss"] > 0


# Refusals.


def test_unusable_rows_are_refused_by_file_and_line(task):
    row = question_row("Who?", "Anna and Ben", (("Anna and Ben", 0),), "a.jsonl", 7)
    with pytest.raises(ValueError, match=r"a\.jsonl:7: the question has 30 tokens.*--context than 30"):
        task.encode([row._replace(input=Question("the " * 30, row.input.document))], 30)
    with pytest.raises(ValueError, match=r"a\.jsonl:7: the answer has 3 tokens, .* document \(2\): .*--context than 7"):
        task.encode([row], 7)
    with pytest.raises(ValueError, match=r"a\.jsonl:7: the document has no tokens"):
        task.encode([row._replace(input=Question("Who?", " \n"))], CONTEXT)


@pytest.mark.parametrize(
    "text", ["Who was it?", "\tAnna", "Who?\t ", '{"question": "Who?"}', '{"question": 1, "context": "a"}', "{", "[]"]
)
def test_a_bad_input_is_refused(task, text):
    lines = [*["Who?\tAnna"] * 70, text]
    with pytest.raises(ValueError, match="input:71: give a question and a document"):
        list(task.predict(make_spotter(task, "Anna", 9), lines, DecodeOptions()))


def test_a_model_without_token_vectors_is_refused():
    with pytest.raises(
        ValueError, match="answer of texts needs a model with an encoder or a decoder, and pooled has one vector"
    ):
        resolve("answer", "pooled")
    tokenizer = train_tokenizer(["a b"], TokenizerOptions(), BERT_LAYOUT)
    with pytest.raises(ValueError, match="max-answer-length must be at least 1, not 0"):
        QuestionAnswering(max_answer_length=0, preprocessor=TextPreprocessor(tokenizer))
    assert [name for name, option in options("answer", "bert", "tiny").items() if not option.help] == []
