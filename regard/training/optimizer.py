"""Optimisers, and the exponential moving average (EMA) of the weights.

    SGD       step = g, with Nesterov momentum                               Robbins & Monro 1951, Nesterov 1983
    AdamW     step = m / (√v + eps)                                          Loshchilov & Hutter 2019
    Muon      step = UVᵀ, where UΣVᵀ is the momentum of a matrix             Jordan et al. 2024
    EMA       average ← average + (1 - decay) (weights - average)            Polyak & Juditsky 1992

Muon equalises the step of all singular directions of a matrix. It trains the matrices inside the blocks; AdamW trains
embeddings, output layers, gains and biases. Weight decay applies to matrices only, not to gains and biases.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext

import torch
from torch import Tensor, nn
from torch.optim import SGD, AdamW, Optimizer

from regard.parts.heads import Model
from regard.validate import check_choice

EPS = 1e-7
Orthogonalize = Callable[[Tensor, Tensor], Tensor]  # of stacked weights (N,R,...), or shards of them, and one of these
HIDDEN_LAYERS = nn.Linear | nn.Conv1d | nn.Conv2d | nn.RNNBase  # no embeddings, positions or head
MODULE = re.compile(r"body(?:\.\w+)*?\.\d+(?=\.)|body\.\w+|\w+")  # up to the number of a layer, if it has one


def local(tensors: Iterable[Tensor]) -> list[Tensor]:
    """The parts of tensors that this rank holds: its shards of those that are sharded, all of the others."""
    return [tensor.to_local() if hasattr(tensor, "to_local") else tensor for tensor in tensors]


def build_optimizers(
    model: Model, weight_decay: float, kind: str, layer_decay: float = 1.0, orthogonalize: Orthogonalize | None = None
) -> list[Optimizer]:
    """Optimisers of all weights that require a gradient. `orthogonalize` divides Muon's work among ranks."""
    lr_scales = {id(w): layer_decay**depth for w, depth in layers_above(model) if w.requires_grad}
    weights = [w for w in model.parameters() if w.requires_grad]
    if kind == "sgd":
        return [SGD(param_groups(weights, weight_decay, lr_scales), momentum=0.9, nesterov=True)]
    layers = [m for m in model.body.modules() if isinstance(m, HIDDEN_LAYERS)] if kind == "muon" else []
    candidates = [w for m in layers for w in m.parameters(recurse=False) if w.requires_grad]
    matrices = [w for w in candidates if w.dim() > 1 and min(w.flatten(1).shape) > 1]
    ids = {id(w) for w in matrices}
    rest = param_groups([w for w in weights if id(w) not in ids], weight_decay, lr_scales)
    adamw = AdamW(rest, betas=(0.9, 0.98), eps=1e-9, fused=True)
    if not matrices:
        return [adamw]
    return [adamw, Muon(group_by_lr_scale(matrices, lr_scales), weight_decay, orthogonalize=orthogonalize)]


def layers_above(model: Model) -> list[tuple[nn.Parameter, int]]:
    """For each weight the number of layers above it: none for the head, all of them for the embeddings.

    Layers are the numbered modules, body.image.blocks.3; the module that holds them, body.image, is a tower.
    """
    names = [name for name, _ in model.body.named_parameters(prefix="body")]
    layered = {name: match for name in names if (match := re.match(r"(.+?)\.\w+\.(\d+)\.", name))}
    num_layers: dict[str, int] = {}
    for tower, number in (match.groups() for match in layered.values()):
        num_layers[tower] = max(num_layers.get(tower, 0), int(number) + 1)
    passed_towers: set[str] = set()  # towers whose layers have come; what follows stands above them
    above = {}
    for name in names:
        tower = next((prefix for prefix in num_layers if name.startswith(f"{prefix}.")), "")
        if name in layered:
            passed_towers.add(tower)
            above[name] = num_layers[tower] - int(layered[name][2])
        else:
            above[name] = 1 if tower in passed_towers or not tower else num_layers[tower] + 1
    return [(weight, above.get(name, 0)) for name, weight in model.named_parameters()]


def group_by_lr_scale(weights: list[nn.Parameter], lr_scales: dict[int, float]) -> list[dict[str, object]]:
    """Parameter groups of equal factor on the learning rate, the largest first."""
    scales = sorted({lr_scales[id(w)] for w in weights}, reverse=True)
    return [{"params": [w for w in weights if lr_scales[id(w)] == scale], "lr_scale": scale} for scale in scales]


def param_groups(
    weights: list[nn.Parameter], weight_decay: float, lr_scales: dict[int, float]
) -> list[dict[str, object]]:
    groups = []
    for is_matrix, decay in (True, weight_decay), (False, 0.0):
        subset = [w for w in weights if (w.dim() > 1 and min(w.shape[:2]) > 1) == is_matrix]
        groups += [{**group, "weight_decay": decay} for group in group_by_lr_scale(subset, lr_scales)]
    return groups


def freeze(model: Model, names: Sequence[str]) -> list[str]:
    """Freeze the weights of these names, and all weights below them: `tokens`, `blocks.0`, `body` ..."""
    all_names = [name for name, _ in model.named_parameters()]
    frozen = []
    for prefix in names:
        roots = {prefix, f"body.{prefix}"}
        matches = [name for name in all_names if any(name == root or name.startswith(f"{root}.") for root in roots)]
        if not matches:
            modules = (re.match(r"body\.\w+(\.\d+)?", name) for name in all_names)
            known = {"body", *(match[0].removeprefix("body.") for match in modules if match)}
            check_choice("module to freeze", prefix, sorted(known))
        frozen += matches
    if set(frozen) == set(all_names):
        raise ValueError(f"--freeze {' '.join(names)} leaves no weights to train: freeze fewer modules")
    for name in frozen:
        model.get_parameter(name).requires_grad_(False)
    return frozen


