"""Answer: a question and a document in, the words of the document that answer it out.

    loss = - Σ (log softmax_t(start)[first] + log softmax_t(end)[last])          Devlin et al. 2019, section 4.2

The softmax goes over the tokens of the document and over place 0, [CLS], for an answer that is not there (section 4.3).
A document longer than the context is read in windows, of which neighbours share half.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from regard.data.batches import ByLength, Ints, Ragged, cut, handfuls, padding_mask, to_device
from regard.data.bundled import quiz
from regard.data.files import Rows
from regard.data.lines import UTF8, Dialect
from regard.data.pieces import Pieces
from regard.data.questions import Question, read_questions
from regard.data.tokens import Tokenizer
from regard.metrics import exact_match, token_f1
from regard.parts.heads import Model, SpanScores, must_be_finite, thought_of
from regard.tasks.inputs import fit_tokenizer, text_sizes
from regard.tasks.task import Answer, Choices, Loss, Task, learnt, samples
from regard.validate import check_fields

NOWHERE = (-1, -1)  # of a token that no answer starts or ends with


class Window(NamedTuple):
    """A question and a part of its document."""

    number: int  # of the question
    ids: Any  # (T,)
    spots: Any  # (T,2), of each token: start and end in the document
    wanted: tuple[int, int]  # first and last token of the answer; 0, 0 if it is not in this part


class Windows(ByLength):
    def __init__(self, parts: list[Window]):
        self.numbers = [part.number for part in parts]
        self.ids = Ragged([part.ids for part in parts])
        self.starts = Ragged([part.spots[:, 0] for part in parts])
        self.ends = Ragged([part.spots[:, 1] for part in parts])
        self.wanted: Ints = np.array([part.wanted for part in parts])
        self.lengths = self.ids.lengths[:, None]
        self.units = len(parts)


class Asked(NamedTuple):
    ids: Tensor  # (B,T)
    mask: Tensor  # (B,1,1,T), True = a token
    places: Tensor  # (B,T), True = an answer may start or end here
    wanted: Tensor  # (B,2)


class Span(NamedTuple):
    logp: float
    start: int  # in the document
    end: int


@dataclass
class Answering(Task):
    longest_answer: int = 30  # most tokens of an answer
    tokenizer: Tokenizer = learnt()
    always: bool = learnt(False)  # no question is without an answer

    def __post_init__(self) -> None:
        check_fields(self, longest_answer=(self.longest_answer >= 1, "at least 1"))

    about = "a question and a document in, the words that answer it out"
    takes = ".jsonl or .json in the form of SQuAD"
    ships = "a quiz about small documents"
    asks = ("reads",)
    default = "modernbert"
    counts = "examples"
    shares = ("exact",)
    looks = 1000

    @classmethod
    def groups(cls, ability: str) -> tuple[type, ...]:
        return (Pieces,)

    @classmethod
    def rows(
        cls, paths: tuple[str, ...], fields: tuple[str, ...] | None, ability: str, dialect: Dialect = UTF8, **aim: Any
    ) -> Rows:
        return read_questions(paths, fields, dialect)

    @classmethod
    def bundled(cls, ability: str, **aim: Any) -> dict[str, Rows]:
        """Who did what in a short text, and where and when."""
        parts: dict[str, list[Any]] = {"train": [], "valid": [], "test": []}
        for line, item in enumerate(quiz.quiz(), 1):
            row = Question(item.question, item.document, ((item.answer, item.start),), "quiz", line)
            parts[quiz.split(item)].append(row)
        return dict(parts)

    @classmethod
    def fit(cls, rows: Any, ability: str, reading: dict[str, Any], readers: dict[str, Any], **aim: Any) -> Answering:
        texts = [*(row.question for row in rows), *dict.fromkeys(row.document for row in rows)]
        tokenizer = fit_tokenizer(texts, reading, readers)
        return cls(**aim, tokenizer=tokenizer, always=all(row.answers for row in rows))

    def sizes(self) -> dict[str, int]:
        return text_sizes(self.tokenizer)

    def head(self, body: Any) -> Model:
        """Two scores of each token: that an answer starts with it, and that it ends with it."""
        return Model(body, SpanScores(body.config.dim, body.config.dropout, thought_of(body)))

    def told(self, rows: Any, examples: Windows, numbers: Ints) -> list[dict[str, Any]]:
        return super().told(rows, examples, np.array([examples.numbers[number] for number in numbers]))

    def prepare(self, rows: Sequence[Question], context: int) -> Windows:
        parts: list[Window] = []
        self.tokenizer.must_pair()
        for some in handfuls(enumerate(rows), 1000):
            encodings = self.tokenizer.encodings([(row.question, row.document) for _, row in some])
            for (number, row), encoding in zip(some, encodings, strict=True):
                parts += windows(number, row, encoding, context)
        return Windows(parts)

    def batch(self, examples: Windows, rows: Ints) -> Asked:
        ids = examples.ids.padded(rows, self.tokenizer.pad)
        places = examples.starts.padded(rows, NOWHERE[0]) != NOWHERE[0]
        places[:, 0] = True
        mask = padding_mask(examples.ids.lengths[rows], ids.size(1))
        return Asked(ids, mask, places, torch.from_numpy(examples.wanted[rows]))

    def log_probs(self, model: Model, batch: Asked) -> Tensor:
        """(B,T,2): of each place, that the answer starts and that it ends there."""
        logits = model.head(model.body(batch.ids, batch.mask))
        return logits.masked_fill(~batch.places[..., None], -math.inf).log_softmax(1)

    def loss(self, model: Model, batch: Asked) -> Loss:
        return Loss(F.nll_loss(self.log_probs(model, batch), batch.wanted, reduction="sum"), len(batch.ids))

    @torch.inference_mode()
    def spans(self, model: Model, rows: Sequence[Question], num_return: int = 1) -> tuple[list[list[Span]], float]:
        """The best spans of each document, best first, and the mean loss of the windows. No answer is the span 0, 0."""
        examples = self.prepare(rows, model.body.config.context)
        device, total = next(model.parameters()).device, 0.0
        found: list[dict[tuple[int, int], float]] = [{} for _ in rows]
        order = np.argsort(examples.lengths[:, 0], kind="stable")
        for a, b in cut(examples.lengths[order, 0], 8192):
            batch = to_device(self.batch(examples, order[a:b]), device)
            logprobs = self.log_probs(model, batch).float()
            must_be_finite(logprobs.mT)
            total += F.nll_loss(logprobs, batch.wanted, reduction="sum").item()
            nothing, values, firsts, lasts = (x.tolist() for x in best_pairs(logprobs, self.longest_answer, num_return))
            for i, row in enumerate(order[a:b].tolist()):
                starts, ends, spans = examples.starts[row], examples.ends[row], found[examples.numbers[row]]
                if not self.always:  # nothing is the answer only if it is that of every window
                    spans[0, 0] = min(spans.get((0, 0), 0.0), nothing[i])
                for logp, first, last in zip(values[i], firsts[i], lasts[i], strict=True):
                    span = int(starts[first]), int(ends[last])
                    if logp > -math.inf:
                        spans[span] = max(spans.get(span, -math.inf), logp)
        best = [sorted((Span(p, *at) for at, p in spans.items()), reverse=True)[:num_return] for spans in found]
        return best, total / examples.units

    def score(self, model: Model, rows: Sequence[Question], how: Choices | None = None) -> dict[str, Any]:
        spans, loss = self.spans(model, rows)
        answers = [row.document[best.start : best.end] for row, (best, *_) in zip(rows, spans, strict=True)]
        wanted = [[text for text, _ in row.answers] for row in rows]
        return {
            "loss": loss,
            "exact": exact_match(wanted, answers),
            "f1": token_f1(wanted, answers),
            "answers": answers,
            "samples": samples([row.question for row in rows], [next(iter(some), "") for some in wanted], answers),
        }

    def example(self) -> str:
        return "Who came?\tAnna came late."

    def rank(self, scores: dict[str, Any]) -> tuple[float, ...]:
        return round(scores["f1"], 3), -round(scores["loss"], 4)

    def predict(self, model: Model, raw: Iterable[str], how: Choices, first: int = 0) -> Iterator[list[Answer]]:
        """A question and a document, with a tab between them or as JSON; no answer is an empty one."""
        for some in handfuls(raw, 64):
            rows = [asked(text, line) for line, text in enumerate(some, first + 1)]
            first += len(some)
            for row, spans in zip(rows, self.spans(model, rows, how.num_return)[0], strict=True):
                yield [
                    Answer(row.document[start:end], logp, math.exp(logp), {"start": start if end else None})
                    for logp, start, end in spans
                ]


def windows(number: int, row: Question, encoding: Any, context: int) -> Iterator[Window]:
    """The question with the first part of its document, with the second, and so on."""
    sides, where = encoding.sequence_ids, f"{row.file}:{row.line}"
    tokens = sides.count(1)
    if not tokens:
        raise ValueError(f"{where}: the document has no letters that can be read")
    begin, room = sides.index(1), context - (len(sides) - tokens)
    end = begin + tokens
    if room < 2:
        asked = f"the question has {sides.count(0)} tokens and leaves no room for the document"
        raise ValueError(f"{where}: {asked}: the model must have a larger --context than {context}")
    ids, spots = np.array(encoding.ids), np.full((len(sides), 2), NOWHERE)
    spots[begin:end] = spots_in(row.document, encoding.offsets[begin:end])
    first, last = answer_in(spots, row) if row.answers else (0, 0)
    parts = list(overlapping(begin, end, room))
    held = [a <= first and last < b for a, b in parts]
    if row.answers and not any(held):
        cuts = f"the answer has {last - first + 1} tokens, but documents are cut into windows of {room}"
        raise ValueError(f"{where}: {cuts}: the model must have a larger --context than {context}")
    for (a, b), here in zip(parts, held, strict=True):
        kept = np.r_[:begin, a:b, end : len(ids)]
        wanted = (first - a + begin, last - a + begin) if here else (0, 0)
        yield Window(number, ids[kept].astype(np.int32), spots[kept].astype(np.int32), wanted)


def overlapping(begin: int, end: int, room: int) -> Iterator[tuple[int, int]]:
    """Stretches of at most `room`, each half of which is in the next one too."""
    step = room // 2
    for start in range(begin, max(begin + 1, end - room + step), step):
        yield start, min(start + room, end)


def spots_in(document: str, offsets: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Start and end of each token, without the spaces around it.

    What no token holds belongs to the one before: of e and an accent as two letters, é is made, and stands for the e.
    """
    found, after = [], len(document)
    for start, end in reversed(offsets):
        while start < end < after and not document[end].isspace():
            end += 1
        found.append(trimmed(document, start, end))
        after = start
    return found[::-1]


