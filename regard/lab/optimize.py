"""A short training loop for experiments, with the optimizers of `regard train`.

    w ← w - lr · step(∂loss/∂w)          matrices by Muon, all else by AdamW (regard/training/optimizer.py)

`regard train` has files, evaluations and a run folder. An experiment has only a function that returns the loss of the
next batch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import torch
from torch import Tensor

from regard.look import look
from regard.parts.heads import Model
from regard.training.optimizer import build_optimizers, scale_and_clip
from regard.training.schedule import wsd


def optimize(
    model: Model,
    batch_loss: Callable[[], Tensor],
    lrs: Iterable[float],
    grad_clip: float = 0.0,
    stop_below: float = 0.0,
    kind: str = "muon",
) -> list[float]:
    """Train one step per learning rate, until a loss is below `stop_below`; return the losses.

    `grad_clip` is the maximum gradient norm; 0 = no clipping.
    """
    optims = build_optimizers(model, weight_decay=0.0, kind=kind)
    weights, losses = list(model.parameters()), []
    for lr in lrs:
        for group in (group for optim in optims for group in optim.param_groups):
            group["lr"] = lr
        loss = batch_loss()
        loss.backward()
        scale_and_clip(weights, 1, grad_clip)
        for optim in optims:
            optim.step()
        model.zero_grad()
        losses.append(loss.item())
        if losses[-1] < stop_below:
            break
    return losses


def lr_schedule(peak: float, steps: int) -> list[float]:
    """Linear warm-up over the first 5 % of the steps, linear decay to 0 over the last half."""
    return [peak * wsd(step, steps, steps // 20, 0.5) for step in range(steps)]


def token_gradient_norms(model: Model, batch_loss: Callable[[], Tensor]) -> Tensor:
    """(T,): the gradient norm at each token's embedding, mean over the batch."""
    with look(model, gradients=True) as activations:
        loss = batch_loss()
    (gradient,) = torch.autograd.grad(loss, activations["body.tokens"])  # (B,T,D)
    return gradient.norm(dim=-1).mean(0)
