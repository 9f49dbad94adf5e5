"""Causality and KV cache: later tokens change no earlier output, and decoding with a cache equals the full forward.

causality   outputs before t stay the same, whatever the tokens from t on are
cache       head(body(x_t, cache)) = head(body(x))_t, for chunks of one or several tokens, and with reordered rows
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import isnan

import torch
from torch import Tensor

from regard.check.check_result import CheckResult, within_bound
from regard.check.compare import TOLERANCE, Largest, model_outputs, on_device, relative_difference, with_body
from regard.check.probes import Probes, map_tensors, select
from regard.loaded_model import LoadedModel
from regard.parts.cache import select as select_rows
from regard.tasks.task import Batch, Task

MAX_STEPS = 12  # tokens that are decoded with a cache


def is_causal(task: Task) -> bool:
    return task.generates or "dynamics" in task.structures


def is_seq2seq(task: Task) -> bool:
    return "encoder-decoder" in task.structures


def causal_batch(loaded: LoadedModel, probes: Probes) -> tuple[Batch, int]:
    """All rows and the length of their sequences. Padding after a row is as good as tokens, so there is no mask of what
    a causal model reads."""
    batch = probes.forward.batch()
    if not is_seq2seq(loaded.task):
        batch = batch._replace(inputs=batch.inputs._replace(mask=None))
    return batch, model_outputs(loaded, batch).size(1)


def map_sequence(task: Task, batch: Batch, length: int, function: Callable[[Tensor], Tensor]) -> Batch:
    """Apply a function to the tensors (B,length,...) of a batch; an encoder's inputs stay as they are."""
    changed = map_tensors(batch, lambda x: function(x) if x.dim() > 1 and x.size(1) == length else x)
    return changed._replace(inputs=batch.inputs) if is_seq2seq(task) else changed


def causality(loaded: LoadedModel, probes: Probes) -> list[CheckResult]:
    """Replace all tokens from t on by those of another row in reverse order, for several t."""
    if not is_causal(loaded.task):
        return []
    batch, T = causal_batch(loaded, probes)
    full, largest = model_outputs(loaded, batch), Largest(loaded)
    for t in sorted({1, 2, T // 2, T - 1} & {*range(1, T)}):

        def replace_from(x: Tensor, t: int = t) -> Tensor:
            return torch.cat((x[:, :t], x.roll(1, 0).flip(1)[:, t:]), 1)

        altered = map_sequence(loaded.task, batch, T, replace_from)
        outputs = model_outputs(loaded, altered)
        for row in range(len(full)):
            difference = relative_difference(full[row, :t], outputs[row, :t])
            largest.update(difference, TOLERANCE, select(batch, slice(row, row + 1)), altered, row, t)
    message = f"Later tokens change earlier outputs by at most {largest.value:.1e}"
    advice = f"The model sees future tokens, first in {largest.module}: without a causal mask its loss means nothing."
    return [within_bound("causality", largest.value, TOLERANCE, message, advice)]


def cache(loaded: LoadedModel, probes: Probes) -> list[CheckResult]:
    if not is_causal(loaded.task):
        return []
    batch, T = causal_batch(loaded, probes)
    length = min(MAX_STEPS, T)
    batch = on_device(loaded.model, map_sequence(loaded.task, batch, T, lambda x: x[:, :length]))
    full = model_outputs(loaded, batch)
    ways = {
        "Token by token": ([1] * length, False),
        "In chunks": ([size for size in (length // 2, 1, length - length // 2 - 1) if size > 0], False),
        "With reordered rows": ([1] * length, True),
    }
    outputs = {name: decode_in_chunks(loaded, batch, sizes, reorder) for name, (sizes, reorder) in ways.items()}
    differences = {name: relative_difference(full, output) for name, output in outputs.items()}
    largest = max(differences, key=lambda name: float("inf") if isnan(differences[name]) else differences[name])
    message = f"{largest}, decoding differs from the full forward by {differences[largest]:.1e}"
    advice = "Decoding differs from training: check the position offset, and what the cache stores."
    return [within_bound("cache", differences[largest], TOLERANCE, message, advice)]


@torch.inference_mode()
def decode_in_chunks(loaded: LoadedModel, batch: Batch, sizes: Sequence[int], reorder_rows: bool = False) -> Tensor:
    """The outputs of decoding with a cache, in chunks of these sizes. `reorder_rows` reverses the rows halfway, as a
    beam search reorders its beams."""
    task, body = loaded.task, loaded.model.body
    caches = body.decoder_caches(*batch.inputs.arguments) if is_seq2seq(task) else body.caches()

    def decode(*inputs: Tensor) -> Tensor:
        hidden: Tensor = body.decode(inputs[1], cache=caches) if is_seq2seq(task) else body(*inputs, cache=caches)
        return hidden

    model, x = with_body(loaded.model, decode), batch.inputs.x
    reversed_rows = torch.arange(len(x), device=x.device).flip(0)
    chunks: list[Tensor] = []
    start, length = 0, sum(sizes)
    for number, size in enumerate(sizes):
        part = map_sequence(task, batch, length, lambda x, a=start, b=start + size: x[:, a:b])  # type: ignore[misc]
        if reorder_rows and number == len(sizes) // 2:
            select_rows(caches, reversed_rows, reversed_rows)
        reordered = reorder_rows and number >= len(sizes) // 2
        out = task.outputs(model, map_tensors(part, lambda x: x.flip(0)) if reordered else part)
        chunks.append(out.flip(0) if reordered else out)
        start += size
    return torch.cat(chunks, 1).cpu()
