"""What a task is given: texts as tokens, or pictures as numbers. Which of the two follows from what the body can do."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from regard.data import text
from regard.data.batches import ByLength, Ints, Ragged, cut, handfuls, padding_mask, to_device
from regard.data.bundled import phrasebook
from regard.data.corpus import Windows
from regard.data.documents import Texts
from regard.data.files import Rows
from regard.data.image_augment import ImageAugment
from regard.data.image_transform import ImageTransform
from regard.data.lines import UTF8, Dialect
from regard.data.pieces import READING, Pieces, learn
from regard.data.protein_alphabet import is_protein_tokenizer, protein_tokenizer
from regard.data.tokens import Tokenizer
from regard.parts.heads import must_be_finite


class Given(NamedTuple):
    x: Tensor  # (B,T) ids, (B,C,H,W) pictures or (B,T,P+T) atoms
    mask: Tensor | None  # (B,1,1,T), True = a token


class Written(ByLength):
    """Texts, with the answer to each."""

    def __init__(self, rows: Ragged, wanted: Any):
        self.rows, self.wanted = rows, wanted
        self.lengths = rows.lengths[:, None]
        self.units = len(rows)


class Drawn(ByLength):
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
            self.tokenizer.must_pair()
        nothing = [self.tokenizer.end]  # of a text without a token there would be no mean
        return Written(Ragged([ids or nothing for ids in self.tokenizer.encode(texts, context)]), wanted)

    def given(self, examples: Written, rows: Ints, training: bool) -> Given:
        ids = examples.rows.padded(rows, self.tokenizer.pad)
        return Given(ids, padding_mask(examples.rows.lengths[rows], ids.size(1)))

    def sizes(self) -> dict[str, int]:
        return text_sizes(self.tokenizer)


@dataclass
class ImageInput:
    pictures: ImageTransform
    views: ImageAugment

    def prepare(self, rows: Sequence[Any], wanted: Any, context: int) -> Drawn:
        return Drawn(self.pictures.prepare([row.pixels for row in rows]), wanted)

    def given(self, examples: Drawn, rows: Ints, training: bool) -> Given:
        pixels = torch.from_numpy(examples.rows[rows])
        return Given(self.pictures.normalize(self.views.augment(pixels) if training else pixels), None)

    def sizes(self) -> dict[str, int]:
        return {"image": self.pictures.image_size, "channels": self.pictures.channels}


def text_sizes(tokenizer: Tokenizer) -> dict[str, int]:
    sep = {"sep": tokenizer.id_of(tokenizer.roles["sep_token"])} if "sep_token" in tokenizer.roles else {}
    return {"vocab": len(tokenizer), "pad": tokenizer.pad, **sep, "segment_start": tokenizer.segment_start}


def fit_tokenizer(texts: Any, reading: dict[str, Any], readers: dict[str, Any]) -> Tokenizer:
    """That of the model it starts from, or a new one."""
    found: Tokenizer | None = readers.get("tokenizer")
    if found and is_protein_tokenizer(found):
        raise ValueError("the model to start from reads proteins, letter by letter, and these are texts")
    return found or learn(texts, Pieces(**told(Pieces, reading)), READING)


def fit_letters(reading: dict[str, Any], readers: dict[str, Any]) -> Tokenizer:
    """That of the model it starts from, or a new one: for proteins there is only one."""
    found: Tokenizer | None = readers.get("tokenizer")
    if found and not is_protein_tokenizer(found):
        raise ValueError("the model to start from reads texts, and these are proteins: start from one that reads FASTA")
    usual = {"pieces": (None, "bpe", "characters"), "vocab": (None,), "lowercase": (None, False)}
    for name in usual:
        if reading.get(name) not in usual[name]:
            raise ValueError(f"--{name} is for texts: a protein is read letter by letter. Leave it out")
    return found or protein_tokenizer()


def told(group: Any, reading: dict[str, Any]) -> dict[str, Any]:
    """The options of one group among those of how the input is read."""
    return {name: reading[name] for name in group.__dataclass_fields__}


def in_order(lengths: Ints, answer: Callable[[Ints], Tensor], budget: int = 8192) -> Tensor:
    """The answers to all rows: worked on in batches of like length, given back in order."""
    order = np.argsort(lengths, kind="stable")
    found = torch.cat([answer(order[a:b]) for a, b in cut(lengths[order], budget)])
    return found[torch.from_numpy(np.argsort(order, kind="stable"))]


@torch.inference_mode()
def vectors(model: Any, tokenizer: Tokenizer, pool: Callable[..., Tensor], raw: Iterable[str]) -> Iterator[list[float]]:
    """What a body makes of each text, pooled."""
    reader, device = TextInput(tokenizer), next(model.parameters()).device
    for some in handfuls(raw, 256):
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
    return text.read(paths, fields, dialect)


def bundled_pairs() -> dict[str, Rows]:
    """The phrasebook's sentences, and their translations."""
    parts: dict[str, list[tuple[str, str]]] = {"train": [], "valid": [], "test": []}
    for phrase in phrasebook.phrases():
        parts[phrasebook.split(phrase)].append((phrase.english, phrase.german))
    return {name: text.from_memory(some, "phrasebook") for name, some in parts.items()}


def windows_told(tokenizer: Tokenizer, rows: Texts, examples: Windows, numbers: Ints) -> list[dict[str, Any]]:
    """Parts of a long text, for a person. They have no line: the number of its first token tells where each is."""
    texts = tokenizer.decode(examples.take(numbers).tolist())
    at = zip(numbers.tolist(), texts, strict=True)
    return [{"file": rows.name, "line": f"token {start}", "text": text} for start, text in at]
