"""What a task is given: texts as tokens, or pictures as numbers. Which of the two follows from what the body can do."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from regard.data import parallel_text
from regard.data.batches import BucketedExamples, Ints, Ragged, batched, padding_mask, split_by_budget, to_device
from regard.data.bundled import phrasebook
from regard.data.documents import DocumentStream
from regard.data.lines import UTF8, Dialect
from regard.data.pictures import Pictures
from regard.data.residues import spelling, spells
from regard.data.splits import Rows
from regard.data.token_corpus import TokenWindows
from regard.data.tokenizer import Tokenizer
from regard.data.tokenizer_train import BERT_LAYOUT, TokenizerOptions, train_tokenizer
from regard.data.views import Views
from regard.parts.heads import must_be_finite


class Given(NamedTuple):
    x: Tensor  # (B,T) ids, (B,C,H,W) pictures or (B,T,P+T) atoms
    mask: Tensor | None  # (B,1,1,T), True = a token


class Written(BucketedExamples):
    """Texts, with the answer to each."""

    def __init__(self, rows: Ragged, wanted: Any):
        self.rows, self.wanted = rows, wanted
        self.lengths = rows.lengths[:, None]
        self.units = len(rows)


class Drawn(BucketedExamples):
    """Pictures, with the answer to each. One counts as many tokens as a body may make of it."""

    def __init__(self, pixels: Any, wanted: Any, tokens: int = 50):
        self.rows, self.wanted = pixels, wanted
        self.lengths = np.full((len(pixels), 1), tokens)
        self.units = len(pixels)


@dataclass
class TextInput:
    tokenizer: Tokenizer

    def prepare(self, rows: Sequence[Any], wanted: Any, context: int) -> Written:
        """A text that is longer than the context is cut."""
        texts = [row.text if getattr(row, "pair", None) is None else (row.text, row.pair) for row in rows]
        if any(isinstance(text, tuple) for text in texts):
            self.tokenizer.validate_pairs()
        nothing = [self.tokenizer.eos_token_id]  # of a text without a token there would be no mean
        return Written(Ragged([ids or nothing for ids in self.tokenizer.encode(texts, context)]), wanted)

    def given(self, examples: Written, rows: Ints, training: bool) -> Given:
        ids = examples.rows.pad(rows, self.tokenizer.pad_token_id)
        return Given(ids, padding_mask(examples.rows.lengths[rows], ids.size(1)))

    def sizes(self) -> dict[str, int]:
        return text_sizes(self.tokenizer)


@dataclass
class ImageInput:
    pictures: Pictures
    views: Views

    def prepare(self, rows: Sequence[Any], wanted: Any, context: int) -> Drawn:
        return Drawn(self.pictures.prepare([row.pixels for row in rows]), wanted)

    def given(self, examples: Drawn, rows: Ints, training: bool) -> Given:
        pixels = torch.from_numpy(examples.rows[rows])
        return Given(self.pictures.normal(self.views.seen(pixels) if training else pixels), None)

    def sizes(self) -> dict[str, int]:
        return {"image": self.pictures.side, "channels": self.pictures.channels}


def text_sizes(tokenizer: Tokenizer) -> dict[str, int]:
    sep = {"sep": tokenizer.token_id(tokenizer.roles["sep_token"])} if "sep_token" in tokenizer.roles else {}
    return {"vocab": len(tokenizer), "pad": tokenizer.pad_token_id, **sep, "segment_start": tokenizer.segment_start}


def fit_tokenizer(texts: Any, reading: dict[str, Any], readers: dict[str, Any]) -> Tokenizer:
    """That of the model it starts from, or a new one."""
    found: Tokenizer | None = readers.get("tokenizer")
    if found and spells(found):
        raise ValueError("the model to start from reads proteins, letter by letter, and these are texts")
    return found or train_tokenizer(texts, TokenizerOptions(**told(TokenizerOptions, reading)), BERT_LAYOUT)


def fit_letters(reading: dict[str, Any], readers: dict[str, Any]) -> Tokenizer:
    """That of the model it starts from, or a new one: for proteins there is only one."""
    found: Tokenizer | None = readers.get("tokenizer")
    if found and not spells(found):
        raise ValueError("the model to start from reads texts, and these are proteins: start from one that reads FASTA")
    usual = {"tokenizer": (None, "bpe", "characters"), "vocab_size": (None,), "lowercase": (None, False)}
    for name in usual:
        if reading.get(name) not in usual[name]:
            raise ValueError(
                f"--{name.replace('_', '-')} is for texts: a protein is read letter by letter. Leave it out"
            )
    return found or spelling()


def told(group: Any, reading: dict[str, Any]) -> dict[str, Any]:
    """The options of one group among those of how the input is read."""
    return {name: reading[name] for name in group.__dataclass_fields__}


def in_order(lengths: Ints, answer: Callable[[Ints], Tensor], budget: int = 8192) -> Tensor:
    """The answers to all rows: worked on in batches of like length, given back in order."""
    order = np.argsort(lengths, kind="stable")
    found = torch.cat([answer(order[a:b]) for a, b in split_by_budget(lengths[order], budget)])
    return found[torch.from_numpy(np.argsort(order, kind="stable"))]


@torch.inference_mode()
def vectors(model: Any, tokenizer: Tokenizer, pool: Callable[..., Tensor], raw: Iterable[str]) -> Iterator[list[float]]:
    """What a body makes of each text, pooled."""
    reader, device = TextInput(tokenizer), next(model.parameters()).device
    for some in batched(raw, 256):
        texts = reader.prepare([Text(one) for one in some], None, model.body.config.context)

        def pooled(rows: Ints, texts: Written = texts) -> Tensor:
            ids, mask = to_device(reader.given(texts, rows, training=False), device)
            return finite_vectors(pool(model.body(ids, mask), mask))

        yield from in_order(texts.lengths[:, 0], pooled).tolist()


def finite_vectors(x: Tensor) -> Tensor:
    """(N,D) on the processor, every number of which is finite."""
    must_be_finite(x.abs())
    return x.float().cpu()


class Text(NamedTuple):
    text: str


def two_texts(paths: tuple[str, ...], fields: tuple[str, ...] | None, dialect: Dialect = UTF8) -> Rows:
    if fields is not None and len(fields) != 2:
        raise ValueError(f"--fields names the two texts of a pair, two columns or keys, not {len(fields)}")
    return parallel_text.read_pairs(paths, fields, dialect)


def bundled_pairs() -> dict[str, Rows]:
    """The phrasebook's sentences, and their translations."""
    parts: dict[str, list[tuple[str, str]]] = {"train": [], "valid": [], "test": []}
    for phrase in phrasebook.phrases():
        parts[phrasebook.split(phrase)].append((phrase.english, phrase.german))
    return {name: parallel_text.pairs_from_memory(some, "phrasebook") for name, some in parts.items()}


def windows_told(
    tokenizer: Tokenizer, rows: DocumentStream, examples: TokenWindows, numbers: Ints
) -> list[dict[str, Any]]:
    """Parts of a long text, for a person. They have no line: the number of its first token tells where each is."""
    texts = tokenizer.decode(examples.take(numbers).tolist())
    at = zip(numbers.tolist(), texts, strict=True)
    return [{"file": rows.name, "line": f"token {start}", "text": text} for start, text in at]
