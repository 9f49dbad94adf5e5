"""Answer: extractive question answering. A question and a document in, the span of the document that answers it out.

    loss = - Σ (log softmax_t(start)[first] + log softmax_t(end)[last])          Devlin et al. 2019, section 4.2

The softmax is over the tokens of the document and position 0, [CLS], which stands for no answer (section 4.3). A
document longer than the context is read in windows that overlap by half.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F
from tokenizers import Encoding
from torch import Tensor

from regard.data.batches import BucketedExamples, Ints, Ragged, batched, padding_mask, to_device
from regard.data.rows import Question, QuestionRow, Row
from regard.metrics import exact_match, token_f1
from regard.modalities.protocols import Inputs, Preprocessor, Target
from regard.parts.heads import Body, Model, SpanHead, check_finite
from regard.tasks.inference import context_of, length_batches, numbered_rows
from regard.tasks.shared_batches import map_batches
from regard.tasks.task import DecodeOptions, Loss, Prediction, Predictions, Scores, Task, fitted, make_scores
from regard.validate import check_fields

NO_OFFSET = (-1, -1)  # of a token that no answer starts or ends with


class DocumentWindow(NamedTuple):
    """A question and a part of its document."""

    number: int  # index of the question
    ids: npt.NDArray[np.int32]  # (T,)
    offsets: npt.NDArray[np.int32]  # (T,2), start and end of each token in the document
    targets: tuple[int, int]  # first and last token of the answer; 0, 0 if it is not in this window


class QuestionExamples(BucketedExamples):
    def __init__(self, windows: list[DocumentWindow]):
        self.numbers = [window.number for window in windows]
        self.ids = Ragged([window.ids for window in windows])
        self.starts = Ragged([window.offsets[:, 0] for window in windows])
        self.ends = Ragged([window.offsets[:, 1] for window in windows])
        self.targets: Ints = np.array([window.targets for window in windows])
        self.lengths = self.ids.lengths[:, None]
        self.units = len(windows)


class QuestionBatch(NamedTuple):
    inputs: Inputs
    positions: Tensor  # (B,T), True = an answer may start or end here
    targets: Tensor  # (B,2)


class AnswerSpan(NamedTuple):
    logprob: float
    start: int  # in the document
    end: int


@dataclass
class QuestionAnswering(Task):
    max_answer_length: int = 30  # maximum number of tokens of an answer
    always_answerable: bool = fitted(False)  # every training question has an answer

    def __post_init__(self) -> None:
        check_fields(self, max_answer_length=(self.max_answer_length >= 1, "at least 1"))

    description = "a question and a document in, the span that answers it out"
    target = Target.SPAN
    structures = ("encoder", "decoder")
    splits_long_inputs = True
    default = "modernbert"
    throughput_unit = "examples"
    percent_metrics = ("exact",)
    ranked_by = ("f1",)
    eval_limit = 1000

    @classmethod
    def fitted_fields(
        cls, rows: Sequence[QuestionRow], preprocessor: Preprocessor, **options: object
    ) -> dict[str, object]:
        return {"always_answerable": all(row.target for row in rows)}

    def head(self, body: Body) -> Model:
        """Two logits for each token: that the answer starts here, and that it ends here."""
        return Model(body, SpanHead(body.config.dim, body.config.dropout, body.head_transform()))

    def describe_examples(
        self, rows: Sequence[QuestionRow], examples: QuestionExamples, numbers: Ints
    ) -> list[dict[str, object]]:
        return super().describe_examples(rows, examples, np.array([examples.numbers[number] for number in numbers]))

    def encode(self, rows: Sequence[QuestionRow], context: int) -> QuestionExamples:
        windows: list[DocumentWindow] = []
        self.tokenizer.validate_pairs()
        for chunk in batched(enumerate(rows), 1000):
            encodings = self.tokenizer.encodings([tuple(row.input) for _, row in chunk])
            for (number, row), encoding in zip(chunk, encodings, strict=True):
                windows += document_windows(number, row, encoding, context)
        return QuestionExamples(windows)

    def collate(self, examples: QuestionExamples, rows: Ints, training: bool = True) -> QuestionBatch:
        ids = examples.ids.pad(rows, self.tokenizer.pad_token_id)
        positions = examples.starts.pad(rows, NO_OFFSET[0]) != NO_OFFSET[0]
        positions[:, 0] = True
        mask = padding_mask(examples.ids.lengths[rows], ids.size(1))
        return QuestionBatch(Inputs(ids, mask), positions, torch.from_numpy(examples.targets[rows]))

    def log_probs(self, model: Model, batch: QuestionBatch) -> Tensor:
        """(B,T,2): log-probabilities that the answer starts and ends at each token."""
        logits = self.outputs(model, batch)
        return logits.masked_fill(~batch.positions[..., None], -math.inf).log_softmax(1)

    def loss(self, model: Model, batch: QuestionBatch) -> Loss:
        return Loss(F.nll_loss(self.log_probs(model, batch), batch.targets, reduction="sum"), len(batch.targets))

    @torch.inference_mode()
    def best_spans(
        self, model: Model, rows: Sequence[QuestionRow], num_return: int = 1
    ) -> tuple[list[list[AnswerSpan]], float]:
        """The best spans of each document, best first, and the mean loss of the windows. No answer is the span 0, 0."""
        examples = self.encode(rows, context_of(model))
        device, total = next(model.parameters()).device, 0.0
        candidates: list[dict[tuple[int, int], float]] = [{} for _ in rows]

        def spans_of(numbers: Ints) -> tuple[float, list[list[Any]]]:
            batch = to_device(self.collate(examples, numbers), device)
            logprobs = self.log_probs(model, batch).float()
            check_finite(logprobs.mT)
            loss = F.nll_loss(logprobs, batch.targets, reduction="sum").item()
            return loss, [x.tolist() for x in top_spans(logprobs, self.max_answer_length, num_return)]

        batches = length_batches(examples.lengths[:, 0])
        for numbers, (loss, best) in zip(batches, map_batches(spans_of, batches), strict=True):
            total += loss
            for row, no_answer, values, firsts, lasts in zip(numbers.tolist(), *best, strict=True):
                starts, ends, spans = examples.starts[row], examples.ends[row], candidates[examples.numbers[row]]
                if not self.always_answerable:  # as probable as in the window that is least sure of it
                    spans[0, 0] = min(spans.get((0, 0), 0.0), no_answer)
                for logprob, first, last in zip(values, firsts, lasts, strict=True):
                    span = int(starts[first]), int(ends[last])
                    if logprob > -math.inf:
                        spans[span] = max(spans.get(span, -math.inf), logprob)
        ranked = (sorted((AnswerSpan(p, *at) for at, p in spans.items()), reverse=True) for spans in candidates)
        return [spans[:num_return] for spans in ranked], total / examples.units

    def score(self, model: Model, rows: Sequence[QuestionRow], options: DecodeOptions | None = None) -> Scores:
        spans, loss = self.best_spans(model, rows)
        predictions = [row.input.document[best.start : best.end] for row, (best, *_) in zip(rows, spans, strict=True)]
        targets = [[text for text, _ in row.target] for row in rows]
        metrics = {"exact": exact_match(targets, predictions), "f1": token_f1(targets, predictions)}
        sources, first = [row.input.question for row in rows], [next(iter(texts), "") for texts in targets]
        return make_scores({"loss": loss, **metrics}, sources, first, predictions)

    def predict(self, model: Model, raw: Iterable[str], options: DecodeOptions, first: int = 0) -> Predictions:
        """No answer is an empty text."""
        for chunk in batched(raw, 64):
            numbered = enumerate(chunk, first + 1)
            rows = [row for number, text in numbered for row in numbered_rows(self.parse, text, number)]
            first += len(chunk)
            for row, spans in zip(rows, self.best_spans(model, rows, options.num_return)[0], strict=True):
                document = row.input.document
                yield [Prediction(document[a:b], p, math.exp(p), {"start": a if b else None}) for p, a, b in spans]

    def parse(self, raw: str) -> list[QuestionRow]:
        row = self.preprocessor.parse(raw, self.target)
        assert isinstance(row.input, Question)
        return [Row(row.input, (), *row[2:])]

    def request(self, text: str, target: str | None = None) -> str:
        return text if "\t" in text else f"Who came?\t{text}"

    def probe_rows(self, rows: Sequence[Row[Question, object]]) -> list[QuestionRow]:
        """The answer is the first word of the document. Questions are one word, so that the document fits."""
        inputs = [row.input._replace(question=row.input.question.split()[0]) for row in rows]
        answers = [((x.document.split()[0], x.document.index(x.document.split()[0])),) for x in inputs]
        return [Row(x, y, *row[2:]) for row, x, y in zip(rows, inputs, answers, strict=True)]


def document_windows(number: int, row: QuestionRow, encoding: Encoding, context: int) -> Iterator[DocumentWindow]:
    """The question with each window of its document."""
    sides = encoding.sequence_ids
    tokens = sides.count(1)
    if not tokens:
        raise ValueError(f"{row.location}the document has no tokens")
    begin, room = sides.index(1), context - (len(sides) - tokens)
    end = begin + tokens
    if room < 2:
        problem = f"the question has {sides.count(0)} tokens, which leaves none for the document"
        raise ValueError(f"{row.location}{problem}: the model must have a larger --context than {context}")
    ids, offsets = np.array(encoding.ids), np.full((len(sides), 2), NO_OFFSET)
    offsets[begin:end] = token_offsets(row.input.document, encoding.offsets[begin:end])
    first, last = answer_tokens(offsets, row) if row.target else (0, 0)
    ranges = list(overlapping_ranges(begin, end, room))
    holds_answer = [a <= first and last < b for a, b in ranges]
    if row.target and not any(holds_answer):
        problem = f"the answer has {last - first + 1} tokens, more than a window of the document ({room})"
        raise ValueError(f"{row.location}{problem}: the model must have a larger --context than {context}")
    for (a, b), answerable in zip(ranges, holds_answer, strict=True):
        selected = np.r_[:begin, a:b, end : len(ids)]
        targets = (first - a + begin, last - a + begin) if answerable else (0, 0)
        yield DocumentWindow(number, ids[selected].astype(np.int32), offsets[selected].astype(np.int32), targets)


def overlapping_ranges(begin: int, end: int, size: int) -> Iterator[tuple[int, int]]:
    """Ranges of at most `size` tokens, each of which overlaps the next by half."""
    step = size // 2
    for start in range(begin, max(begin + 1, end - size + step), step):
        yield start, min(start + size, end)


def token_offsets(document: str, offsets: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Start and end of each token, without surrounding spaces.

    Characters that no token covers belong to the token before: e and a combining accent are normalised to é, whose
    offsets cover only the e.
    """
    extended, after = [], len(document)
    for start, end in reversed(offsets):
        while start < end < after and not document[end].isspace():
            end += 1
        extended.append(strip_range(document, start, end))
        after = start
    return extended[::-1]


