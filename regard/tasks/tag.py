"""Tag: a label for every word. A word's first piece answers for it. Labels that make spans (B-x, I-x) make whole ones.
Or a label for every residue of a protein, which is a word of one letter.

loss = - Σ_words log softmax(logits)[tag]
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from regard.data.batches import ByLength, Ints, Ragged, cut, handfuls, padding_mask
from regard.data.bundled import chains, phrasebook
from regard.data.fasta import Chain, holds_fasta, read_chains
from regard.data.files import Rows
from regard.data.lines import UTF8, Dialect
from regard.data.pieces import Pieces
from regard.data.residues import EXAMPLE, residues, spells
from regard.data.tagged import Tagged, read_tagged
from regard.data.tokens import Tokenizer
from regard.metrics import accuracy, span_f1
from regard.parts.heads import Model, PerToken, must_be_finite, thought_of
from regard.tasks.inputs import fit_letters, fit_tokenizer, text_sizes
from regard.tasks.spans import best, grammar
from regard.tasks.task import Answer, Choices, Loss, Task, learnt, samples
from regard.validate import check_fields

WORDS = re.compile(r"\w+(?:['’]\w+)?|[^\w\s]")
NOT = -100  # no word begins here
STRANGE = -101  # a word whose tag training did not know: any answer is wrong
UNTOLD = -102  # a word whose tag nobody knows: no answer counts


class Words(NamedTuple):
    ids: Tensor  # (B,T)
    mask: Tensor  # (B,1,1,T), True = a token
    tags: Tensor  # (B,T), below 0 where there is nothing to learn


class Sentences(ByLength):
    """Pieces of words and, where a word begins, its tag. A sentence over the context is several rows."""

    def __init__(self, pieces: list[list[int]], tags: list[list[int]]):
        self.pieces, self.tags = Ragged(pieces), Ragged(tags)
        self.lengths = self.pieces.lengths[:, None]
        self.units = int((self.tags.ids >= 0).sum())


@dataclass
class Tag(Task):
    smoothing: float = 0.0  # this share of the wanted probability is spread over all tags
    tags: list[str] = learnt()
    tokenizer: Tokenizer = learnt()

    def __post_init__(self) -> None:
        check_fields(
            self,
            smoothing=(0 <= self.smoothing < 1, "at least 0 and below 1"),
            tags=(len(self.tags) > 0, "one tag or more"),
        )

    about = "words in, a label for every word out; or a protein and its residues"
    takes = "CoNLL, CoNLL-U or .jsonl of words and tags, or two parallel files; .fasta of chains and .fasta of labels"
    ships = "parts of speech in the phrasebook's German; for models that spell, helices and strands of chains"
    asks = ("reads", "spells")
    default = "modernbert"
    of_the_head = ("tags",)
    counts = "words"

    @classmethod
    def groups(cls, ability: str) -> tuple[type, ...]:
        return () if ability == "spells" else (Pieces,)

    @classmethod
    def leaves_out(cls, ability: str) -> frozenset[str]:
        return frozenset({"longest"}) if ability == "spells" else cls.unused

    @classmethod
    def rows(
        cls, paths: tuple[str, ...], fields: tuple[str, ...] | None, ability: str, dialect: Dialect = UTF8, **aim: Any
    ) -> Rows:
        letters = ability == "spells" or any(map(holds_fasta, paths))
        return read_chains(paths, fields, dialect) if letters else read_tagged(paths, fields, dialect)

    @classmethod
    def bundled(cls, ability: str, **aim: Any) -> dict[str, Rows]:
        """The parts of speech in the phrasebook's German; the helices and strands of made-up proteins."""
        parts: dict[str, list[Any]] = {"train": [], "valid": [], "test": []}
        if ability == "spells":
            for line, one in enumerate(chains.chains(), 1):
                row = Chain(one.residues, tuple(one.states), f"chain{line}", "chains", line)
                parts[chains.split(one)].append(row)
            return dict(parts)
        for line, phrase in enumerate(phrasebook.phrases(), 1):
            words, tags = zip(*phrase.german_tags, strict=True)
            asked = phrase._replace(english=phrase.german.casefold())  # that of several English ones may be the same
            parts[phrasebook.split(asked)].append(Tagged(words, tags, "phrasebook", line))
        return dict(parts)

    @classmethod
    def fit(cls, rows: Any, ability: str, reading: dict[str, Any], readers: dict[str, Any], **aim: Any) -> Tag:
        tags = sorted({tag for row in rows for tag in row.tags} - {""})
        if not tags:
            raise ValueError(f"{rows[0].file}: there is nothing to learn: of no residue the label is known")
        if isinstance(rows[0], Chain):
            return cls(**aim, tags=tags, tokenizer=fit_letters(reading, readers))
        tokenizer = fit_tokenizer((" ".join(row.words) for row in rows), reading, readers)
        return cls(**aim, tags=tags, tokenizer=tokenizer)

    @cached_property
    def spelled(self) -> bool:
        """Whether it is asked about proteins."""
        return spells(self.tokenizer)

    def sizes(self) -> dict[str, int]:
        return text_sizes(self.tokenizer)

    def head(self, body: Any) -> Model:
        return Model(body, PerToken(body.config.dim, len(self.tags), body.config.dropout, thought_of(body)))

    def prepare(self, rows: Sequence[Tagged | Chain], context: int) -> Sentences:
        if isinstance(rows[0], Chain) != self.spelled:
            known = "proteins, in two FASTA files" if self.spelled else "words, not proteins"
            raise ValueError(f"{rows[0].file}: this model reads {known}")
        place = {tag: i for i, tag in enumerate(self.tags)} | {"": UNTOLD}
        pieces, tags = [], []
        for row, encoding in zip(
            rows, self.tokenizer.encodings([list(row.words) for row in rows], words=True), strict=True
        ):
            words = encoding.word_ids
            begins = [w is not None and w != before for w, before in zip(words, [None, *words[:-1]], strict=True)]
            wanted = [place.get(row.tags[w or 0], STRANGE) if b else NOT for w, b in zip(words, begins, strict=True)]
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
    def log_probs(self, model: Model, rows: Sequence[Tagged | Chain]) -> list[Tensor]:
        """(words,tags) of each sentence."""
        examples = self.prepare(rows, model.body.config.context)
        device = next(model.parameters()).device
        order = np.argsort(examples.lengths[:, 0], kind="stable")
        found: dict[int, Tensor] = {}
        for a, b in cut(examples.lengths[order, 0], 8192):
            batch = self.batch(examples, order[a:b])
            logits = model.head(model.body(batch.ids.to(device), batch.mask.to(device))).float().cpu()
            for i, row in enumerate(order[a:b].tolist()):
                found[row] = must_be_finite(logits[i][batch.tags[i] != NOT]).log_softmax(-1)
        flat = torch.cat([found[i] for i in range(len(found))])
        return list(flat.split([len(row.words) for row in rows]))

    def score(self, model: Model, rows: Sequence[Tagged | Chain], how: Choices | None = None) -> dict[str, Any]:
        place = {tag: i for i, tag in enumerate(self.tags)}
        logprobs = self.log_probs(model, rows)
        total = count = 0.0
        rules = grammar(self.tags)
        said = [[self.tags[i] for i in best(some, rules)] for some in logprobs]
        for row, some in zip(rows, logprobs, strict=True):
            known = [(i, place[tag]) for i, tag in enumerate(row.tags) if tag in place]
            total -= sum(some[i, tag].item() for i, tag in known)
            count += len(known)
        both = [pair for row, tags in zip(rows, said, strict=True) for pair in zip(row.tags, tags, strict=True)]
        told = [pair for pair in both if pair[0]]
        if not told:
            raise ValueError(f"{rows[0].file}: there is nothing to score: of no residue the label is known")
        right = accuracy([wanted for wanted, _ in told], [answer for _, answer in told])
        scores = {"loss": total / max(1.0, count), "accuracy": right}
        if any(tag.startswith("B-") for tag in self.tags):
            scores |= dict(zip(("precision", "recall", "f1"), span_f1([row.tags for row in rows], said), strict=True))
        asked, answers = [row.asked for row in rows], [self.between.join(tags) for tags in said]
        wanted = [self.between.join(tag or "-" for tag in row.tags) for row in rows]
        return {**scores, "answers": answers, "samples": samples(asked, wanted, answers)}

    @property
    def between(self) -> str:
        """What stands between tags: those of residues are letters, as the residues are."""
        return "" if self.spelled else " "

    def example(self) -> str:
        return EXAMPLE if self.spelled else super().example()

    def words(self, text: str) -> Tagged | Chain:
        """A text as a user types it, under tags that say nothing."""
        if self.spelled:
            letters = residues(text)
            return Chain(letters, (self.tags[0],) * len(letters), "", "", 1)
        words = tuple(WORDS.findall(text))
        return Tagged(words, (self.tags[0],) * len(words), "", 1)

    def rank(self, scores: dict[str, Any]) -> tuple[float, ...]:
        return round(scores.get("f1", 0.0), 3), round(scores["accuracy"], 3), -round(scores["loss"], 4)

    def predict(self, model: Model, raw: Iterable[str], how: Choices, first: int = 0) -> Iterator[list[Answer]]:
        rules = grammar(self.tags)
        for some in handfuls(raw, 256):
            rows = [self.words(text) for text in some]
            full = [row for row in rows if row.words]
            found = iter(self.log_probs(model, full) if full else [])
            for row in rows:
                log_probs = next(found) if row.words else torch.zeros(0, len(self.tags))
                chosen = best(log_probs, rules)
                tags = [self.tags[i] for i in chosen]
                told = "".join(tags) if self.spelled else " ".join(map("/".join, zip(row.words, tags, strict=True)))
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
