"""Regress: a number for a text or a pair of texts.

loss = Σ (y - ŷ)²          of values that are scaled to mean 0 and spread 1 first
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor

from regard.choose import must
from regard.data.batches import Ints, handfuls, to_device
from regard.data.bundled import numbers
from regard.data.files import Rows
from regard.data.labelled import Measured, read_measured
from regard.data.pieces import Pieces
from regard.data.tokens import Tokenizer
from regard.parts.heads import Classifier, Model, thought_of
from regard.parts.pooling import POOLINGS
from regard.scores import mae, r2, rmse
from regard.tasks.inputs import TextInput, Written, fit_tokenizer, in_order
from regard.tasks.task import Answer, Choices, Loss, Task, learnt, samples


class Values(NamedTuple):
    x: Tensor  # (B,T)
    mask: Tensor  # (B,1,1,T)
    wanted: Tensor  # (B,)


@dataclass
class Regress(Task):
    pooling: Literal["mean", "first", "last", "attention", "pooler"] = "mean"  # how one vector is made of all
    tokenizer: Tokenizer = learnt()
    mean: float = learnt()
    spread: float = learnt()

    def __post_init__(self) -> None:
        must(
            self,
            mean=(math.isfinite(self.mean), "finite"),
            spread=(0 < self.spread < math.inf, "above 0, and finite"),
        )
        self.mean, self.spread = float(self.mean), float(self.spread)

    about = "a text or two texts in, a number out"
    takes = ".tsv, .csv or .jsonl of texts and numbers"
    ships = "numbers in words, and their values"
    asks = ("reads", "gathers")
    default = "modernbert"
    of_the_head = ("mean", "spread", "pooling")
    counts = "examples"

    @classmethod
    def groups(cls, ability: str) -> tuple[type, ...]:
        return (Pieces,)

    @classmethod
    def rows(cls, paths: tuple[str, ...], fields: tuple[str, ...] | None, ability: str, **aim: Any) -> Rows:
        return read_measured(paths, fields)

    @classmethod
    def bundled(cls, ability: str, **aim: Any) -> dict[str, Rows]:
        """Numbers in words, and their values."""
        parts: dict[str, list[Any]] = {"train": [], "valid": [], "test": []}
        for line, number in enumerate(numbers.numbers(), 1):
            parts[numbers.split(number)].append(Measured(number.text, None, number.value, "numbers", line))
        return dict(parts)

    @classmethod
    def fit(cls, rows: Any, ability: str, reading: dict[str, Any], readers: dict[str, Any], **aim: Any) -> Regress:
        tokenizer = fit_tokenizer((text for row in rows for text in row.texts), reading, readers)
        values = np.array([row.value for row in rows])
        return cls(**aim, tokenizer=tokenizer, mean=float(values.mean()), spread=float(values.std()) or 1.0)

    @property
    def input(self) -> TextInput:
        return TextInput(self.tokenizer)

    def sizes(self) -> dict[str, int]:
        return self.input.sizes()

    def head(self, body: Any) -> Model:
        c, pooling = body.config, POOLINGS[self.pooling](body.config.dim)
        return Model(body, Classifier(c.dim, 1, pooling, c.dropout, thought_of(body)))

    def prepare(self, rows: Sequence[Any], context: int) -> Written:
        values = np.array([(row.value - self.mean) / self.spread for row in rows], np.float32)
        return self.input.prepare(rows, values, context)

    def batch(self, examples: Written, rows: Ints) -> Values:
        x, mask = self.input.given(examples, rows, training=True)
        assert mask is not None
        return Values(x, mask, torch.from_numpy(examples.wanted[rows]))

    def guess(self, model: Model, batch: Values) -> Tensor:
        return model.head(model.body(batch.x, batch.mask), batch.mask)[:, 0]  # (B,)

    def loss(self, model: Model, batch: Values) -> Loss:
        return Loss((self.guess(model, batch) - batch.wanted).square().sum(), len(batch.x))

    @torch.inference_mode()
    def values(self, model: Model, rows: Sequence[Measured]) -> list[float]:
        examples = self.prepare(rows, model.body.config.context)
        device = next(model.parameters()).device

        def answer(chosen: Ints) -> Tensor:
            return self.guess(model, to_device(self.batch(examples, chosen), device)).float().cpu()

        return (in_order(examples.lengths[:, 0], answer).double() * self.spread + self.mean).tolist()

    def score(self, model: Model, rows: Sequence[Any], how: Choices | None = None) -> dict[str, Any]:
        said, wanted = self.values(model, rows), [row.value for row in rows]
        loss = float(np.mean([((a - b) / self.spread) ** 2 for a, b in zip(said, wanted, strict=True)]))
        answers = [f"{value:g}" for value in said]
        return {
            "loss": loss,
            "rmse": rmse(wanted, said),
            "mae": mae(wanted, said),
            "r2": r2(wanted, said),
            "answers": answers,
            "samples": samples([row.text for row in rows], [f"{value:g}" for value in wanted], answers),
        }

    def rank(self, scores: dict[str, Any]) -> tuple[float, ...]:
        return (-scores["rmse"],)

    def predict(self, model: Model, raw: Iterable[str], how: Choices, first: int = 0) -> Iterator[list[Answer]]:
        """Texts, or two texts with a tab between them."""
        for some in handfuls(raw, 256):
            parts = [text.partition("\t") for text in some]
            for value in self.values(model, [Measured(a, b or None, 0.0, "", 1) for a, _, b in parts]):
                yield [Answer(f"{value:g}", more={"value": value})]
