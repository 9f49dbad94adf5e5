"""Optimisers, and the moving average of the weights.

    SGD       step = g, with momentum                                        Robbins & Monro 1951, Nesterov 1983
    AdamW     step = m / (√v + eps), each number by its own history          Loshchilov & Hutter 2019
    Muon      step = UVᵀ, where UΣVᵀ is the momentum of a matrix             Jordan et al. 2024
    average ← average + (1 - decay) (weights - average)                      Polyak & Juditsky 1992

Muon makes all directions of a matrix learn at the same speed. It is for the matrices inside the blocks; embeddings,
output layers, gains and biases stay with AdamW. Weight decay pulls at matrices only: a gain or a bias has no reason to
be near zero.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import SGD, AdamW, Optimizer

from regard.parts.heads import Model

EPS = 1e-7


def optimizers(model: Model, weight_decay: float, kind: str) -> list[Optimizer]:
    weights = list(model.parameters())
    if kind == "sgd":
        return [SGD(grouped(weights, weight_decay), momentum=0.9, nesterov=True)]
    inner = [w for w in within_layers(model.body) if w.dim() == 2 and min(w.shape) > 1] if kind == "muon" else []
    mine = {id(w) for w in inner}
    rest = grouped([w for w in weights if id(w) not in mine], weight_decay)
    adamw = AdamW(rest, betas=(0.9, 0.98), eps=1e-9, fused=True)
    return [adamw, Muon(inner, weight_decay)] if inner else [adamw]


def within_layers(body: nn.Module) -> list[nn.Parameter]:
    """What multiplies vectors: neither embeddings and positions, which are looked up, nor the head."""
    return [w for m in body.modules() if isinstance(m, nn.Linear | nn.RNNBase) for w in m.parameters(recurse=False)]


def grouped(weights: list[nn.Parameter], weight_decay: float) -> list[dict[str, Any]]:
    flat = [w for w in weights if w.dim() < 2 or min(w.shape[:2]) == 1]
    alone = {id(w) for w in flat}
    return [
        {"params": [w for w in weights if id(w) not in alone], "weight_decay": weight_decay},
        {"params": flat, "weight_decay": 0.0},
    ]


class Muon(Optimizer):
    """Matrices of one shape are orthogonalised together. A step is as long as AdamW's, so that both share a rate."""

    def __init__(self, weights: list[nn.Parameter], weight_decay: float = 0.0, momentum: float = 0.95):
        super().__init__(weights, {"lr": 0.0, "weight_decay": weight_decay, "momentum": momentum})

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            shapes: dict[torch.Size, list[Tensor]] = {}
            for weight in (w for w in group["params"] if w.grad is not None):
                shapes.setdefault(weight.shape, []).append(weight)
            for shape, weights in shapes.items():
                grads: list[Any] = [w.grad for w in weights]
                means = [self.state[w].setdefault("momentum", torch.zeros_like(w)) for w in weights]
                torch._foreach_lerp_(means, grads, 1 - group["momentum"])
                ahead = torch._foreach_lerp(grads, means, group["momentum"])  # Nesterov
                steps = orthogonal(torch.stack(ahead)).unbind()
                torch._foreach_mul_(weights, 1 - group["lr"] * group["weight_decay"])
                torch._foreach_add_(weights, steps, alpha=-group["lr"] * 0.2 * max(shape) ** 0.5)


def orthogonal(matrices: Tensor, times: int = 5) -> Tensor:
    """About UVᵀ of each matrix UΣVᵀ: a polynomial that pushes every singular value towards 1 (Newton-Schulz)."""
    x = matrices / (torch.linalg.matrix_norm(matrices, keepdim=True) + EPS)
    tall = x.size(-2) > x.size(-1)
    x = x.mT if tall else x
    for _ in range(times):
        square = x @ x.mT
        x = 3.4445 * x + (-4.7750 * square + 2.0315 * square @ square) @ x
    return x.mT if tall else x


class Average:
    """A moving average of all weights, shorter at first so that it forgets the random start."""

    def __init__(self, model: nn.Module, decay: float):
        self.decay = decay
        self.weights = [w.detach() for w in model.parameters()]
        self.means = [w.clone() for w in self.weights]

    @torch.no_grad()
    def update(self, step: int) -> None:
        torch._foreach_lerp_(self.means, self.weights, 1 - min(self.decay, (1 + step) / (10 + step)))

    @contextmanager
    @torch.no_grad()
    def in_place(self) -> Iterator[None]:
        """The model holds the average while this lasts."""
        held = [w.clone() for w in self.weights]
        torch._foreach_copy_(self.weights, self.means)
        try:
            yield
        finally:
            torch._foreach_copy_(self.weights, held)


@torch.no_grad()
def scale_and_clip(weights: list[nn.Parameter], count: int, clip: float) -> Tensor:
    """Turn summed gradients into those of the mean over `count`, no longer together than `clip`; the length before."""
    grads = [w.grad for w in weights if w.grad is not None]
    norm = torch.linalg.vector_norm(torch.stack(torch._foreach_norm(grads))) / count
    factor = (clip / (norm + 1e-6)).clamp(max=1.0) if clip else torch.ones_like(norm)
    torch._foreach_mul_(grads, factor / count)
    return norm