def strip_range(text: str, start: int, end: int) -> tuple[int, int]:
    """The range without surrounding spaces."""
    word = text[start:end].strip()
    return (at := text.index(word, start), at + len(word)) if word else NO_OFFSET


def answer_tokens(offsets: Ints, row: QuestionRow) -> tuple[int, int]:
    """First and last token that overlap the first of the answers."""
    text, start = row.target[0]
    start, end = strip_range(row.input.document, start, start + len(text))
    overlapping = np.flatnonzero((offsets[:, 0] < end) & (offsets[:, 1] > start))
    if not len(overlapping):
        raise ValueError(f"{row.location}the answer {text[:40]!r} has no tokens")
    return int(overlapping[0]), int(overlapping[-1])


def top_spans(logprobs: Tensor, max_length: int, count: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Log-probability of no answer (B,), and of the best spans (B,count): log-probability, first and last token."""
    start, end = logprobs.unbind(-1)  # (B,T)
    both = start[:, :, None] + end[:, None]  # (B,T,T)
    allowed = torch.ones_like(both[0], dtype=torch.bool).triu().tril(max_length - 1)
    allowed[0] = False
    best = both.masked_fill(~allowed, -math.inf).flatten(1).topk(min(count, allowed.numel()))
    T = both.size(-1)
    return both[:, 0, 0], best.values, best.indices // T, best.indices % T
