"""Run a model on a batch, and compare two outputs.

relative_difference(a, b) = max |a - b| / max(1, median |a|)          large logits may have large rounding errors
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from regard.check.probes import map_tensors
from regard.loaded_model import LoadedModel
from regard.look import look
from regard.parts.heads import Model
from regard.tasks.task import Batch

TOLERANCE = 1e-5  # on a relative difference: fp32 rounding


class FunctionBody(nn.Module):
    """Any function in the place of a body."""

    def __init__(self, function: Callable[..., Tensor]):
        super().__init__()
        self.function = function

    def forward(self, *inputs: Tensor) -> Tensor:
        return self.function(*inputs)


def with_body(model: Model, function: Callable[..., Tensor]) -> Model:
    """The head of a model on what `function` returns instead of the body."""
    return Model(FunctionBody(function), model.head)


def on_device(model: nn.Module, batch: Batch) -> Batch:
    """A batch with the device and the precision of a model."""
    weight = next(model.parameters())
    return map_tensors(batch, lambda x: x.to(weight.device, weight.dtype if x.is_floating_point() else x.dtype))


@torch.inference_mode()
def model_outputs(loaded: LoadedModel, batch: Batch, model: Model | None = None) -> Tensor:
    """(B,T,·) if the head predicts for every token, (B,·) if it pools. `model` replaces the loaded one."""
    return loaded.task.outputs(model or loaded.model, on_device(loaded.model, batch)).cpu()


def relative_difference(reference: Tensor, output: Tensor) -> float:
    """0 for empty tensors."""
    if not reference.numel():
        return 0.0
    reference, output = reference.double(), output.double()
    return float((reference - output).abs().max() / reference.abs().median().clamp(min=1))


class Largest:
    """The largest of several differences, and the first module that diverges if it exceeds the tolerance."""

    def __init__(self, loaded: LoadedModel):
        self.loaded, self.value, self.module = loaded, 0.0, ""

    def update(
        self, difference: float, tolerance: float, single: Batch, batched: Batch, row: int = 0, upto: int | None = None
    ) -> None:
        if not difference <= self.value:  # NaN is larger than any
            self.value = difference
            if not difference <= tolerance:
                self.module = first_divergent_module(self.loaded, single, batched, row, upto)


def first_divergent_module(
    loaded: LoadedModel, single: Batch, batched: Batch, row: int = 0, upto: int | None = None
) -> str:
    """The first module whose output for the one row of `single` differs from that for `row` of `batched`; only the
    first `upto` positions count."""
    with look(loaded.model) as single_trace:
        model_outputs(loaded, single)
    with look(loaded.model) as batched_trace:
        model_outputs(loaded, batched)
    for name, a in single_trace.items():
        b = batched_trace.get(name)
        if b is None or a.dim() not in (2, 3) or a.dim() != b.dim() or (len(a), len(b)) != (1, len(batched.inputs.x)):
            continue  # not one row for each of the batch
        a, b = a[0], b[row]
        if a.dim() == 2:
            a, b = a[:upto], b[: len(a[:upto])]
        if a.shape == b.shape and not relative_difference(a, b) <= TOLERANCE:
            return name
    return "the output"
