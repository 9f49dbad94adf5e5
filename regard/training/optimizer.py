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

import math
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import SGD, AdamW, Optimizer

from regard.parts.heads import Model
from regard.validate import check_choice

EPS = 1e-7
PART = re.compile(r"body(?:\.\w+)*?\.\d+(?=\.)|body\.\w+|\w+")  # up to the number of a layer, if there is one


def optimizers(model: Model, weight_decay: float, kind: str, layer_decay: float = 1.0) -> list[Optimizer]:
    """Of the weights that learn; a frozen one needs none."""
    shares = {id(w): layer_decay**height for w, height in heights(model) if w.requires_grad}
    weights = [w for w in model.parameters() if w.requires_grad]
    if kind == "sgd":
        return [SGD(grouped(weights, weight_decay, shares), momentum=0.9, nesterov=True)]
    within = within_layers(model.body) if kind == "muon" else []
    inner = [w for w in within if w.requires_grad and w.dim() > 1 and min(w.flatten(1).shape) > 1]
    mine = {id(w) for w in inner}
    rest = grouped([w for w in weights if id(w) not in mine], weight_decay, shares)
    adamw = AdamW(rest, betas=(0.9, 0.98), eps=1e-9, fused=True)
    return [adamw, Muon(split(inner, shares), weight_decay)] if inner else [adamw]


def within_layers(body: nn.Module) -> list[nn.Parameter]:
    """What multiplies vectors: neither embeddings and positions, which are looked up, nor the head."""
    kinds = nn.Linear | nn.Conv1d | nn.Conv2d | nn.RNNBase
    return [w for m in body.modules() if isinstance(m, kinds) for w in m.parameters(recurse=False)]


def heights(model: Model) -> list[tuple[nn.Parameter, int]]:
    """How many layers stand above each weight: none above the head, all above what comes before the first of them.

    Layers are what is numbered, body.image.blocks.3; what holds them, body.image, is a tower of its own.
    """
    names = [name for name, _ in model.body.named_parameters(prefix="body")]
    numbered = {name: found for name in names if (found := re.match(r"(.+?)\.\w+\.(\d+)\.", name))}
    layers: dict[str, int] = {}
    for tower, number in (found.groups() for found in numbered.values()):
        layers[tower] = max(layers.get(tower, 0), int(number) + 1)
    begun: set[str] = set()
    above = {}
    for name in names:
        tower = next((one for one in layers if name.startswith(f"{one}.")), "")
        if name in numbered:
            begun.add(tower)
            above[name] = layers[tower] - int(numbered[name][2])
        else:
            above[name] = 1 if tower in begun or not tower else layers[tower] + 1
    return [(weight, above.get(name, 0)) for name, weight in model.named_parameters()]


def split(weights: list[nn.Parameter], shares: dict[int, float]) -> list[dict[str, Any]]:
    """Groups that learn at the same share of the rate, the fastest first."""
    every = sorted({shares[id(w)] for w in weights}, reverse=True)
    return [{"params": [w for w in weights if shares[id(w)] == share], "times": share} for share in every]


def grouped(weights: list[nn.Parameter], weight_decay: float, shares: dict[int, float]) -> list[dict[str, Any]]:
    flat = [w for w in weights if w.dim() < 2 or min(w.shape[:2]) == 1]
    alone = {id(w) for w in flat}
    pulled = [w for w in weights if id(w) not in alone]
    return [
        *({**group, "weight_decay": weight_decay} for group in split(pulled, shares)),
        *({**group, "weight_decay": 0.0} for group in split(flat, shares)),
    ]