def trimmed(text: str, start: int, end: int) -> tuple[int, int]:
    """The same without the spaces around it."""
    word = text[start:end].strip()
    return (at := text.index(word, start), at + len(word)) if word else NOWHERE


def answer_in(spots: Ints, row: Question) -> tuple[int, int]:
    """First and last of the tokens that hold the first of the right answers."""
    text, start = row.answers[0]
    start, end = trimmed(row.document, start, start + len(text))
    holding = np.flatnonzero((spots[:, 0] < end) & (spots[:, 1] > start))
    if not len(holding):
        raise ValueError(f"{row.file}:{row.line}: the answer {text[:40]!r} has no letters that can be read")
    return int(holding[0]), int(holding[-1])


def best_pairs(logprobs: Tensor, longest: int, count: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """How probable it is that there is no answer (B,), and the best spans (B,count): log-probability, first, last."""
    start, end = logprobs.unbind(-1)  # (B,T)
    both = start[:, :, None] + end[:, None]  # (B,T,T)
    fits = torch.ones_like(both[0], dtype=torch.bool).triu().tril(longest - 1)
    fits[0] = False
    best = both.masked_fill(~fits, -math.inf).flatten(1).topk(min(count, fits.numel()))
    T = both.size(-1)
    return both[:, 0, 0], best.values, best.indices // T, best.indices % T


def asked(text: str, line: int) -> Question:
    question, _, document = text.partition("\t")
    if text.startswith("{"):
        with suppress(ValueError, KeyError, TypeError):
            told: Any = json.loads(text)
            question, document = told["question"], told["context"]
    if not all(isinstance(part, str) and part.strip() for part in (question, document)):
        forms = 'a question and a document with a tab between them, or {"question": ..., "context": ...}'
        raise ValueError(f"input:{line}: give {forms}, not {text[:60]!r}")
    return Question(question, document, (), "input", line)
