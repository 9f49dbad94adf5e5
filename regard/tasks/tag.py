"""Tag: a label for every word, predicted from its first token; BIO labels are decoded to whole spans. Or a label for
every residue of a protein, which is a word of one letter.

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

from regard.data.batches import BucketedExamples, Ints, Ragged, batched, padding_mask, split_by_budget
from regard.data.bundled import chains, phrasebook
from regard.data.fasta import LabelledProtein, is_fasta, read_labelled_proteins
from regard.data.lines import UTF8, Dialect
from regard.data.protein_alphabet import EXAMPLE, is_protein_tokenizer, parse_protein
from regard.data.splits import Rows
from regard.data.tagged_text import TaggedText, read_tagged
from regard.data.tokenizer import Tokenizer
from regard.data.tokenizer_train import TokenizerOptions
from regard.metrics import accuracy, span_f1
from regard.parts.heads import Model, TokenClassifier, check_finite, head_transform
from regard.tasks.inputs import fit_residue_tokenizer, fit_tokenizer, text_sizes
from regard.tasks.spans import bio_transitions, viterbi
from regard.tasks.task import DecodeOptions, Loss, Prediction, Task, fitted, make_samples
from regard.validate import check_fields

WORDS = re.compile(r"\w+(?:['’]\w+)?|[^\w\s]")
IGNORE = -100  # not the first token of a word
UNSEEN_TAG = -101  # a tag that the training data lack: every prediction is wrong
UNLABELLED = -102  # an unknown tag: no prediction counts


class TagBatch(NamedTuple):
    ids: Tensor  # (B,T)
    mask: Tensor  # (B,1,1,T), True = a token
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
    tags: list[str] = fitted()
    tokenizer: Tokenizer = fitted()

    def __post_init__(self) -> None:
        check_fields(
            self,
            label_smoothing=(0 <= self.label_smoothing < 1, "at least 0 and below 1"),
            tags=(len(self.tags) > 0, "one tag or more"),
        )

    description = "words in, a label for every word out; or a protein in, a label for every residue out"
    file_formats = (
        "CoNLL, CoNLL-U or .jsonl of words and tags, or two parallel files; .fasta of proteins and .fasta of labels"
    )
    bundled_data = "parts of speech in the phrasebook's German; for protein models, helices and strands of chains"
    requires = ("reads", "spells")
    default = "modernbert"
    head_fields = ("tags",)
    throughput_unit = "words"

    @classmethod
    def option_groups(cls, ability: str) -> tuple[type, ...]:
        return () if ability == "spells" else (TokenizerOptions,)

    @classmethod
    def excluded_options(cls, ability: str) -> frozenset[str]:
        return frozenset({"max_words"}) if ability == "spells" else cls.ignored_options

    @classmethod
    def rows(
        cls, paths: tuple[str, ...], fields: tuple[str, ...] | None, ability: str, dialect: Dialect = UTF8, **_: Any
    ) -> Rows:
        proteins = ability == "spells" or any(map(is_fasta, paths))
        return read_labelled_proteins(paths, fields, dialect) if proteins else read_tagged(paths, fields, dialect)

    @classmethod
    def bundled_rows(cls, ability: str, **_: Any) -> dict[str, Rows]:
        """The parts of speech in the phrasebook's German; the helices and strands of synthetic proteins."""
        parts: dict[str, list[Any]] = {"train": [], "valid": [], "test": []}
        if ability == "spells":
            for line, chain in enumerate(chains.chains(), 1):
                row = LabelledProtein(chain.residues, tuple(chain.states), f"chain{line}", "chains", line)
                parts[chains.split(chain)].append(row)
            return dict(parts)
        for line, phrase in enumerate(phrasebook.phrases(), 1):
            words, tags = zip(*phrase.german_tags, strict=True)
            key = phrase._replace(english=phrase.german.casefold())  # several English phrases may share it
            parts[phrasebook.split(key)].append(TaggedText(words, tags, "phrasebook", line))
        return dict(parts)

    @classmethod
    def fit(
        cls,
        rows: Any,
        ability: str,
        input_options: dict[str, Any],
        preprocessors: dict[str, Any],
        **task_options: Any,
    ) -> Tag:
        tags = sorted({tag for row in rows for tag in row.tags} - {""})
        if not tags:
            raise ValueError(f"{rows[0].file}: no residue has a label, so there is nothing to learn")
        if isinstance(rows[0], LabelledProtein):
            return cls(**task_options, tags=tags, tokenizer=fit_residue_tokenizer(input_options, preprocessors))
        tokenizer = fit_tokenizer((" ".join(row.words) for row in rows), input_options, preprocessors)
        return cls(**task_options, tags=tags, tokenizer=tokenizer)

    @cached_property
    def reads_proteins(self) -> bool:
        return is_protein_tokenizer(self.tokenizer)

    def sizes(self) -> dict[str, int]:
        return text_sizes(self.tokenizer)

    def head(self, body: Any) -> Model:
        return Model(body, TokenClassifier(body.config.dim, len(self.tags), body.config.dropout, head_transform(body)))

    def encode(self, rows: Sequence[TaggedText | LabelledProtein], context: int) -> TagExamples:
        if isinstance(rows[0], LabelledProtein) != self.reads_proteins:
            expected = "proteins, in two FASTA files" if self.reads_proteins else "words, not proteins"
            raise ValueError(f"{rows[0].file}: this model reads {expected}")
        index = {tag: i for i, tag in enumerate(self.tags)} | {"": UNLABELLED}
        pieces, tags = [], []
        for row, encoding in zip(
            rows, self.tokenizer.encodings([list(row.words) for row in rows], words=True), strict=True
        ):
            words = encoding.word_ids
            starts = [w is not None and w != before for w, before in zip(words, [None, *words[:-1]], strict=True)]
            targets = [
                index.get(row.tags[w or 0], UNSEEN_TAG) if start else IGNORE
                for w, start in zip(words, starts, strict=True)
            ]
            if sum(starts) < len(row.words):
                raise ValueError(f"{row.file}:{row.line}: a word of this sentence has no tokens")
            for a, b in split_words(starts, context):
                pieces.append(encoding.ids[a:b])
                tags.append(targets[a:b])
        return TagExamples(pieces, tags)

    def collate(self, examples: TagExamples, rows: Ints) -> TagBatch:
        ids = examples.pieces.pad(rows, self.tokenizer.pad_token_id)
        lengths, tags = examples.pieces.lengths[rows], examples.tags.pad(rows, IGNORE)
        return TagBatch(ids, padding_mask(lengths, ids.size(1)), tags)

    def loss(self, model: Model, batch: TagBatch, label_smoothing: float | None = None) -> Loss:
        labelled = batch.tags >= 0
        logits = model.head(model.body(batch.ids, batch.mask)[labelled])  # (words,tags)
        label_smoothing = self.label_smoothing if label_smoothing is None else label_smoothing
        total = F.cross_entropy(logits, batch.tags[labelled], reduction="sum", label_smoothing=label_smoothing)
        return Loss(total, max(1, int(labelled.sum())))

    @torch.inference_mode()
    def log_probs(self, model: Model, rows: Sequence[TaggedText | LabelledProtein]) -> list[Tensor]:
        """(words,tags) of each sentence."""
        examples = self.encode(rows, model.body.config.context)
        device = next(model.parameters()).device
        order = np.argsort(examples.lengths[:, 0], kind="stable")
        outputs: dict[int, Tensor] = {}
        for a, b in split_by_budget(examples.lengths[order, 0], 8192):
            batch = self.collate(examples, order[a:b])
            logits = model.head(model.body(batch.ids.to(device), batch.mask.to(device))).float().cpu()
            for i, row in enumerate(order[a:b].tolist()):
                outputs[row] = check_finite(logits[i][batch.tags[i] != IGNORE]).log_softmax(-1)
        flat = torch.cat([outputs[i] for i in range(len(outputs))])
        return list(flat.split([len(row.words) for row in rows]))

    def score(
        self, model: Model, rows: Sequence[TaggedText | LabelledProtein], options: DecodeOptions | None = None
    ) -> dict[str, Any]:
        index = {tag: i for i, tag in enumerate(self.tags)}
        logprobs = self.log_probs(model, rows)
        total = count = 0.0
        transitions = bio_transitions(self.tags)
        predicted = [[self.tags[i] for i in viterbi(sentence, transitions)] for sentence in logprobs]
        for row, sentence in zip(rows, logprobs, strict=True):
            labelled = [(i, index[tag]) for i, tag in enumerate(row.tags) if tag in index]
            total -= sum(sentence[i, tag].item() for i, tag in labelled)
            count += len(labelled)
        pairs = [pair for row, tags in zip(rows, predicted, strict=True) for pair in zip(row.tags, tags, strict=True)]
        scored = [pair for pair in pairs if pair[0]]
        if not scored:
            raise ValueError(f"{rows[0].file}: no residue has a label, so there is nothing to score")
        correct = accuracy([target for target, _ in scored], [prediction for _, prediction in scored])
        scores = {"loss": total / max(1.0, count), "accuracy": correct}
        if any(tag.startswith("B-") for tag in self.tags):
            scores |= span_f1([row.tags for row in rows], predicted)._asdict()
        sources, predictions = [row.input_key for row in rows], [self.separator.join(tags) for tags in predicted]
        targets = [self.separator.join(tag or "-" for tag in row.tags) for row in rows]
        return {**scores, "predictions": predictions, "samples": make_samples(sources, targets, predictions)}

    @property
    def separator(self) -> str:
        """Between two tags; those of residues are single letters."""
        return "" if self.reads_proteins else " "

    def example(self) -> str:
        return EXAMPLE if self.reads_proteins else super().example()

    def parse_words(self, text: str) -> TaggedText | LabelledProtein:
        """The row of an input text, with placeholder tags."""
        if self.reads_proteins:
            letters = parse_protein(text)
            return LabelledProtein(letters, (self.tags[0],) * len(letters), "", "", 1)
        words = tuple(WORDS.findall(text))
        return TaggedText(words, (self.tags[0],) * len(words), "", 1)

    def rank(self, scores: dict[str, Any]) -> tuple[float, ...]:
        return round(scores.get("f1", 0.0), 3), round(scores["accuracy"], 3), -round(scores["loss"], 4)

    def predict(
        self, model: Model, raw: Iterable[str], options: DecodeOptions, first: int = 0
    ) -> Iterator[list[Prediction]]:
        transitions = bio_transitions(self.tags)
        for chunk in batched(raw, 256):
            rows = [self.parse_words(text) for text in chunk]
            full = [row for row in rows if row.words]
            outputs = iter(self.log_probs(model, full) if full else [])
            for row in rows:
                log_probs = next(outputs) if row.words else torch.zeros(0, len(self.tags))
                path = viterbi(log_probs, transitions)
                tags = [self.tags[i] for i in path]
                text = self.separator.join(
                    tags if self.reads_proteins else map("/".join, zip(row.words, tags, strict=True))
                )
                logprob = log_probs[range(len(path)), path].sum().item()
                yield [Prediction(text, logprob, logprob, {"words": list(row.words), "tags": tags})]


def split_words(starts: list[bool], context: int) -> Iterator[tuple[int, int]]:
    """Ranges of at most `context` tokens that end at the end of a word."""
    begin = 0
    while begin < len(starts):
        end = min(begin + context, len(starts))
        while end < len(starts) and end > begin + 1 and not starts[end]:
            end -= 1
        yield begin, end
        begin = end
