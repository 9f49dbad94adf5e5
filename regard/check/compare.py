"""How a model is asked while it is examined, and how far apart two of its answers are.

apart(a, b) = max |a - b| / max(1, median |a|)          so that large logits may have large rounding errors
"""

from __future__ import annotations

import torch
from torch import Tensor

from regard.check.probes import Given
from regard.load import Loaded
from regard.look import look
from regard.tasks.classify import Classify
from regard.tasks.embed import Embed
from regard.tasks.match import Match
from regard.tasks.regress import Regress
from regard.tasks.translate import Translate

CLOSE = 1e-5  # what rounding may make of numbers in single precision
POOLED = (Classify, Regress, Embed)  # tasks with one answer for all tokens


@torch.inference_mode()
def outputs(loaded: Loaded, given: Given) -> Tensor:
    """(B,T,·) where every token has an answer, else (B,·)."""
    model, task = loaded.model, loaded.task
    weight = next(model.parameters())
    x, mask, target = (None if part is None else part.to(weight.device) for part in given)
    assert x is not None
    x = x.to(weight.dtype) if x.is_floating_point() else x
    if isinstance(task, Translate):
        return model.head(model.body(x, target, mask)).cpu()
    if isinstance(task, Match):
        return (model.body.image(x) if x.dim() == 4 else model.body.text(x, mask)).cpu()
    hidden = model.body(x) if mask is None else model.body(x, mask)
    return (model.head(hidden, mask) if isinstance(task, POOLED) else model.head(hidden)).cpu()


def apart(one: Tensor, other: Tensor) -> float:
    """0 of nothing."""
    if not one.numel():
        return 0.0
    one, other = one.double(), other.double()
    return float((one - other).abs().max() / one.abs().median().clamp(min=1))


def first_apart(loaded: Loaded, one: Given, other: Given, row: int = 0, upto: int | None = None) -> str:
    """The first module that makes something else of the only row of `one` than of a `row` of `other`."""
    with look(loaded.model) as alone:
        outputs(loaded, one)
    with look(loaded.model) as beside:
        outputs(loaded, other)
    for name, a in alone.items():
        b = beside.get(name)
        if b is None or a.dim() not in (2, 3) or a.dim() != b.dim() or row >= len(b):
            continue
        a, b = a[0], b[row]
        if a.dim() == 2:
            a, b = a[:upto], b[: len(a[:upto])]
        if a.shape == b.shape and not apart(a, b) <= CLOSE:
            return name
    return "the output"
