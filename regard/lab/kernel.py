"""kernel: attention is kernel regression with a learnt kernel.

    Nadaraya-Watson   Σ K(x,x_i) y_i / Σ K(x,x_i)          attention, if K = exp(q·k) with q = W_Q x and k = W_K x_i
    Gaussian process  Σ K(x,x_i) v_i,  v = (K + σ²I)⁻¹ y   a mix too, but of weights that need not sum to 1

Claim (deck T, "Connection to GPs"): compare x with every stored example, mix their answers; make the matrices learnt,
and you arrive at attention. The Gaussian kernel shows it: -(x - x_i)² / 2w² is q·k for q = (x, -1/2) / w² and
k = (x_i, x_i²), but for a term of x alone, which the fraction cancels. So an attention layer with these weights is
Nadaraya-Watson (1964), and a trained layer is too, with the kernel that it has found.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from matplotlib.figure import Figure
from torch import Tensor, nn

from regard.choose import must
from regard.lab.finding import Each, Finding, drawing, legend_below
from regard.lab.learning import learn
from regard.look import look
from regard.parts.attention import CrossAttention
from regard.parts.heads import Model
from regard.parts.scoring import gaussian, kernel_average, scaled_dot

SAME, OTHER = 1e-9, 1e-2  # two curves that differ by float error, and two that differ
REACH = 3.0  # x goes from minus this to this
TOO_WIDE = 2.0  # times the width, to begin training with
BY_HAND, TRAINED = "attention, set by hand", "attention, trained"


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


def layer_by_hand(width: float) -> CrossAttention:
    """The Gaussian kernel as matrices: a query is (x, 1, 0), an example (x, x², y), and its value is (0, 0, y)."""
    layer = CrossAttention(3, 1, bias=False).double()
    larger = math.sqrt(3) / width**2  # attention divides by √E
    rows = torch.tensor([[larger, -larger / 2, 0], [1, 1, 0], [0, 0, 1], [1, 1, 1]], dtype=torch.float64)
    names = ("query.weight", "key.weight", "value.weight", "out.weight")
    layer.load_state_dict(dict(zip(names, rows.diag_embed(), strict=True)))
    return layer


def answers(layer: CrossAttention, at: Tensor, x: Tensor, y: Tensor, mask: Tensor | None = None) -> Tensor:
    query = torch.stack((at, torch.ones_like(at), torch.zeros_like(at)), -1)  # (T,3)
    example = torch.stack((x, x.square(), y), -1)  # (S,3)
    return layer(query[None], example[None], mask)[0, :, 2]  # (T,)


def train(layer: CrossAttention, x: Tensor, y: Tensor, knobs: Knobs, each: Each) -> None:
    """Its kernel learns to tell the y of each example from those of all the others."""
    layer.value.requires_grad_(False)
    layer.out.requires_grad_(False)
    others = ~torch.eye(len(x), dtype=torch.bool)

    def lesson() -> Tensor:
        return (answers(layer, x, x, y, others) - y).square().mean()

    learn(Model(layer, nn.Identity()), lesson, each([knobs.rate] * knobs.steps), kind="adamw")


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
    among = gaussian(x[:, None], x[:, None], knobs.width).exp() + knobs.noise**2 * torch.eye(len(x)).double()
    process = far.exp() @ torch.linalg.inv(among)  # (T,S)
    rows = [
        ("Nadaraya-Watson, Gaussian kernel", BY_HAND, kernel_average(far.exp(), y)),
        ("Nadaraya-Watson, exp(q·k) of the layer", TRAINED, learnt[:, 2]),
        ("Nadaraya-Watson, Cauchy kernel", BY_HAND, kernel_average(1 / (1 - 2 * far), y)),
        ("Gaussian process mean", BY_HAND, process @ y),
    ]
    apart = [(curve - told[layer]).abs().max().item() for _, layer, curve in rows]
    after = error(told[TRAINED], at)
    lines = [  # name, style, width, curve, weights
        ("Nadaraya-Watson", "C1-", 5.0, rows[0][2], far.softmax(-1)),
        (BY_HAND, "k--", 1.2, told[BY_HAND], seen[BY_HAND]["weights"][0, 0]),
        (TRAINED, "C0-", 1.5, told[TRAINED], seen[TRAINED]["weights"][0, 0]),
        ("Gaussian process", "C2:", 2.0, rows[3][2], process),
    ]
    return Finding(
        drawn(x, y, at, lines),
        [
            {"regression": name, "beside": layer, "they differ by": difference, "error": error(curve, at)}
            | {"error of the layer": error(told[layer], at)}
            for (name, layer, curve), difference in zip(rows, apart, strict=True)
        ],
        says=f"A layer with the Gaussian kernel set by hand is Nadaraya-Watson to {apart[0]:.0e}, and a trained one is"
        f" Nadaraya-Watson with its own kernel exp(q·k) to {apart[1]:.0e}; training took its error from {before:.2f} to"
        f" {after:.2f}. A Cauchy kernel differs by {apart[2]:.2f}, the mean of a Gaussian process by {apart[3]:.2f}:"
        f" its weights go down to {process.min():.2f}.",
        wanted=f"equal (below {SAME:g}) where the kernel is exp(q·k), different (above {OTHER:g}) where it is not or"
        " where the weights need not sum to 1, and a kernel that is learnt comes nearer to the truth",
        holds=max(apart[:2]) < SAME and min(apart[2:]) > OTHER and after < before,
    )


def drawn(x: Tensor, y: Tensor, at: Tensor, lines: list[tuple[str, str, float, Tensor, Tensor]]) -> Figure:
    figure, (left, right) = drawing(2, 4.2)
    left.plot(x, y, ".", color="0.6", markersize=4, label="examples")
    left.plot(at, truth(at), color="k", linewidth=0.8, label="truth")
    middle = len(at) // 2
    for name, line, wide, curve, weights in lines:
        faint = 0.5 if wide > 2 else 1.0
        left.plot(at, curve, line, linewidth=wide, alpha=faint, label=name)
        right.plot(x, weights[middle], line, linewidth=wide, alpha=faint)
    left.set(xlabel="x", ylabel="y")
    right.set(xlabel="x of the example", ylabel=f"its weight in the answer at x = {at[middle]:.0f}")
    legend_below(figure, left)
    return figure
