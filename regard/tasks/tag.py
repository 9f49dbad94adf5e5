"""Tag: a label for every word. A word's first piece answers for it. Labels that make spans (B-x, I-x) make whole ones.

loss = - Σ_words log softmax(logits)[tag]
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from regard.choose import must
from regard.data.batches import ByLength, Ints, Ragged, cut, handfuls, padding_mask
from regard.data.bundled import phrasebook
from regard.data.files import Rows
from regard.data.pieces import Pieces
from regard.data.tagged import Tagged, read_tagged
from regard.data.tokens import Tokenizer
from regard.parts.heads import Model, PerToken, thought_of
from regard.scores import accuracy, span_f1
from regard.tasks.inputs import fit_tokenizer, text_sizes
from regard.tasks.spans import best, grammar
from regard.tasks.task import Answer, Choices, Loss, Task, learnt, samples

WORDS = re.compile(r"\w+(?:['’]\w+)?|[^\w\s]")
NOT = -100  # no word begins here


class Words(NamedTuple):
    ids: Tensor  # (B,T)
    mask: Tensor  # (B,1,1,T), True = a token
    tags: Tensor  # (B,T), NOT where no word begins


class Sentences(ByLength):
    """Pieces of words and, where a word begins, its tag. A sentence over the context is several rows."""

    def __init__(self, pieces: list[list[int]], tags: list[list[int]]):
        self.pieces, self.tags = Ragged(pieces), Ragged(tags)
        self.lengths = self.pieces.lengths[:, None]
        self.units = int((self.tags.ids != NOT).sum())


@dataclass
class Tag(Task):
    smoothing: float = 0.0  # this share of the wanted probability is spread over all tags
    tags: list[str] = learnt()
    tokenizer: Tokenizer = learnt()

    def __post_init__(self) -> None:
        must(
            self,
            smoothing=(0 <= self.smoothing < 1, "at least 0 and below 1"),
            tags=(len(self.tags) > 0, "one tag or more"),
        )

    about = "words in, a label for every word out"
    takes = "CoNLL, CoNLL-U or .jsonl of words and tags, or two parallel files"
    ships = "parts of speech in the phrasebook's German"
    asks = ("reads",)
    default = "modernbert"
    of_the_head = ("tags",)
    counts = "words"

    @classmethod
    def groups(cls, ability: str) -> tuple[type, ...]:
        return (Pieces,)

    @classmethod
    def rows(cls, paths: tuple[str, ...], fields: tuple[str, ...] | None, ability: str, **aim: Any) -> Rows:
        return read_tagged(paths, fields)

    @classmethod
    def bundled(cls, ability: str, **aim: Any) -> dict[str, Rows]:
        """The parts of speech in the phrasebook's German."""
        parts: dict[str, list[Any]] = {"train": [], "valid": [], "test": []}
        for line, phrase in enumerate(phrasebook.phrases(), 1):
            words, tags = zip(*phrase.german_tags, strict=True)
            asked = phrase._replace(english=phrase.german.casefold())  # that of several English ones may be the same
            parts[phrasebook.split(asked)].append(Tagged(words, tags, "phrasebook", line))
        return dict(parts)

    @classmethod
    def fit(cls, rows: Any, ability: str, reading: dict[str, Any], readers: dict[str, Any], **aim: Any) -> Tag:
        tokenizer = fit_tokenizer((" ".join(row.words) for row in rows), reading, readers)
        return cls(**aim, tags=sorted({tag for row in rows for tag in row.tags}), tokenizer=tokenizer)

    def sizes(self) -> dict[str, int]:
        return text_sizes(self.tokenizer)

    def head(self, body: Any) -> Model:
        return Model(body, PerToken(body.config.dim, len(self.tags), body.config.dropout, thought_of(body)))

    def prepare(self, rows: Sequence[Tagged], context: int) -> Sentences:
        """A tag that training did not know is counted wrong, whatever is said."""
        place = {tag: i for i, tag in enumerate(self.tags)}
        pieces, tags = [], []
        for row, encoding in zip(
            rows, self.tokenizer.encodings([list(row.words) for row in rows], words=True), strict=True
        ):
            words = encoding.word_ids
            begins = [w is not None and w != before for w, before in zip(words, [None, *words[:-1]], strict=True)]
            wanted = [place.get(row.tags[w or 0], NOT - 1) if b else NOT for w, b in zip(words, begins, strict=True)]
            if sum(begins) < len(row.words):
                raise ValueError(f"{row.file}:{row.line}: a word of this sentence has no letters that can be read")
            for a, b in windows(begins, context):
                pieces.append(encoding.ids[a:b])
                tags.append(wanted[a:b])
        return Sentences(pieces, tags)

    def batch(self, examples: Sentences, rows: Ints) -> Words:
        ids = examples.pieces.padded(rows, self.tokenizer.pad)
        return Words(ids, padding_mask(examples.pieces.lengths[rows], ids.size(1)), examples.tags.padded(rows, NOT))

    def loss(self, model: Model, batch: Words, smoothing: float | None = None) -> Loss:
        known = batch.tags >= 0
        logits = model.head(model.body(batch.ids, batch.mask)[known])  # (words,tags)
        smoothing = self.smoothing if smoothing is None else smoothing
        total = F.cross_entropy(logits, batch.tags[known], reduction="sum", label_smoothing=smoothing)
        return Loss(total, max(1, int(known.sum())))

    @torch.inference_mode()
    def log_probs(self, model: Model, rows: Sequence[Tagged]) -> list[Tensor]:
        """(words,tags) of each sentence."""
        examples = self.prepare(rows, model.body.config.context)
        device = next(model.parameters()).device
        order = np.argsort(examples.lengths[:, 0], kind="stable")
        found: dict[int, Tensor] = {}
        for a, b in cut(examples.lengths[order, 0], 8192):
            batch = self.batch(examples, order[a:b])
            logits = model.head(model.body(batch.ids.to(device), batch.mask.to(device))).float().cpu()
            for i, row in enumerate(order[a:b].tolist()):
                found[row] = logits[i][batch.tags[i] != NOT].log_softmax(-1)
        flat = torch.cat([found[i] for i in range(len(found))])
        return list(flat.split([len(row.words) for row in rows]))

    def score(self, model: Model, rows: Sequence[Tagged], how: Choices | None = None) -> dict[str, Any]:
        place = {tag: i for i, tag in enumerate(self.tags)}
        logprobs = self.log_probs(model, rows)
        total = count = 0.0
        rules = grammar(self.tags)
        said = [[self.tags[i] for i in best(some, rules)] for some in logprobs]
        for row, some in zip(rows, logprobs, strict=True):
            known = [(i, place[tag]) for i, tag in enumerate(row.tags) if tag in place]
            total -= sum(some[i, tag].item() for i, tag in known)
            count += len(known)
        scores = {
            "loss": total / max(1.0, count),
            "accuracy": accuracy([t for row in rows for t in row.tags], [t for tags in said for t in tags]),
        }
        if any(tag.startswith("B-") for tag in self.tags):
            scores |= dict(zip(("precision", "recall", "f1"), span_f1([row.tags for row in rows], said), strict=True))
        asked, answers = [" ".join(row.words) for row in rows], [" ".join(tags) for tags in said]
        return {**scores, "answers": answers, "samples": samples(asked, [" ".join(row.tags) for row in rows], answers)}

    def rank(self, scores: dict[str, Any]) -> tuple[float, ...]:
        return round(scores.get("f1", 0.0), 3), round(scores["accuracy"], 3), -round(scores["loss"], 4)

    def predict(self, model: Model, raw: Iterable[str], how: Choices, first: int = 0) -> Iterator[list[Answer]]:
        rules = grammar(self.tags)
        for some in handfuls(raw, 256):
            rows = [Tagged(tuple(WORDS.findall(text)), (), "", 1) for text in some]
            full = [Tagged(row.words, (self.tags[0],) * len(row.words), "", 1) for row in rows if row.words]
            found = iter(self.log_probs(model, full) if full else [])
            for row in rows:
                log_probs = next(found) if row.words else torch.zeros(0, len(self.tags))
                chosen = best(log_probs, rules)
                tags = [self.tags[i] for i in chosen]
                told = " ".join(f"{word}/{tag}" for word, tag in zip(row.words, tags, strict=True))
                logp = log_probs[range(len(chosen)), chosen].sum().item()
                yield [Answer(told, logp, logp, {"words": list(row.words), "tags": tags})]


def windows(begins: list[bool], context: int) -> Iterator[tuple[int, int]]:
    """Stretches of at most `context` pieces that end where a word does."""
    start = 0
    while start < len(begins):
        end = min(start + context, len(begins))
        while end < len(begins) and end > start + 1 and not begins[end]:
            end -= 1
        yield start, end
        start = end
