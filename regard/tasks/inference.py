"""Running a model over many examples, in batches of similar length."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

import numpy as np
import torch
from torch import Tensor

from regard.data.batches import Ints, batched, split_by_budget, to_device
from regard.data.rows import R
from regard.modalities.protocols import EncodedInputs, Inputs, Preprocessor, Target
from regard.parts.heads import Model, check_finite
from regard.tasks.shared_batches import map_batches

CHUNK = 256  # requests that are read at once
BUDGET = 8192  # tokens of a batch without gradients


def length_batches(lengths: Ints, budget: int = BUDGET) -> list[Ints]:
    """The numbers of all rows, in batches of similar length and at most `budget` tokens."""
    order = np.argsort(lengths, kind="stable")
    return [order[a:b] for a, b in split_by_budget(lengths[order], budget)]


@torch.inference_mode()
def map_inputs(
    model: Model, preprocessor: Preprocessor, inputs: EncodedInputs, function: Callable[[Inputs], Tensor]
) -> Tensor:
    """(N,·) of all inputs, in fp32 on the CPU; NaN and infinities are refused."""
    device, batches = next(model.parameters()).device, length_batches(inputs.lengths[:, 0])

    def outputs(rows: Ints) -> Tensor:
        x = function(to_device(preprocessor.collate(inputs, rows, training=False), device))
        check_finite(x.abs())
        return x.float().cpu()

    order = np.argsort(np.concatenate(batches), kind="stable")
    return torch.cat([*map_batches(outputs, batches)])[torch.from_numpy(order)]


def map_requests(
    model: Model, preprocessor: Preprocessor, target: Target, function: Callable[[Inputs], Tensor], raw: Iterable[str]
) -> Iterator[Tensor]:
    """The outputs of each request."""
    for chunk in batched(raw, CHUNK):
        rows = [preprocessor.parse(text, target) for text in chunk]
        yield from map_inputs(model, preprocessor, preprocessor.encode(rows, context_of(model)), function)


def top_scores(scores: Tensor, count: int) -> list[tuple[float, int]]:
    """The highest of (N,) scores, at most `count`, each with its index."""
    best = scores.topk(min(count, len(scores)))
    return [*zip(best.values.tolist(), best.indices.tolist(), strict=True)]


def numbered_rows(parse: Callable[[str], Sequence[R]], raw: str, number: int) -> list[R]:
    """The rows of a request; messages about them begin with its number: input:3."""
    try:
        return [row if row.file else row._replace(file="input", line=number) for row in parse(raw)]
    except ValueError as error:
        raise ValueError(f"input:{number}: {error}") from None


def context_of(model: Model) -> int:
    """The context of the body; 0 if its input has a fixed size."""
    return int(getattr(model.body.config, "context", 0))