class Muon(Optimizer):
    """Matrices of one shape are orthogonalised together. The step has AdamW's RMS, so both share a learning rate."""

    def __init__(
        self,
        weights: list[dict[str, object]],
        weight_decay: float = 0.0,
        momentum: float = 0.95,
        orthogonalize: Orthogonalize | None = None,
    ):
        super().__init__(weights, {"lr": 0.0, "weight_decay": weight_decay, "momentum": momentum})
        self.orthogonalize = orthogonalize or (lambda stacked, weight: orthogonalize_stacked(stacked))

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            shapes: dict[torch.Size, list[Tensor]] = {}
            for weight in (w for w in group["params"] if w.grad is not None):
                shapes.setdefault(weight.shape, []).append(weight)
            for weights in shapes.values():
                grads = local(w.grad for w in weights if w.grad is not None)
                momenta = local(self.momentum(w) for w in weights)
                torch._foreach_lerp_(momenta, grads, 1 - group["momentum"])
                nesterov = torch._foreach_lerp(grads, momenta, group["momentum"])
                steps = self.orthogonalize(torch.stack(nesterov), weights[0]).unbind()
                rows, columns = weights[0].size(0), weights[0].shape[1:].numel()
                own_weights = local(weights)
                torch._foreach_mul_(own_weights, 1 - group["lr"] * group["weight_decay"])
                torch._foreach_add_(own_weights, steps, alpha=-group["lr"] * 0.2 * max(rows, columns) ** 0.5)

    def momentum(self, weight: Tensor) -> Tensor:
        state: dict[str, Tensor] = self.state[weight]
        if "momentum" not in state:
            state["momentum"] = torch.zeros_like(weight)
        return state["momentum"]


def orthogonalize_stacked(stacked: Tensor) -> Tensor:
    """Each weight of (N,R,...); a convolution multiplies each receptive field by one matrix."""
    return orthogonalize(stacked.flatten(2)).view_as(stacked)


def orthogonalize(matrices: Tensor, iterations: int = 5) -> Tensor:
    """Approximately UVᵀ of each matrix UΣVᵀ: Newton-Schulz iterations push every singular value towards 1."""
    x = matrices / (torch.linalg.matrix_norm(matrices, keepdim=True) + EPS)
    tall = x.size(-2) > x.size(-1)
    x = x.mT if tall else x
    for _ in range(iterations):
        gram = x @ x.mT
        x = 3.4445 * x + (-4.7750 * gram + 2.0315 * gram @ gram) @ x
    return x.mT if tall else x


class EMA:
    """Exponential moving average of all weights; the decay starts small, so that the average forgets the random
    initialisation."""

    def __init__(self, model: nn.Module, decay: float, lock: AbstractContextManager[object] | None = None):
        self.decay = decay
        self.weights = [w.detach() for w in model.parameters()]
        self.means = [w.clone() for w in self.weights]  # sharded as the weights are
        self.lock = lock or nullcontext()  # held while weights and means are swapped
        self.swapped = False

    @torch.no_grad()
    def update(self, step: int) -> None:
        torch._foreach_lerp_(local(self.means), local(self.weights), 1 - min(self.decay, (1 + step) / (10 + step)))

    @contextmanager
    def average_parameters(self) -> Iterator[None]:
        """Within the context the model holds the averages, and `means` the weights."""
        self.swap()
        try:
            yield
        finally:
            self.swap()

    @torch.no_grad()
    def swap(self) -> None:
        with self.lock:
            for weight, mean in zip(local(self.weights), local(self.means), strict=True):
                copy = weight.clone()
                weight.copy_(mean)
                mean.copy_(copy)
            self.swapped = not self.swapped


@torch.no_grad()
def scale_and_clip(
    weights: list[nn.Parameter], count: int, max_norm: float, norms: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Divide summed gradients by `count`, and clip their global norm to `max_norm`, unless it is 0. Returns the norms
    before clipping: the global one, and (N,) one for each weight that has a gradient. Of sharded gradients no rank can
    compute the `norms` alone."""
    grads = local(w.grad for w in weights if w.grad is not None)
    norms = torch.stack(torch._foreach_norm(grads)) if norms is None else norms
    total_norm = torch.linalg.vector_norm(norms) / count
    factor = (max_norm / (total_norm + 1e-6)).clamp(max=1.0) if max_norm else torch.ones_like(total_norm)
    torch._foreach_mul_(grads, factor / count)
    return total_norm, norms / count


def module_of(name: str) -> str:
    """The module of a weight: body.tokens, body.blocks.0, head ..."""
    return str(MODULE.findall(name)[0])


def norms_by_module(modules: Iterable[str], norms: Iterable[float]) -> dict[str, float]:
    """The gradient norm of each module, from those of its weights."""
    squares: dict[str, float] = {}
    for module, norm in zip(modules, norms, strict=True):
        squares[module] = squares.get(module, 0.0) + norm**2
    return {module: math.sqrt(square) for module, square in squares.items()}
