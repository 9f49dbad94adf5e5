"""Run a model on probe inputs, and compare two outputs.

relative_difference(a, b) = max |a - b| / max(1, median |a|)          large logits may have large rounding errors
"""

from __future__ import annotations

import torch
from torch import Tensor

from regard.check.probes import ModelInputs
from regard.data.batches import to_device
from regard.load import LoadedModel
from regard.look import look
from regard.tasks.classify import Classify
from regard.tasks.embed import Embed
from regard.tasks.inputs import Inputs
from regard.tasks.match import Match
from regard.tasks.regress import Regress
from regard.tasks.translate import Translate

TOLERANCE = 1e-5  # on a relative difference: fp32 rounding
POOLED_TASKS = (Classify, Regress, Embed)  # tasks whose head pools the sequence


@torch.inference_mode()
def model_outputs(loaded: LoadedModel, inputs: ModelInputs) -> Tensor:
    """(B,T,·) if the head predicts for every token, (B,·) if it pools."""
    model, task = loaded.model, loaded.task
    weight = next(model.parameters())
    x, mask, target, pairs = to_device(inputs, weight.device)
    x = x.to(weight.dtype) if x.is_floating_point() else x
    if isinstance(task, Translate):
        return model.head(model.body(x, target, mask)).cpu()
    if isinstance(task, Match):
        return (model.body.image(x) if x.dim() == 4 else model.body.text(x, mask)).cpu()
    hidden = model.body(*Inputs(x, mask, pairs).arguments)
    return (model.head(hidden, mask) if isinstance(task, POOLED_TASKS) else model.head(hidden)).cpu()


def relative_difference(reference: Tensor, output: Tensor) -> float:
    """0 for empty tensors."""
    if not reference.numel():
        return 0.0
    reference, output = reference.double(), output.double()
    return float((reference - output).abs().max() / reference.abs().median().clamp(min=1))


def first_divergent_module(
    loaded: LoadedModel, single: ModelInputs, batched: ModelInputs, row: int = 0, upto: int | None = None
) -> str:
    """The first module whose output for the one row of `single` differs from that for `row` of `batched`; only the
    first `upto` positions count."""
    with look(loaded.model) as single_trace:
        model_outputs(loaded, single)
    with look(loaded.model) as batched_trace:
        model_outputs(loaded, batched)
    for name, a in single_trace.items():
        b = batched_trace.get(name)
        if b is None or a.dim() not in (2, 3) or a.dim() != b.dim() or row >= len(b):
            continue
        a, b = a[0], b[row]
        if a.dim() == 2:
            a, b = a[:upto], b[: len(a[:upto])]
        if a.shape == b.shape and not relative_difference(a, b) <= TOLERANCE:
            return name
    return "the output"
