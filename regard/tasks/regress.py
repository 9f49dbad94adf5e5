"""Regress: a number for a text, a pair of texts or a molecule.

loss = Σ (y - ŷ)²          of values scaled to mean 0 and standard deviation 1
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from regard.data.batches import Ints, batched, to_device
from regard.data.bundled import numbers
from regard.data.labelled_text import RegressionText, read_regression
from regard.data.lines import UTF8, Dialect
from regard.data.molecules import MoleculeFeaturizer, parse_molecule, read_molecules
from regard.data.splits import Rows
from regard.data.tokenizer import Tokenizer
from regard.data.tokenizer_train import TokenizerOptions
from regard.metrics import mae, r2, rmse
from regard.parts.heads import Classifier, Model, head_transform
from regard.parts.pooling import POOLINGS
from regard.tasks.inputs import (
    Inputs,
    TargetBatch,
    TextExamples,
    TextInput,
    finite_vectors,
    fit_tokenizer,
    map_by_length,
)
from regard.tasks.molecule_input import GraphExamples, MoleculeInput, MoleculeTask, bundled_paths
from regard.tasks.task import DecodeOptions, Loss, Prediction, fitted, make_samples
from regard.validate import check_fields


@dataclass
class Regress(MoleculeTask):
    pooling: Literal["mean", "sum", "first", "last", "attention", "pooler"] = "mean"  # pooling of the token vectors
    tokenizer: Tokenizer | None = fitted(None)
    molecules: MoleculeFeaturizer | None = fitted(None)
    mean: float = fitted()
    std: float = fitted()

    def __post_init__(self) -> None:
        check_fields(
            self,
            mean=(math.isfinite(self.mean), "finite"),
            std=(0 < self.std < math.inf, "above 0, and finite"),
        )
        self.mean, self.std = float(self.mean), float(self.std)

    description = "a text, two texts or a molecule in, a number out"
    file_formats = ".tsv, .csv or .jsonl of texts or SMILES and numbers"
    bundled_data = "numbers in words, and their values; for molecule models, paths between atoms"
    requires = ("reads", "gathers", "bonds")
    default = "modernbert"
    head_fields = ("mean", "std", "pooling")
    throughput_unit = "examples"

    @classmethod
    def option_groups(cls, ability: str) -> tuple[type, ...]:
        return () if ability == "bonds" else (TokenizerOptions,)

    @classmethod
    def rows(
        cls, paths: tuple[str, ...], fields: tuple[str, ...] | None, ability: str, dialect: Dialect = UTF8, **_: Any
    ) -> Rows:
        if ability == "bonds":
            return read_molecules(paths, fields, "value", dialect=dialect)
        return read_regression(paths, fields, dialect)

    @classmethod
    def bundled_rows(cls, ability: str, **_: Any) -> dict[str, Rows]:
        """Numbers in words and their values; the distance of two marked atoms."""
        if ability == "bonds":
            return bundled_paths()
        parts: dict[str, list[Any]] = {"train": [], "valid": [], "test": []}
        for line, number in enumerate(numbers.numbers(), 1):
            parts[numbers.split(number)].append(RegressionText(number.text, None, number.value, "numbers", line))
        return dict(parts)

    @classmethod
    def fit(
        cls,
        rows: Any,
        ability: str,
        input_options: dict[str, Any],
        preprocessors: dict[str, Any],
        **task_options: Any,
    ) -> Regress:
        tokenizer = molecules = None
        if ability == "bonds":
            molecules = preprocessors.get("molecules") or MoleculeFeaturizer.fit(rows)
        else:
            tokenizer = fit_tokenizer((text for row in rows for text in row.texts), input_options, preprocessors)
        values = np.array([row.value for row in rows])
        mean, std = float(values.mean()), float(values.std()) or 1.0
        return cls(**task_options, tokenizer=tokenizer, molecules=molecules, mean=mean, std=std)

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
        return Model(body, Classifier(c.dim, 1, pooling, c.dropout, head_transform(body)))

    def encode(self, rows: Sequence[Any], context: int) -> TextExamples | GraphExamples:
        values = np.array([(row.value - self.mean) / self.std for row in rows], np.float32)
        return self.input.encode(rows, values, context)

    def collate(self, examples: Any, rows: Ints) -> TargetBatch:
        return TargetBatch(self.input.collate(examples, rows, training=True), torch.from_numpy(examples.targets[rows]))

    def scaled_values(self, model: Model, inputs: Inputs) -> Tensor:
        return model.head(model.body(*inputs.arguments), inputs.mask)[:, 0]  # (B,)

    def loss(self, model: Model, batch: TargetBatch) -> Loss:
        errors = self.scaled_values(model, batch.inputs) - batch.targets
        return Loss(errors.square().sum(), len(errors))

    @torch.inference_mode()
    def predict_values(self, model: Model, rows: Sequence[Any]) -> list[float]:
        examples: Any = self.encode(rows, getattr(model.body.config, "context", 0))
        device = next(model.parameters()).device

        def batch_values(rows: Ints) -> Tensor:
            inputs = to_device(self.input.collate(examples, rows, training=False), device)
            return finite_vectors(self.scaled_values(model, inputs)[:, None])[:, 0]

        return (map_by_length(examples.lengths[:, 0], batch_values).double() * self.std + self.mean).tolist()

    def score(self, model: Model, rows: Sequence[Any], options: DecodeOptions | None = None) -> dict[str, Any]:
        values, targets = self.predict_values(model, rows), [row.value for row in rows]
        loss = float(np.mean([((a - b) / self.std) ** 2 for a, b in zip(values, targets, strict=True)]))
        predictions = [f"{value:g}" for value in values]
        return {
            "loss": loss,
            "rmse": rmse(targets, values),
            "mae": mae(targets, values),
            "r2": r2(targets, values),
            "predictions": predictions,
            "samples": make_samples([row.text for row in rows], [f"{value:g}" for value in targets], predictions),
        }

    def rank(self, scores: dict[str, Any]) -> tuple[float, ...]:
        return (-scores["rmse"],)

    def example(self) -> str:
        return "CCO" if self.molecules else "your text"

    def predict(
        self, model: Model, raw: Iterable[str], options: DecodeOptions, first: int = 0
    ) -> Iterator[list[Prediction]]:
        """Inputs are texts, two texts separated by a tab, or SMILES."""
        for chunk in batched(raw, 256):
            for value in self.predict_values(model, [self.parse_input(text) for text in chunk]):
                yield [Prediction(f"{value:g}", extra={"value": value})]

    def parse_input(self, text: str) -> Any:
        if self.molecules is not None:
            return parse_molecule(text)
        first, _, second = text.partition("\t")
        return RegressionText(first, second or None, 0.0, "", 1)
