"""kernel: attention is kernel regression with a learnt kernel.

    Nadaraya-Watson   Σ K(x,x_i) y_i / Σ K(x,x_i)          attention, if K = exp(q·k) with q = W_Q x and k = W_K x_i
    Gaussian process  Σ K(x,x_i) v_i,  v = (K + σ²I)⁻¹ y   a mix too, but of weights that need not sum to 1

Claim (deck T, "Connection to GPs"): compare x with every stored example, mix their answers; make the matrices learnt,
and you arrive at attention. The Gaussian kernel shows it: -(x - x_i)² / 2w² is q·k for q = (x, -1/2) / w² and
k = (x_i, x_i²), but for a term of x alone, which the fraction cancels. So an attention layer with these weights is
Nadaraya-Watson (1964), and a trained layer is too, with the kernel that it has found.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from matplotlib.figure import Figure
from torch import Tensor, nn

from regard.choose import must
from regard.lab.kernel_regression import answers, layer_by_hand, process_weights
from regard.lab.optimize import learn
from regard.lab.result import Each, Finding, curves, drawing, legend_below, rows
from regard.look import look
from regard.parts.attention import CrossAttention
from regard.parts.heads import Model
from regard.parts.scoring import gaussian, kernel_average, scaled_dot

SAME, OTHER = 1e-9, 1e-2  # two curves that differ by float error, and two that differ
REACH = 3.0  # x goes from minus this to this
TOO_WIDE = 2.0  # times the width, to begin training with
BY_HAND, TRAINED = "attention, set by hand", "attention, trained"
STYLES = {"truth": "C7-", "Nadaraya-Watson": "C1o", BY_HAND: "k--", TRAINED: "C0-", "Gaussian process": "C2:"}


@dataclass(frozen=True)
class Knobs:
    examples: int = 80  # that are stored
    noise: float = 0.3  # standard deviation of what is added to their y
    width: float = 0.4  # of the kernel
    steps: int = 400  # of training, for the layer that finds its own kernel
    rate: float = 0.03  # of learning
    seed: int = 1  # of everything random

    def __post_init__(self) -> None:
        must(self, examples=(self.examples >= 3, "at least 3"), steps=(self.steps >= 1, "at least 1"))
        must(self, noise=(self.noise > 0, "above 0"), rate=(self.rate > 0, "above 0"))
        must(self, width=(self.width >= 0.1, "at least 0.1"))


QUICK = Knobs(steps=50)


def truth(x: Tensor) -> Tensor:
    return (2 * x).sin() + x / 2


def train(layer: CrossAttention, x: Tensor, y: Tensor, knobs: Knobs, each: Each) -> None:
    """Its kernel learns to tell the y of each example from those of all the others."""
    layer.value.requires_grad_(False)
    layer.out.requires_grad_(False)
    others, model = ~torch.eye(len(x), dtype=torch.bool), Model(layer, nn.Identity())
    rates = each([knobs.rate] * knobs.steps)
    learn(model, lambda: (answers(layer, x, x, y, others) - y).square().mean(), rates, kind="adamw")


def error(curve: Tensor, at: Tensor) -> float:
    return (curve - truth(at)).square().mean().sqrt().item()


def run(knobs: Knobs, each: Each) -> Finding:
    torch.manual_seed(knobs.seed)
    x = ((torch.rand(knobs.examples).double() * 2 - 1) * REACH).sort().values
    y = truth(x) + knobs.noise * torch.randn(knobs.examples).double()
    at = torch.linspace(-REACH, REACH, 201).double()
    layers = {BY_HAND: layer_by_hand(knobs.width), TRAINED: layer_by_hand(TOO_WIDE * knobs.width)}
    before = error(answers(layers[TRAINED], at, x, y), at)
    train(layers[TRAINED], x, y, knobs, each)
    told, seen = {}, {}
    for name, layer in layers.items():
        with look(layer) as seen[name]:
            told[name] = answers(layer, at, x, y).detach()

    q, k, v = (seen[TRAINED][name][0, 0] for name in ("queries", "keys", "values"))
    learnt = kernel_average(scaled_dot(q, k).exp(), v) @ layers[TRAINED].out.weight.detach().mT  # (T,3)
    far = gaussian(at[:, None], x[:, None], knobs.width)  # (T,S)
    process = process_weights(at, x, knobs.width, knobs.noise)
    regressions = {
        "Nadaraya-Watson, Gaussian kernel": kernel_average(far.exp(), y),
        "Nadaraya-Watson, exp(q·k) of the layer": learnt[:, 2],
        "Nadaraya-Watson, Cauchy kernel": kernel_average(1 / (1 - 2 * far), y),
        "Gaussian process mean": process @ y,
    }
    beside = (BY_HAND, TRAINED, BY_HAND, BY_HAND)
    apart = [(a - told[b]).abs().max().item() for a, b in zip(regressions.values(), beside, strict=True)]
    after = error(told[TRAINED], at)
    weights = {"Nadaraya-Watson": far.softmax(-1)}
    weights |= {name: one["weights"][0, 0] for name, one in seen.items()} | {"Gaussian process": process}
    return Finding(
        drawn(x, y, at, weights),
        rows(
            {"regression": regressions, "beside": beside, "they differ by": apart},
            {"error": [error(curve, at) for curve in regressions.values()]},
            {"error of the layer": [error(told[layer], at) for layer in beside]},
        ),
        says=f"A layer with the Gaussian kernel set by hand is Nadaraya-Watson to {apart[0]:.0e}, and a trained one is"
        f" Nadaraya-Watson with its own kernel exp(q·k) to {apart[1]:.0e}; training took its error from {before:.2f} to"
        f" {after:.2f}. A Cauchy kernel differs by {apart[2]:.2f}, the mean of a Gaussian process by {apart[3]:.2f}:"
        f" its weights go down to {process.min():.2f}.",
        wanted=f"equal (below {SAME:g}) where the kernel is exp(q·k), different (above {OTHER:g}) where it is not or"
        " where the weights need not sum to 1, and a kernel that is learnt comes nearer to the truth",
        holds=max(apart[:2]) < SAME and min(apart[2:]) > OTHER and after < before,
    )


def drawn(x: Tensor, y: Tensor, at: Tensor, weights: dict[str, Tensor]) -> Figure:
    """Every regression here is a mix of the examples' y, by its weights (T,S)."""
    figure, (left, right) = drawing(2, 4.2)
    left.plot(x, y, ".", color="0.6", markersize=4, label="examples")
    mixed = {name: one @ y for name, one in weights.items()}
    curves(left, at, {"truth": truth(at), **mixed}, STYLES, xlabel="x", ylabel="y")
    middle = {name: one[len(at) // 2] for name, one in weights.items()}
    curves(right, x, middle, STYLES, xlabel="x of the example", ylabel="its weight in the answer at x = 0")
    legend_below(figure, left)
    return figure