def freeze(model: Model, names: Sequence[str]) -> list[str]:
    """Weights that stay as they are: that of a name, or all that stand under it. `tokens`, `blocks.0`, `body` ..."""
    every = [name for name, _ in model.named_parameters()]
    frozen = []
    for wanted in names:
        whole = {wanted, f"body.{wanted}"}
        found = [name for name in every if any(name == one or name.startswith(f"{one}.") for one in whole)]
        if not found:
            parts = (re.match(r"body\.\w+(\.\d+)?", name) for name in every)
            roots = {part[0].removeprefix("body.") for part in parts if part}
            check_choice("part to freeze", wanted, sorted({"body", *roots}))
        frozen += found
    if set(frozen) == set(every):
        raise ValueError(f"--freeze {' '.join(names)} leaves nothing to learn")
    for name in frozen:
        model.get_parameter(name).requires_grad_(False)
    return frozen


class Muon(Optimizer):
    """Matrices of one shape are orthogonalised together. A step is as long as AdamW's, so that both share a rate."""

    def __init__(self, weights: list[Any], weight_decay: float = 0.0, momentum: float = 0.95):
        super().__init__(weights, {"lr": 0.0, "weight_decay": weight_decay, "momentum": momentum})

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            shapes: dict[torch.Size, list[Tensor]] = {}
            for weight in (w for w in group["params"] if w.grad is not None):
                shapes.setdefault(weight.shape, []).append(weight)
            for weights in shapes.values():
                grads: list[Any] = [w.grad for w in weights]
                means = [self.state[w].setdefault("momentum", torch.zeros_like(w)) for w in weights]
                torch._foreach_lerp_(means, grads, 1 - group["momentum"])
                ahead = torch._foreach_lerp(grads, means, group["momentum"])  # Nesterov
                stacked = torch.stack(ahead)
                matrices = stacked.flatten(2)  # a convolution multiplies all numbers under its square by a matrix
                steps = orthogonal(matrices).view_as(stacked).unbind()
                torch._foreach_mul_(weights, 1 - group["lr"] * group["weight_decay"])
                torch._foreach_add_(weights, steps, alpha=-group["lr"] * 0.2 * max(matrices.shape[1:]) ** 0.5)


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

    def __init__(self, model: nn.Module, decay: float, lock: Any = None):
        self.decay = decay
        self.weights = [w.detach() for w in model.parameters()]
        self.means = [w.clone() for w in self.weights]
        self.lock = lock or nullcontext()  # held while weights and means change places
        self.swapped = False

    @torch.no_grad()
    def update(self, step: int) -> None:
        torch._foreach_lerp_(self.means, self.weights, 1 - min(self.decay, (1 + step) / (10 + step)))

    @contextmanager
    def in_place(self) -> Iterator[None]:
        """The model holds the average while this lasts, and the average the weights."""
        self.swap()
        try:
            yield
        finally:
            self.swap()

    @torch.no_grad()
    def swap(self) -> None:
        with self.lock:
            for weight, mean in zip(self.weights, self.means, strict=True):
                held = weight.clone()
                weight.copy_(mean)
                mean.copy_(held)
            self.swapped = not self.swapped


@torch.no_grad()
def scale_and_clip(weights: list[nn.Parameter], count: int, clip: float) -> tuple[Tensor, Tensor]:
    """Turn summed gradients into those of the mean over `count`, no longer together than `clip`; how long they were
    before, together and each, (N,), of those that there are."""
    grads = [w.grad for w in weights if w.grad is not None]
    each = torch.stack(torch._foreach_norm(grads))
    norm = torch.linalg.vector_norm(each) / count
    factor = (clip / (norm + 1e-6)).clamp(max=1.0) if clip else torch.ones_like(norm)
    torch._foreach_mul_(grads, factor / count)
    return norm, each / count


def part_of(name: str) -> str:
    """The part of a model that a weight is of: body.tokens, body.blocks.0, head ..."""
    return str(PART.findall(name)[0])


def by_parts(parts: Iterable[str], norms: Iterable[float]) -> dict[str, float]:
    """The length of the gradient in each part, from those of its weights."""
    squares: dict[str, float] = {}
    for part, norm in zip(parts, norms, strict=True):
        squares[part] = squares.get(part, 0.0) + norm**2
    return {part: math.sqrt(square) for part, square in squares.items()}
