"""Batch independence: an example's output does not depend on padding or on the other rows of its batch.

padding                 outputs of real tokens stay the same for any amount of padding, with any ids in it
batch independence      an example alone has the output that it has in a batch
gradient accumulation   loss(batch) = Σ_i loss(row i), so micro-batches add up to the batch
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from regard.check.check_result import CheckResult, count_result, within_bound
from regard.check.compare import TOLERANCE, first_divergent_module, model_outputs, relative_difference
from regard.check.probes import ModelInputs, Probes
from regard.data.batches import to_device
from regard.generate import GenerationOptions
from regard.load import LoadedModel
from regard.tasks.embed import Embed
from regard.tasks.fill import Fill, MaskedBatch
from regard.tasks.match import Match
from regard.tasks.task import Prediction

SUM_TOLERANCE = 1e-4  # relative, on the sum of many losses


def padding(loaded: LoadedModel, probes: Probes) -> list[CheckResult]:
    if not probes.ids:
        return []
    rows = range(len(probes.ids))
    single_inputs = [probes.inputs([row]) for row in rows]
    references = [model_outputs(loaded, inputs)[0] for inputs in single_inputs]
    random_pads = torch.tensor(probes.regular_tokens).roll(3)
    largest, module = 0.0, ""
    for pad_ids in (None, random_pads):
        inputs = probes.inputs(rows, pad_ids=pad_ids)
        batched = model_outputs(loaded, inputs)
        for row in rows:
            part = batched[row] if batched.dim() == 2 else batched[row, : len(references[row])]
            difference = relative_difference(references[row], part)
            if not difference <= largest:
                largest = difference
                module = (
                    "" if difference <= TOLERANCE else first_divergent_module(loaded, single_inputs[row], inputs, row)
                )
    message = f"Padding changes outputs of real tokens by at most {largest:.1e}"
    advice = f"The model reads padding, first in {module}: pass the mask to every layer and to the pooling."
    return [within_bound("padding", largest, TOLERANCE, message, advice)]


def batch_independence(loaded: LoadedModel, probes: Probes) -> list[CheckResult]:
    """Outputs for inputs of one length, so that no padding is involved; then answers to requests as of a user."""
    largest, module = 0.0, ""
    for inputs in equal_length_inputs(probes):
        batched = model_outputs(loaded, inputs)
        for row in range(len(inputs.x)):
            single = inputs.select(slice(row, row + 1))
            difference = relative_difference(model_outputs(loaded, single)[0], batched[row])
            if not difference <= largest:
                largest = difference
                module = "" if difference <= TOLERANCE else first_divergent_module(loaded, single, inputs, row)
    message = f"Batch composition changes an example's output by at most {largest:.1e}"
    advice = (
        f"Outputs depend on the rest of the batch, first in {module}: in eval mode use a norm's running statistics."
    )
    result = within_bound("batch independence", largest, TOLERANCE, message, advice)
    count, changed = changed_answers(loaded, probes)
    if result.status == "ok" and changed:
        advice = f"The answer to {changed[0]!r:.60} changes in a batch: if its logits agree, check how it is decoded."
        result = count_result(
            "batch independence", "FAILS", len(changed), f"of {count} answers change in a batch", advice
        )
    return [result]


def equal_length_inputs(probes: Probes) -> list[ModelInputs]:
    batches = []
    if probes.features is not None and not probes.targets:
        batches.append(probes.features)
    if probes.ids:
        length = min(map(len, probes.ids + probes.targets))
        batches.append(probes.inputs(range(len(probes.ids)), length))
    return batches


def changed_answers(loaded: LoadedModel, probes: Probes) -> tuple[int, list[str]]:
    """The number of requests that the task accepts, and those whose answer in a batch differs from that alone."""
    task: Any = loaded.task
    short = {"num_beams": 1, "temperature": 0.0, "max_new_tokens": 12}
    decode_options = task.decode_options(**short if issubclass(task.decode_options, GenerationOptions) else {})
    accepted, single_answers = [], []
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
    task: Any = loaded.task
    if isinstance(task, Match | Embed):
        advice = "Nothing to do: a contrastive loss depends on all pairs of its batch by design."
        return [CheckResult("gradient accumulation", "note", "Not measured", advice=advice)]
    device = next(loaded.model.parameters()).device
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        full_batch = probes.batch(task, probes.example_rows)
    rows = range(len(probes.example_rows))
    if isinstance(task, Fill):
        parts = [single_row(full_batch, row) for row in rows if full_batch.positions[row].any()]
    else:
        parts = [probes.batch(task, probes.example_rows[row : row + 1]) for row in rows]
    total = task.loss(loaded.model, to_device(full_batch, device))
    losses = [task.loss(loaded.model, to_device(part, device)) for part in parts]
    loss_sum, count_sum = sum(float(loss.total) for loss in losses), sum(loss.count for loss in losses)
    error = abs(loss_sum - float(total.total)) / max(1.0, abs(loss_sum))
    message = f"{len(losses)} row losses sum to {loss_sum:.4f}, the batch loss is {float(total.total):.4f}: {error:.1e}"
    if count_sum != total.count:
        error, message = math.inf, f"The rows count {count_sum} units, the batch {total.count}"
    advice = "Sum the loss over the units that it counts, without padding: only then is accumulation one large batch."
    return [within_bound("gradient accumulation", error, SUM_TOLERANCE, message, advice)]


def single_row(batch: MaskedBatch, row: int) -> MaskedBatch:
    """One row of a masked batch: a new draw would mask other tokens."""
    only = slice(row, row + 1)
    start = int(batch.positions[:row].sum())
    targets: Tensor = batch.targets[start : start + int(batch.positions[row].sum())]
    return MaskedBatch(
        batch.ids[only], targets, batch.positions[only], None if batch.mask is None else batch.mask[only]
    )
