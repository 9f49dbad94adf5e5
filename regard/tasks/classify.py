"""Classify: one label of an input, or several.

one label      loss = - Σ log softmax(logits)[label]
multi-label    loss = - Σ log σ(±logits), + for labels that the example has, - for the others; unknown ones add nothing
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F
from torch import Tensor

from regard.data.rows import Labels, Row
from regard.metrics import accuracy, macro_f1, mean_roc_auc, micro_f1
from regard.modalities import MODALITIES
from regard.modalities.protocols import Preprocessor, Target
from regard.parts.heads import Body, Model
from regard.tasks.inference import context_of, top_scores
from regard.tasks.pooled_task import TargetTask
from regard.tasks.task import DecodeOptions, Prediction, Predictions, Scores, fitted, make_scores
from regard.validate import check_fields


@dataclass
class Classify(TargetTask):
    multi_label: bool = False  # an example has any number of labels instead of exactly one
    label_smoothing: float = 0.0  # target probability spread uniformly over all labels
    labels: list[str] = fitted()

    def __post_init__(self) -> None:
        check_fields(
            self,
            label_smoothing=(0 <= self.label_smoothing < 1, "at least 0 and below 1"),
            labels=(len(self.labels) > 0, "one label or more"),
        )

    description = "an input in, its label or labels out"
    target = Target.LABELS
    head_fields = ("labels", "multi_label", "pooling")
    percent_metrics = ("accuracy",)

    @classmethod
    def fitted_fields(
        cls, rows: Sequence[Row[object, Labels]], preprocessor: Preprocessor, **options: object
    ) -> dict[str, object]:
        labels = sorted({label for row in rows for label in (*row.target.names, *row.target.unknown)})
        if empty := [label for label in labels if all(label in row.target.unknown for row in rows)]:
            raise ValueError(f"{rows[0].file}: the label {empty[0]!r} has only missing values: leave its column out")
        if len(labels) < 2 and not options["multi_label"]:
            raise ValueError(f"every example has the label {labels[0]!r}: a classifier needs at least two labels")
        return {"labels": labels}

    def head(self, body: Body) -> Model:
        return self.make_head(body, len(self.labels))

    def targets(self, rows: Sequence[Row[object, Labels]]) -> npt.NDArray[np.float32]:
        targets = np.zeros((len(rows), len(self.labels)), np.float32)
        index = {label: i for i, label in enumerate(self.labels)}
        for i, row in enumerate(rows):
            for label in row.target.names:
                if label not in index:
                    raise ValueError(f"{row.location}the training data do not have the label {label!r}")
                targets[i, index[label]] = 1.0
            for label in index.keys() & {*row.target.unknown}:
                targets[i, index[label]] = math.nan
        return targets

    def sum_loss(self, outputs: Tensor, targets: Tensor, label_smoothing: float | None = None) -> Tensor:
        label_smoothing = self.label_smoothing if label_smoothing is None else label_smoothing
        if self.multi_label:
            smooth, labelled = targets * (1 - label_smoothing) + label_smoothing / 2, ~targets.isnan()
            return F.binary_cross_entropy_with_logits(outputs[labelled], smooth[labelled], reduction="sum")
        return F.cross_entropy(outputs, targets.argmax(-1), reduction="sum", label_smoothing=label_smoothing)

    @torch.inference_mode()
    def score(self, model: Model, rows: Sequence[Row[object, Labels]], options: DecodeOptions | None = None) -> Scores:
        examples = self.encode(rows, context_of(model))
        logits = self.run(model, examples.inputs)
        loss = self.sum_loss(logits, torch.from_numpy(examples.targets), 0.0).item() / len(rows)
        predicted = [
            tuple(label for label in self.predicted_labels(row_logits) if label not in row.target.unknown)
            for row_logits, row in zip(logits, rows, strict=True)
        ]
        targets = [row.target.names for row in rows]
        predictions = [", ".join(labels) for labels in predicted]
        truth = [", ".join(sorted(labels)) for labels in targets]
        scored = [i for i, labelled in enumerate(~np.isnan(examples.targets)) if labelled.any()]
        if not scored:
            raise ValueError(f"{rows[0].file}: no row has a known label, so there is nothing to score")
        scores = {"loss": loss, "accuracy": accuracy([truth[i] for i in scored], [predictions[i] for i in scored])}
        scores["f1"] = micro_f1(targets, predicted) if self.multi_label else macro_f1(truth, predictions)
        if self.multi_label and (area := mean_roc_auc(examples.targets, logits.numpy())) is not None:
            scores["roc_auc"] = area
        return make_scores(scores, map(self.preprocessor.show, rows), truth, predictions)

    def predicted_labels(self, logits: Tensor) -> tuple[str, ...]:
        indices = (logits > 0).nonzero()[:, 0] if self.multi_label else logits.argmax(-1, keepdim=True)
        return tuple(self.labels[i] for i in indices.tolist())

    def rank(self, scores: Mapping[str, float]) -> tuple[float, ...]:
        """By accuracy, or F1 of multi-label data, or ROC AUC where labels are rare."""
        main = "f1" if self.multi_label else "accuracy"
        if "roc_auc" in scores and MODALITIES[self.preprocessor.modality].rare_labels:
            main = "roc_auc"
        return round(scores[main], 3), -round(scores["loss"], 4)

    def predict(self, model: Model, raw: Iterable[str], options: DecodeOptions, first: int = 0) -> Predictions:
        for logits in self.run_requests(model, raw):
            probs = logits.sigmoid() if self.multi_label else logits.softmax(-1)
            best = top_scores(probs, options.num_return)
            predictions = [Prediction(self.labels[i], math.log(max(p, 1e-38)), p) for p, i in best]
            if self.multi_label and options.num_return == 1:
                predictions = [predictions[0]._replace(text=", ".join(self.predicted_labels(logits)))]
            yield predictions

    def probe_rows(self, rows: Sequence[Row[object, object]]) -> list[Row[object, object]]:
        return [row._replace(target=Labels((self.labels[i % len(self.labels)],))) for i, row in enumerate(rows)]
