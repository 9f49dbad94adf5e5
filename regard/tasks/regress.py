"""Regress: a number of an input.

loss = Σ (y - ŷ)²          of values scaled to mean 0 and standard deviation 1
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from torch import Tensor

from regard.data.rows import Row
from regard.metrics import mae, r2, rmse
from regard.modalities.protocols import Preprocessor, Target
from regard.parts.heads import Body, Model
from regard.tasks.inference import context_of
from regard.tasks.pooled_task import TargetTask
from regard.tasks.task import DecodeOptions, Prediction, Predictions, Scores, fitted, make_scores
from regard.validate import check_fields


@dataclass
class Regress(TargetTask):
    mean: float = fitted()
    std: float = fitted()

    def __post_init__(self) -> None:
        check_fields(
            self,
            mean=(math.isfinite(self.mean), "finite"),
            std=(0 < self.std < math.inf, "above 0, and finite"),
        )
        self.mean, self.std = float(self.mean), float(self.std)

    description = "an input in, a number out"
    target = Target.NUMBER
    head_fields = ("mean", "std", "pooling")

    @classmethod
    def fitted_fields(
        cls, rows: Sequence[Row[object, float]], preprocessor: Preprocessor, **options: object
    ) -> dict[str, object]:
        values = np.array([row.target for row in rows])
        return {"mean": float(values.mean()), "std": float(values.std()) or 1.0}

    def head(self, body: Body) -> Model:
        return self.make_head(body, 1)

    def targets(self, rows: Sequence[Row[object, float]]) -> npt.NDArray[np.float32]:
        return np.array([(row.target - self.mean) / self.std for row in rows], np.float32)

    def sum_loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        return (outputs[:, 0] - targets).square().sum()

    def score(self, model: Model, rows: Sequence[Row[object, float]], options: DecodeOptions | None = None) -> Scores:
        outputs = self.run(model, self.preprocessor.encode(rows, context_of(model)))[:, 0]
        values = (outputs.double() * self.std + self.mean).tolist()
        targets = [row.target for row in rows]
        loss = float(np.mean([((a - b) / self.std) ** 2 for a, b in zip(values, targets, strict=True)]))
        scores = {metric.__name__: metric(targets, values) for metric in (rmse, mae, r2)}
        texts = [[f"{value:g}" for value in column] for column in (targets, values)]
        return make_scores({"loss": loss, **scores}, map(self.preprocessor.show, rows), *texts)

    def rank(self, scores: Mapping[str, float]) -> tuple[float, ...]:
        return (-scores["rmse"],)

    def predict(self, model: Model, raw: Iterable[str], options: DecodeOptions, first: int = 0) -> Predictions:
        for output in self.run_requests(model, raw):
            value = float(output[0].double() * self.std + self.mean)
            yield [Prediction(f"{value:g}", extra={"value": value})]

    def probe_rows(self, rows: Sequence[Row[object, object]]) -> list[Row[object, object]]:
        return [row._replace(target=self.mean + self.std * (i % 3)) for i, row in enumerate(rows)]
