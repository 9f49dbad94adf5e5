"""Regress: a number for a text, a pair of texts or a molecule.

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

from regard.data.batches import Ints, handfuls, to_device
from regard.data.bundled import numbers
from regard.data.files import Rows
from regard.data.labelled import Measured, read_measured
from regard.data.lines import UTF8, Dialect
from regard.data.molecules import Molecules, asked_for, read_molecules
from regard.data.pieces import Pieces
from regard.data.tokens import Tokenizer
from regard.metrics import mae, r2, rmse
from regard.parts.heads import Classifier, Model, thought_of
from regard.parts.pooling import POOLINGS
from regard.tasks.bonds import Bonded, MayBond, MoleculeInput, bundled_paths
from regard.tasks.inputs import TextInput, Written, finite_vectors, fit_tokenizer, in_order
from regard.tasks.task import Answer, Choices, Loss, learnt, samples
from regard.validate import check_fields


class Values(NamedTuple):
    x: Tensor  # (B,T) ids or (B,T,P+T) atoms
    mask: Tensor  # (B,1,1,T)
    wanted: Tensor  # (B,)


@dataclass
class Regress(MayBond):
    pooling: Literal["mean", "sum", "first", "last", "attention", "pooler"] = "mean"  # how one vector is made of all
    tokenizer: Tokenizer | None = learnt(None)
    molecules: Molecules | None = learnt(None)
    mean: float = learnt()
    spread: float = learnt()

    def __post_init__(self) -> None:
        check_fields(
            self,
            mean=(math.isfinite(self.mean), "finite"),
            spread=(0 < self.spread < math.inf, "above 0, and finite"),
        )
        self.mean, self.spread = float(self.mean), float(self.spread)

    about = "a text, two texts or a molecule in, a number out"
    takes = ".tsv, .csv or .jsonl of texts or SMILES and numbers"
    ships = "numbers in words, and their values; for models of molecules, paths between atoms"
    asks = ("reads", "gathers", "bonds")
    default = "modernbert"
    of_the_head = ("mean", "spread", "pooling")
    counts = "examples"

    @classmethod
    def groups(cls, ability: str) -> tuple[type, ...]:
        return () if ability == "bonds" else (Pieces,)

    @classmethod
    def rows(
        cls, paths: tuple[str, ...], fields: tuple[str, ...] | None, ability: str, dialect: Dialect = UTF8, **aim: Any
    ) -> Rows:
        if ability == "bonds":
            return read_molecules(paths, fields, "value", dialect=dialect)
        return read_measured(paths, fields, dialect)

    @classmethod
    def bundled(cls, ability: str, **aim: Any) -> dict[str, Rows]:
        """Numbers in words, and their values; how far apart two marked atoms are."""
        if ability == "bonds":
            return bundled_paths()
        parts: dict[str, list[Any]] = {"train": [], "valid": [], "test": []}
        for line, number in enumerate(numbers.numbers(), 1):
            parts[numbers.split(number)].append(Measured(number.text, None, number.value, "numbers", line))
        return dict(parts)

    @classmethod
    def fit(cls, rows: Any, ability: str, reading: dict[str, Any], readers: dict[str, Any], **aim: Any) -> Regress:
        tokenizer = molecules = None
        if ability == "bonds":
            molecules = readers.get("molecules") or Molecules.fit(rows)
        else:
            tokenizer = fit_tokenizer((text for row in rows for text in row.texts), reading, readers)
        values = np.array([row.value for row in rows])
        mean, spread = float(values.mean()), float(values.std()) or 1.0
        return cls(**aim, tokenizer=tokenizer, molecules=molecules, mean=mean, spread=spread)

    @property
    def input(self) -> TextInput | MoleculeInput:
        if self.molecules is not None:
            return MoleculeInput(self.molecules)
        assert self.tokenizer is not None
        return TextInput(self.tokenizer)

    def sizes(self) -> dict[str, int]:
        return self.input.sizes()

    def head(self, body: Any) -> Model:
        c, pooling = body.config, POOLINGS[self.pooling](body.config.dim)
        return Model(body, Classifier(c.dim, 1, pooling, c.dropout, thought_of(body)))

    def prepare(self, rows: Sequence[Any], context: int) -> Written | Bonded:
        values = np.array([(row.value - self.mean) / self.spread for row in rows], np.float32)
        return self.input.prepare(rows, values, context)

    def batch(self, examples: Any, rows: Ints) -> Values:
        x, mask = self.input.given(examples, rows, training=True)
        assert mask is not None
        return Values(x, mask, torch.from_numpy(examples.wanted[rows]))

    def guess(self, model: Model, batch: Values) -> Tensor:
        return model.head(model.body(batch.x, batch.mask), batch.mask)[:, 0]  # (B,)

    def loss(self, model: Model, batch: Values) -> Loss:
        return Loss((self.guess(model, batch) - batch.wanted).square().sum(), len(batch.x))

    @torch.inference_mode()
    def values(self, model: Model, rows: Sequence[Any]) -> list[float]:
        examples = self.prepare(rows, getattr(model.body.config, "context", 0))
        device = next(model.parameters()).device

        def answer(chosen: Ints) -> Tensor:
            return finite_vectors(self.guess(model, to_device(self.batch(examples, chosen), device))[:, None])[:, 0]

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

    def example(self) -> str:
        return "CCO" if self.molecules else "your text"

    def predict(self, model: Model, raw: Iterable[str], how: Choices, first: int = 0) -> Iterator[list[Answer]]:
        """Texts, two texts with a tab between them, or SMILES."""
        for some in handfuls(raw, 256):
            for value in self.values(model, [self.asked(text) for text in some]):
                yield [Answer(f"{value:g}", more={"value": value})]

    def asked(self, text: str) -> Any:
        if self.molecules is not None:
            return asked_for(text)
        first, _, second = text.partition("\t")
        return Measured(first, second or None, 0.0, "", 1)
