"""Embed: one vector for a text, so that texts which belong together lie near each other.

    v = pool(x) / |pool(x)|,   s[i, j] = v_i · u_j / τ
    loss = - ½ Σ_i (log softmax_j(s[i, :])[i] + log softmax_j(s[:, i])[i])

The two texts of a pair look for each other among all of their batch (Reimers & Gurevych 2019, Henderson et al. 2017).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from tokenizers.normalizers import Lowercase
from torch import Tensor

from regard.data.batches import ByLength, Ints, Ragged, handfuls, to_device
from regard.data.files import Rows
from regard.data.images import open_picture
from regard.data.lines import UTF8, Dialect
from regard.data.pictures import Pictures
from regard.data.pieces import Pieces
from regard.data.tokens import Tokenizer
from regard.data.views import Views
from regard.hub.sentences import Modules, write_modules
from regard.metrics import recall_at
from regard.parts.heads import Model, Projection, Vector
from regard.parts.pooling import POOLINGS
from regard.tasks.contrast import alike, contrast, distinct, places
from regard.tasks.inputs import (
    ImageInput,
    TextInput,
    Written,
    bundled_pairs,
    finite_vectors,
    fit_tokenizer,
    in_order,
    two_texts,
)
from regard.tasks.task import Answer, Choices, Loss, Task, learnt, samples
from regard.validate import MAX_FLOAT, check_fields

SMALL = Lowercase()  # that of sentence-transformers
TOGETHER = 50  # pairs among which the loss of a check is measured


class Couples(NamedTuple):
    ids: Tensor  # (2B,T), the first texts and then the second
    mask: Tensor  # (2B,1,1,T), True = a token
    alike: Tensor  # (B,B), True = of two pairs, but these texts belong together too


class Coupled(ByLength):
    """Texts, each held once, and which of them are pairs."""

    def __init__(self, texts: Ragged, pairs: Ints):
        self.texts = Written(texts, None)
        self.pairs = pairs  # (2,N), numbers of texts
        self.units = pairs.shape[1]
        self.lengths = np.stack([texts.lengths[side] for side in pairs], 1)


@dataclass
class Embed(Task):
    pooling: Literal["mean", "first", "last"] = "mean"  # how one vector is made of all
    temperature: float = 0.05  # what likenesses are divided by before the softmax
    unit: bool = learnt(True)  # vectors have the length 1
    projection: int | None = learnt(None)  # width that vectors are mapped to, as at the end of a tower of CLIP
    limit: int | None = learnt(None)  # tokens after which a text is cut; the context if there are fewer
    do_lower_case: bool = learnt(False)  # before the tokenizer reads a text
    library: dict[str, Any] | None = learnt(None)  # what sentence-transformers says of its version and similarity
    tokenizer: Tokenizer | None = learnt(None)
    pictures: Pictures | None = learnt(None)  # of a body that sees, which is read from a folder of others

    about = "a text in, a vector out; texts that belong together lie near each other"
    takes = "one file of pairs (.tsv, .jsonl) or two parallel ones, plain or gzip"
    ships = "the phrasebook: a sentence and its translation"
    asks = ("reads", "gathers")
    default = "modernbert"
    of_the_head = ("pooling", "unit", "projection", "limit", "do_lower_case", "library")
    counts = "pairs"
    looks = 1000

    def __post_init__(self) -> None:
        check_fields(
            self,
            temperature=(0 < self.temperature < MAX_FLOAT, f"above 0, and below {MAX_FLOAT:g}"),
            projection=(self.projection is None or self.projection >= 1, "at least 1"),
            limit=(self.limit is None or self.limit >= 1, "at least 1"),
        )
        if self.pictures is not None:
            setattr(self, "asks", ("sees",))  # noqa: B010  such a body can be read here, and not trained

    @property
    def reader(self) -> Tokenizer:
        if self.tokenizer is None:
            raise ValueError("this model makes vectors of pictures, and reads no texts: give it names of picture files")
        return self.tokenizer

    @classmethod
    def groups(cls, ability: str) -> tuple[type, ...]:
        return (Pieces,)

    @classmethod
    def rows(
        cls, paths: tuple[str, ...], fields: tuple[str, ...] | None, ability: str, dialect: Dialect = UTF8, **aim: Any
    ) -> Rows:
        return two_texts(paths, fields, dialect)

    @classmethod
    def bundled(cls, ability: str, **aim: Any) -> dict[str, Rows]:
        return bundled_pairs()

    @classmethod
    def fit(cls, rows: Any, ability: str, reading: dict[str, Any], readers: dict[str, Any], **aim: Any) -> Embed:
        return cls(**aim, tokenizer=fit_tokenizer((side for row in rows for side in row[:2]), reading, readers))

    @property
    def input(self) -> TextInput:
        return TextInput(self.reader)

    def sizes(self) -> dict[str, int]:
        return ImageInput(self.pictures, Views()).sizes() if self.pictures is not None else self.input.sizes()

    def amount(self, rows: Any) -> str:
        return f"{len(rows):,} pairs"

    def head(self, body: Any) -> Model:
        dim = body.config.dim
        pooling = POOLINGS[self.pooling](dim)
        if self.projection is not None:
            return Model(body, Projection(pooling, dim, self.projection, self.unit))
        return Model(body, Vector(pooling, self.unit))

    def tokens(self, texts: Sequence[str], context: int) -> list[list[int]]:
        most = min(context, self.limit or context)
        texts = [SMALL.normalize_str(text) for text in texts] if self.do_lower_case else texts
        return [ids or [self.reader.end] for ids in self.reader.encode(texts, most)]

    def prepare(self, rows: Sequence[Any], context: int) -> Coupled:
        sides = [side for column in (0, 1) for side in self.tokens([row[column] for row in rows], context)]
        texts, numbers = distinct(sides, tuple)
        return Coupled(Ragged(texts), numbers.reshape(2, -1))

    def batch(self, examples: Coupled, rows: Ints) -> Couples:
        pairs = examples.pairs[:, rows]
        ids, mask = self.input.given(examples.texts, pairs.ravel(), training=True)
        assert mask is not None
        return Couples(ids, mask, alike(examples.pairs, rows))

    def likeness(self, one: Tensor, other: Tensor) -> Tensor:
        one, other = (torch.nn.functional.normalize(side, dim=-1) for side in (one, other))
        return one @ other.T / self.temperature

    def loss(self, model: Model, batch: Couples) -> Loss:
        one, other = model.head(model.body(batch.ids, batch.mask), batch.mask).chunk(2)  # (B,D) each
        return Loss(contrast(self.likeness(one, other), batch.alike), len(one))

    @torch.inference_mode()
    def vectors(self, model: Model, texts: Written) -> Tensor:
        device = next(model.parameters()).device

        def some(rows: Ints) -> Tensor:
            ids, mask = to_device(self.input.given(texts, rows, training=False), device)
            return finite_vectors(model.head(model.body(ids, mask), mask))

        return in_order(texts.lengths[:, 0], some)  # (N,D)

    @torch.inference_mode()
    def embed_pictures(self, model: Model, pictures: Pictures, files: Sequence[str]) -> Tensor:
        pixels = torch.from_numpy(pictures.prepare([open_picture(file) for file in files]))
        return model.head(model.body(pictures.normal(pixels).to(next(model.parameters()).device))).float().cpu()

    def embed_texts(self, model: Model, texts: Sequence[str]) -> Tensor:
        """Or names of pictures, if it sees."""
        if self.pictures is not None:
            return self.embed_pictures(model, self.pictures, texts)
        return self.vectors(model, Written(Ragged(self.tokens(texts, model.body.config.context)), None))

    def embed(self, model: Model, raw: Iterable[str]) -> Iterator[list[float]]:
        for some in handfuls(raw, 256):
            yield from self.embed_texts(model, some).tolist()

    def score(self, model: Model, rows: Sequence[Any], how: Choices | None = None) -> dict[str, Any]:
        """Each text looks for its other half among all of the other side."""
        examples = self.prepare(rows, model.body.config.context)
        vectors = self.vectors(model, examples.texts)
        one, other = (vectors[side] for side in examples.pairs)
        total = 0.0
        for i in range(0, len(rows), TOGETHER):
            some = slice(i, i + TOGETHER)
            total += contrast(self.likeness(one[some], other[some]), alike(examples.pairs, some)).item()
        likeness = self.likeness(one, other)
        right = alike(examples.pairs) | torch.eye(len(rows), dtype=torch.bool)
        there, back = places(likeness, right), places(likeness.T, right.T)
        numbers = {"loss": total / len(rows)}
        numbers |= {f"recall_at_{k}": (recall_at(there, k) + recall_at(back, k)) / 2 for k in (1, 5, 10)}
        answers = [rows[i][1] for i in likeness.argmax(1).tolist()]
        shown = samples([row[0] for row in rows], [row[1] for row in rows], answers)
        return {**numbers, "answers": answers, "samples": shown}

    def rank(self, scores: dict[str, Any]) -> tuple[float, ...]:
        return round(scores["recall_at_1"], 3), -round(scores["loss"], 4)

    def example(self) -> str:
        return "a text\tone that may be like it\tanother" if self.pictures is None else "picture.png\tanother.png"

    def predict(self, model: Model, raw: Iterable[str], how: Choices, first: int = 0) -> Iterator[list[Answer]]:
        """A text alone: its vector. With others behind it, tabs between: those nearest to it, by their cosines."""
        for line in raw:
            asked, *others = line.split("\t")
            vectors = self.embed_texts(model, [asked, *others])
            if not others:
                yield [Answer(json.dumps(vectors[0].tolist()))]
                continue
            near = self.likeness(vectors[:1], vectors[1:])[0] * self.temperature
            best = near.topk(min(how.num_return, len(others)))
            pairs = zip(best.values.tolist(), best.indices.tolist(), strict=True)
            yield [Answer(others[i], 0.0, cosine, {"cosine": cosine}) for cosine, i in pairs]

    def leave(self, folder: Path) -> None:
        """What sentence-transformers wants to find. It reads no pictures, and its towers of CLIP have no projection."""
        if self.pictures is None and self.projection is None:
            write_modules(folder, Modules(self.pooling, self.unit, self.limit, self.do_lower_case, self.library))
