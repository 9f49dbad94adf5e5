"""What tasks share that pool an input to one vector: embed, and those that predict from it, classify and regress."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from regard.data.batches import BucketedExamples, Ints
from regard.data.rows import Row
from regard.modalities.protocols import EncodedInputs, Inputs
from regard.parts.heads import Body, Classifier, Model
from regard.parts.pooling import POOLINGS
from regard.tasks.inference import map_inputs, map_requests
from regard.tasks.task import Loss, Task


@dataclass
class PooledTask(Task):
    pooling: Literal["mean", "sum", "first", "last", "attention", "pooler"] = "mean"  # pooling of the token vectors

    structures = ("encoder", "pooled", "decoder")
    default = "modernbert"

    def forward(self, model: Model, inputs: Inputs) -> Tensor:
        return model.head(model.body(*inputs.arguments), inputs.mask)  # (B,D) or (B,classes)

    def run(self, model: Model, inputs: EncodedInputs) -> Tensor:
        """The outputs of all inputs, in order."""
        return map_inputs(model, self.preprocessor, inputs, lambda batch: self.forward(model, batch))


class TargetExamples(BucketedExamples):
    """Encoded inputs and their targets."""

    def __init__(self, inputs: EncodedInputs, targets: npt.NDArray[np.float32]):
        self.inputs, self.targets = inputs, targets
        self.lengths, self.units, self.bucketed = inputs.lengths, inputs.units, inputs.bucketed


class TargetBatch(NamedTuple):
    inputs: Inputs
    targets: Tensor  # (B,classes), NaN where a label is unknown; or (B,) values


@dataclass
class TargetTask(PooledTask):
    throughput_unit = "examples"

    def make_head(self, body: Body, classes: int) -> Model:
        c, pooling = body.config, POOLINGS[self.pooling](body.config.dim)
        return Model(body, Classifier(c.dim, classes, pooling, c.dropout, body.head_transform()))

    def targets(self, rows: Any) -> npt.NDArray[np.float32]:
        """The targets of the loss."""
        raise NotImplementedError

    def sum_loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        raise NotImplementedError

    def encode(self, rows: Sequence[Row[object, object]], context: int) -> TargetExamples:
        return TargetExamples(self.preprocessor.encode(rows, context), self.targets(rows))

    def collate(self, examples: TargetExamples, rows: Ints, training: bool = True) -> TargetBatch:
        inputs = self.preprocessor.collate(examples.inputs, rows, training)
        return TargetBatch(inputs, torch.from_numpy(examples.targets[rows]))

    def loss(self, model: Model, batch: TargetBatch) -> Loss:
        return Loss(self.sum_loss(self.forward(model, batch.inputs), batch.targets), len(batch.targets))

    def run_requests(self, model: Model, raw: Iterable[str]) -> Iterator[Tensor]:
        """The outputs of each request."""
        return map_requests(model, self.preprocessor, self.target, lambda batch: self.forward(model, batch), raw)

    def embed(self, model: Model, raw: Iterable[str]) -> Iterator[list[float]]:
        """The pooled vector that the head reads."""

        def pool(inputs: Inputs) -> Tensor:
            return model.head.pooling(model.body(*inputs.arguments), inputs.mask)

        vectors = map_requests(model, self.preprocessor, self.target, pool, raw)
        return (vector.tolist() for vector in vectors)
