"""Tag: a label for every element of an input (a word of a sentence, a residue of a chain), predicted from its first
token.

    loss = - Σ_elements log softmax(logits)[tag]

BIO labels (B-x begins a span, I-x continues it, O is outside) are decoded to whole spans, by the Viterbi algorithm:

    best = argmax over tag sequences of Σ_t log p_t(tag_t), with I-x only after B-x or I-x
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from regard.data.batches import BucketedExamples, Ints, Ragged, batched, padding_mask, to_device
from regard.data.rows import Row
from regard.metrics import accuracy, span_f1
from regard.modalities.protocols import Inputs, Preprocessor, Target, request_row
from regard.modalities.token_preprocessor import TokenPreprocessor
from regard.parts.heads import Body, Model, TokenClassifier, check_finite
from regard.tasks.inference import CHUNK, context_of, length_batches
from regard.tasks.shared_batches import map_batches
from regard.tasks.task import DecodeOptions, Loss, Prediction, Predictions, Scores, Task, fitted, make_scores
from regard.validate import check_fields

TaggedRow = Row[Sequence[str], tuple[str, ...]]
IGNORE = -100  # not the first token of a word
UNSEEN_TAG = -101  # a tag that the training data lack: every prediction is wrong
UNLABELLED = -102  # an unknown tag: no prediction counts


class TagBatch(NamedTuple):
    inputs: Inputs
    tags: Tensor  # (B,T), below 0 = no target


class TagExamples(BucketedExamples):
    """Token ids and, at the first token of a word, its tag. A sentence over the context is several rows."""

    def __init__(self, pieces: list[list[int]], tags: list[list[int]]):
        self.pieces, self.tags = Ragged(pieces), Ragged(tags)
        self.lengths = self.pieces.lengths[:, None]
        self.units = int((self.tags.ids >= 0).sum())


@dataclass
class Tag(Task):
    label_smoothing: float = 0.0  # target probability spread uniformly over all tags
    preprocessor: TokenPreprocessor = fitted()
    tags: list[str] = fitted()

    def __post_init__(self) -> None:
        check_fields(
            self,
            label_smoothing=(0 <= self.label_smoothing < 1, "at least 0 and below 1"),
            tags=(len(self.tags) > 0, "one tag or more"),
        )

    description = "a sequence in, a label for each of its elements out"
    target = Target.TAGS
    structures = ("encoder", "decoder")
    splits_long_inputs = True
    default = "modernbert"
    head_fields = ("tags",)
    ranked_by = ("f1", "accuracy")
    throughput_unit = "words"

    @classmethod
    def fitted_fields(
        cls, rows: Sequence[TaggedRow], preprocessor: Preprocessor, **options: object
    ) -> dict[str, object]:
        tags = sorted({tag for row in rows for tag in row.target} - {""})
        if not tags:
            raise ValueError(f"{rows[0].file}: no element has a label, so there is nothing to learn")
        return {"tags": tags}

    def head(self, body: Body) -> Model:
        dim, dropout = body.config.dim, body.config.dropout
        return Model(body, TokenClassifier(dim, len(self.tags), dropout, body.head_transform()))

    def encode(self, rows: Sequence[TaggedRow], context: int) -> TagExamples:
        index = {tag: i for i, tag in enumerate(self.tags)} | {"": UNLABELLED}
        pieces, tags = [], []
        encodings = self.tokenizer.encodings([list(row.input) for row in rows], words=True)
        for row, encoding in zip(rows, encodings, strict=True):
            words = encoding.word_ids
            starts = [w is not None and w != before for w, before in zip(words, [None, *words[:-1]], strict=True)]
            targets = [
                index.get(row.target[w or 0], UNSEEN_TAG) if start else IGNORE
                for w, start in zip(words, starts, strict=True)
            ]
            if sum(starts) < len(row.input):
                raise ValueError(f"{row.location}a word of this sentence has no tokens")
            for a, b in split_words(starts, context):
                pieces.append(encoding.ids[a:b])
                tags.append(targets[a:b])
        return TagExamples(pieces, tags)

    def collate(self, examples: TagExamples, rows: Ints, training: bool = True) -> TagBatch:
        ids = examples.pieces.pad(rows, self.tokenizer.pad_token_id)
        mask = padding_mask(examples.pieces.lengths[rows], ids.size(1))
        return TagBatch(Inputs(ids, mask), examples.tags.pad(rows, IGNORE))

    def loss(self, model: Model, batch: TagBatch) -> Loss:
        labelled = batch.tags >= 0
        logits = model.head(model.body(*batch.inputs.arguments)[labelled])  # (words,tags)
        total = F.cross_entropy(logits, batch.tags[labelled], reduction="sum", label_smoothing=self.label_smoothing)
        return Loss(total, max(1, int(labelled.sum())))

    @torch.inference_mode()
    def log_probs(self, model: Model, rows: Sequence[TaggedRow]) -> list[Tensor]:
        """(words,tags) of each sentence."""
        examples = self.encode(rows, context_of(model))
        device = next(model.parameters()).device

        def log_probs(numbers: Ints) -> list[Tensor]:
            batch = self.collate(examples, numbers)
            logits = self.outputs(model, to_device(batch, device)).float().cpu()  # (B,T,tags)
            return [check_finite(x[tags != IGNORE]).log_softmax(-1) for x, tags in zip(logits, batch.tags, strict=True)]

        batches = length_batches(examples.lengths[:, 0])
        outputs: dict[int, Tensor] = {}
        for numbers, results in zip(batches, map_batches(log_probs, batches), strict=True):
            outputs |= zip(numbers.tolist(), results, strict=True)
        flat = torch.cat([outputs[i] for i in range(len(outputs))])
        return list(flat.split([len(row.input) for row in rows]))

    def score(self, model: Model, rows: Sequence[TaggedRow], options: DecodeOptions | None = None) -> Scores:
        index = {tag: i for i, tag in enumerate(self.tags)}
        logprobs = self.log_probs(model, rows)
        total = count = 0.0
        transitions = bio_transitions(self.tags)
        predicted = [[self.tags[i] for i in viterbi(sentence, transitions)] for sentence in logprobs]
        for row, sentence in zip(rows, logprobs, strict=True):
            labelled = [(i, index[tag]) for i, tag in enumerate(row.target) if tag in index]
            total -= sum(sentence[i, tag].item() for i, tag in labelled)
            count += len(labelled)
        pairs = [pair for row, tags in zip(rows, predicted, strict=True) for pair in zip(row.target, tags, strict=True)]
        scored = [pair for pair in pairs if pair[0]]
        if not scored:
            raise ValueError(f"{rows[0].file}: no element has a label, so there is nothing to score")
        correct = accuracy([target for target, _ in scored], [prediction for _, prediction in scored])
        scores = {"loss": total / max(1.0, count), "accuracy": correct}
        if any(tag.startswith("B-") for tag in self.tags):
            scores |= span_f1([row.target for row in rows], predicted)._asdict()
        separator = self.preprocessor.separator
        predictions = [separator.join(tags) for tags in predicted]
        targets = [separator.join(tag or "-" for tag in row.target) for row in rows]
        return make_scores(scores, map(self.preprocessor.show, rows), targets, predictions)

    def predict(self, model: Model, raw: Iterable[str], options: DecodeOptions, first: int = 0) -> Predictions:
        transitions, separator = bio_transitions(self.tags), self.preprocessor.separator
        for chunk in batched(raw, CHUNK):
            rows = self.probe_rows([request_row(self.preprocessor.words(text), text) for text in chunk])
            full = [row for row in rows if row.input]
            outputs = iter(self.log_probs(model, full) if full else [])
            for row in rows:
                log_probs = next(outputs) if row.input else torch.zeros(0, len(self.tags))
                path = viterbi(log_probs, transitions)
                tags = [self.tags[i] for i in path]
                tagged = map("/".join, zip(row.input, tags, strict=True)) if separator else tags
                logprob = log_probs[range(len(path)), path].sum().item()
                extra = {"words": list(row.input), "tags": tags}
                yield [Prediction(separator.join(tagged), logprob, logprob, extra)]

    def probe_rows(self, rows: Sequence[Row[Sequence[str], object]]) -> list[TaggedRow]:
        tags = [tuple(self.tags[i % len(self.tags)] for i in range(len(row.input))) for row in rows]
        return [Row(row.input, target, *row[2:]) for row, target in zip(rows, tags, strict=True)]


def split_words(starts: list[bool], context: int) -> Iterator[tuple[int, int]]:
    """Ranges of at most `context` tokens that end at the end of a word."""
    begin = 0
    while begin < len(starts):
        end = min(begin + context, len(starts))
        while end < len(starts) and end > begin + 1 and not starts[end]:
            end -= 1
        yield begin, end
        begin = end


class TagTransitions(NamedTuple):
    first: Tensor  # (tags,), 0 for a tag that may begin a sentence, else -inf
    after: Tensor  # (tags,tags), 0 where the column may follow the row, else -inf


def bio_transitions(tags: Sequence[str]) -> TagTransitions | None:
    """None if the tags are not BIO: other prefixes, or an I-x without a B-x (as in IOB1)."""
    types = {tag[2:] for tag in tags if tag.startswith("B-")}
    if not types or any(tag != "O" and not (tag[:2] in ("B-", "I-") and tag[2:] in types) for tag in tags):
        return None
    inside = torch.tensor([tag.startswith("I-") for tag in tags])
    same = torch.tensor([[tag != "O" and tag[2:] == before[2:] for tag in tags] for before in tags])
    forbidden = torch.tensor(float("-inf"))
    return TagTransitions(torch.where(inside, forbidden, 0.0), torch.where(inside & ~same, forbidden, 0.0))


def viterbi(log_probs: Tensor, transitions: TagTransitions | None) -> list[int]:
    """The most probable allowed tags of one sentence, (words,tags)."""
    if transitions is None or not len(log_probs):
        return [int(tag) for tag in log_probs.argmax(-1)]
    score, backpointers = log_probs[0] + transitions.first, []
    for word in log_probs[1:]:
        score, before = (score[:, None] + transitions.after).max(0)
        score = score + word
        backpointers.append(before)
    path = [int(score.argmax())]
    for before in reversed(backpointers):
        path.append(int(before[path[-1]]))
    return path[::-1]
