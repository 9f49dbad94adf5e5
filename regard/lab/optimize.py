"""How an experiment teaches, lesson after lesson with the optimisers of training, and what there is to learn from.

    w ← w - rate · step(∂loss/∂w)          matrices by Muon, all else by AdamW (regard/training/optimizer.py)

`regard train` has files, checks and a folder to keep. An experiment has only a function that makes the next loss.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import torch
from torch import Tensor

from regard.look import look
from regard.parts.heads import Model
from regard.training.optimizer import optimizers, scale_and_clip
from regard.training.schedule import decay


def learn(
    model: Model,
    lesson: Callable[[], Tensor],
    rates: Iterable[float],
    clip: float = 0.0,
    enough: float = 0.0,
    kind: str = "muon",
) -> list[float]:
    """The loss of each lesson; each is learnt at the next rate, until one is below `enough`.

    Gradients longer than `clip` are made shorter; with 0 none are.
    """
    makers = optimizers(model, weight_decay=0.0, kind=kind)
    weights, losses = list(model.parameters()), []
    for rate in rates:
        for group in (group for maker in makers for group in maker.param_groups):
            group["lr"] = rate
        loss = lesson()
        loss.backward()
        scale_and_clip(weights, 1, clip)
        for maker in makers:
            maker.step()
        model.zero_grad()
        losses.append(loss.item())
        if losses[-1] < enough:
            break
    return losses


def rates(highest: float, lessons: int) -> list[float]:
    """Rising over the first twentieth of the lessons, falling to 0 over the last half."""
    return [highest * decay(lesson, lessons, lessons // 20, 0.5) for lesson in range(lessons)]


def gradient_at_words(model: Model, lesson: Callable[[], Tensor]) -> Tensor:
    """(T,): how long the gradient is that reaches each word, as the mean over texts."""
    with look(model, gradients=True) as seen:
        loss = lesson()
    (gradient,) = torch.autograd.grad(loss, seen["body.tokens"])  # (B,T,D)
    return gradient.norm(dim=-1).mean(0)
