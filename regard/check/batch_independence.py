"""Batch independence: an example's output does not depend on padding or on the other rows of its batch.

padding                 outputs of real tokens stay the same for any amount of padding, with any values in it
batch independence      an example alone has the output that it has in a batch
gradient accumulation   loss(batch) = Σ_i loss(row i), so micro-batches add up to the batch
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from regard.check.check_result import CheckResult, count_result, within_bound
from regard.check.compare import TOLERANCE, Largest, model_outputs, on_device, relative_difference
from regard.check.probes import B, Probes, select
from regard.generation_config import GenerationOptions
from regard.loaded_model import LoadedModel
from regard.modalities.protocols import Inputs
from regard.tasks.task import Prediction

SUM_TOLERANCE = 1e-4  # relative, on the sum of many losses


def padding(loaded: LoadedModel, probes: Probes) -> list[CheckResult]:
    """For rows of different lengths."""
    rows = range(len(probes.forward))
    batch, singles = probes.forward.batch(), [probes.forward.batch(row) for row in rows]
    if all(row_shapes(single) == row_shapes(batch) for single in singles):
        return []
    references, largest = [model_outputs(loaded, single)[0] for single in singles], Largest(loaded)
    for padded in (batch, fill_padding(batch)):
        outputs = model_outputs(loaded, padded)
        for row, (single, reference) in enumerate(zip(singles, references, strict=True)):
            part = outputs[row] if outputs.dim() == 2 else outputs[row, : len(reference)]
            largest.update(relative_difference(reference, part), TOLERANCE, single, padded, row)
    message = f"Padding changes outputs of real tokens by at most {largest.value:.1e}"
    advice = f"The model reads padding, first in {largest.module}: pass the mask to every layer and to the pooling."
    return [within_bound("padding", largest.value, TOLERANCE, message, advice)]


def row_shapes(batch: object) -> list[torch.Size]:
    """The shapes of a row in all tensors of a batch."""
    if isinstance(batch, Tensor):
        return [batch.shape[1:]]
    return [shape for part in batch for shape in row_shapes(part)] if isinstance(batch, tuple) else []


def fill_padding(batch: B) -> B:
    """Replace the padding by values that are not 0: those of the same row in reverse order."""
    if isinstance(batch, Inputs):
        x, mask, pairs = batch
        if mask is None:
            return batch
        real = mask[:, 0, 0].repeat_interleave(x.size(1) // mask.size(-1), 1)  # (B,T): a token may be several frames
        x = x.where(real.view(*real.shape, *[1] * (x.dim() - 2)), x.flip(1))
        return Inputs(x, mask, None if pairs is None else pairs.where(mask[:, 0] & mask[:, 0].mT, pairs.flip(1, 2)))  # type: ignore[return-value]
    return type(batch)(*map(fill_padding, batch)) if isinstance(batch, tuple) else batch


def batch_independence(loaded: LoadedModel, probes: Probes) -> list[CheckResult]:
    """Outputs of rows of a batch, with their padding; then answers to requests as of a user."""
    batch, largest = probes.forward.batch(), Largest(loaded)
    batched = model_outputs(loaded, batch)
    for row in range(len(batched)):
        single = select(batch, slice(row, row + 1))
        difference = relative_difference(model_outputs(loaded, single)[0], batched[row])
        largest.update(difference, TOLERANCE, single, batch, row)
    message = f"Batch composition changes an example's output by at most {largest.value:.1e}"
    remedy = "in eval mode use a norm's running statistics."
    advice = f"Outputs depend on the rest of the batch, first in {largest.module}: {remedy}"
    result = within_bound("batch independence", largest.value, TOLERANCE, message, advice)
    count, changed = changed_answers(loaded, probes)
    if result.status == "ok" and changed:
        advice = f"The answer to {changed[0]!r:.60} changes in a batch: if its logits agree, check how it is decoded."
        text = f"of {count} answers change in a batch"
        result = count_result("batch independence", "FAILS", len(changed), text, advice)
    return [result]


def changed_answers(loaded: LoadedModel, probes: Probes) -> tuple[int, list[str]]:
    """The number of requests that the task accepts, and those whose answer in a batch differs from that alone."""
    task = loaded.task
    short = {"num_beams": 1, "temperature": 0.0, "max_new_tokens": 12}
    decode_options = task.decode_options(**short if issubclass(task.decode_options, GenerationOptions) else {})
    accepted: list[str] = []
    single_answers: list[list[Prediction]] = []
    for text in probes.requests:
        try:
            single_answers += task.predict(loaded.model, [text], decode_options)
            accepted.append(text)
        except ValueError:  # e.g. too long for this model: a refusal is no failure
            continue
    batched = task.predict(loaded.model, accepted, decode_options)
    same = [same_answer(a[0], b[0]) for a, b in zip(single_answers, batched, strict=True)]
    return len(accepted), [text for text, equal in zip(accepted, same, strict=True) if not equal]


def same_answer(a: Prediction, b: Prediction) -> bool:
    """Numbers are compared with a tolerance."""
    if "value" in a.extra:
        return math.isclose(a.extra["value"], b.extra["value"], rel_tol=1e-4, abs_tol=1e-4)
    return a.text == b.text


@torch.no_grad()
def gradient_accumulation(loaded: LoadedModel, probes: Probes) -> list[CheckResult]:
    task = loaded.task
    if task.contrastive:
        advice = "Nothing to do: a contrastive loss depends on all pairs of its batch by design."
        return [CheckResult("gradient accumulation", "note", "Not measured", advice=advice)]
    if probes.examples is None:
        return []
    batch = probes.loss_batch(task)
    batches = (batch, *task.split(batch, probes.examples, probes.numbers))
    total, *losses = [task.loss(loaded.model, on_device(loaded.model, batch)) for batch in batches]
    loss_sum, count_sum = sum(float(loss.total) for loss in losses), sum(loss.count for loss in losses)
    error = abs(loss_sum - float(total.total)) / max(1.0, abs(loss_sum))
    message = f"{len(losses)} row losses sum to {loss_sum:.4f}, the batch loss is {float(total.total):.4f}: {error:.1e}"
    if count_sum != total.count:
        error, message = math.inf, f"The rows count {count_sum} units, the batch {total.count}"
    advice = "Sum the loss over the units that it counts, without padding: only then is accumulation one large batch."
    return [within_bound("gradient accumulation", error, SUM_TOLERANCE, message, advice)]
