"""width: what does a network gain from being wider, and what does it pay for being deeper?

    two layers  f(x) = W₂ relu(W₁x + b₁) + b₂,  |f(x) - g(x)| < ε          parameters  ResNet ~ depth, DenseNet ~ depth²

Claim (deck M, "Going Deeper"): a two-layer MLP comes as near to any function g as one likes, but only as its width goes
to infinity (Cybenko 1989, Hornik et al. 1989). Deeper networks that keep their input are the other way; of these a very
deep DenseNet needs too many parameters, and a ResNet much fewer. The theorem says what weights there are, not what
training finds, so each width is trained from several starts, and the best of them counts.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise, product

import torch
from matplotlib.figure import Figure
from torch import Tensor, nn

from regard.choose import must
from regard.lab.deep_networks import densenet, resnet
from regard.lab.result import Each, Finding, at_least, curves, drawing, rows
from regard.parts.feedforward import FeedForward

SHRINKS = 10.0  # times, at least, that ε is smaller at the widest than at the narrowest
SQUARE = 3.5  # times, at least, that a parabola (almost 4) grows when the depth doubles
DEEP = {"ResNet": resnet, "DenseNet": densenet}
STYLES = {"best of all starts": "C0-o", "ResNet": "C1-o", "DenseNet": "C2-.s"}
AT = torch.linspace(-2, 2, 201, dtype=torch.float64)[:, None]


@dataclass(frozen=True)
class Knobs:
    widths: tuple[int, ...] = (1, 4, 16, 64, 256)  # hidden units
    starts: int = 5  # trained networks of each width
    steps: int = 300  # of L-BFGS, at most, for each
    dim: int = 64  # numbers that each layer of the deep networks hands on
    depth: int = 96  # layers of the deepest: as many as GPT-3 has blocks
    seed: int = 1  # of everything random

    def __post_init__(self) -> None:
        must(self, widths=(len(self.widths) > 1 and min(self.widths) >= 1, "two or more, each at least 1"))
        at_least(1, self, "starts", "steps", "dim")
        at_least(24, self, "depth")


QUICK = Knobs(widths=(1, 8, 64), starts=2, steps=60)


def function(x: Tensor) -> Tensor:
    return (2 * x).sin() * (1 + x) / 2


def fitted(width: int, steps: int) -> Tensor:
    """What a network of that width makes of AT, after training."""
    network = FeedForward(1, width).double()
    optimizer = torch.optim.LBFGS(
        network.parameters(), max_iter=steps, history_size=100, tolerance_change=0, line_search_fn="strong_wolfe"
    )
    wanted = function(AT)

    def loss() -> Tensor:
        optimizer.zero_grad()
        missed = (network(AT) - wanted).square().mean()
        missed.backward()
        return missed

    optimizer.step(loss)
    with torch.no_grad():
        return network(AT)


def count(network: nn.Module) -> int:
    return sum(weight.numel() for weight in network.parameters())


def run(knobs: Knobs, each: Each) -> Finding:
    widths = sorted(knobs.widths)
    missed: dict[int, list[float]] = {width: [] for width in widths}
    for width, start in each(list(product(widths, range(knobs.starts)))):
        torch.manual_seed(knobs.seed + start)
        missed[width].append((fitted(width, knobs.steps) - function(AT)).abs().max().item())
    best = [min(missed[width]) for width in widths]
    depths = [knobs.depth >> halved for halved in (4, 3, 2, 1, 0)]
    with torch.device("meta"):  # weights that are counted, never stored
        sizes = {name: [count(make(knobs.dim, depth)) for depth in depths] for name, make in DEEP.items()}
    twice = {name: size[-1] / size[-2] for name, size in sizes.items()}
    counted = {f"two layers, {width} wide": count(FeedForward(1, width)) for width in widths}
    counted |= {f"{name}, {depths[i]} deep": size[i] for name, size in sizes.items() for i in (-2, -1)}
    return Finding(
        drawn(missed, depths, sizes),
        rows({"network": counted, "parameters": counted.values(), "ε": [*best, "", "", "", ""]}),
        says=f"The best of {knobs.starts} networks of width {widths[0]} is off by {best[0]:.2g} at its worst place, of"
        f" width {widths[-1]} by {best[-1]:.2g}. With {knobs.depth} layers of {knobs.dim} numbers a ResNet has"
        f" {sizes['ResNet'][-1]:,} parameters and a DenseNet {sizes['DenseNet'][-1]:,}; from half that depth the first"
        f" grew {twice['ResNet']:.2f} times, the second {twice['DenseNet']:.2f} times.",
        wanted=f"every wider network comes nearer, in all by {SHRINKS:g} times or more; twice the depth is twice the"
        f" parameters of a ResNet, and almost four times those of a DenseNet (above {SQUARE})",
        holds=all(wider < one for one, wider in pairwise(best))
        and best[-1] * SHRINKS < best[0]
        and twice["ResNet"] == 2
        and twice["DenseNet"] > SQUARE,
    )


def drawn(missed: dict[int, list[float]], depths: list[int], sizes: dict[str, list[int]]) -> Figure:
    figure, (left, right) = drawing(2)
    widths, best = list(missed), {"best of all starts": [min(several) for several in missed.values()]}
    for width, several in missed.items():
        left.plot([width] * len(several), several, ".", color="0.6")
    for axes, x, found, xlabel, ylabel in (
        (left, widths, best, "width (hidden units)", "ε, the largest error"),
        (right, depths, sizes, "depth (layers)", "parameters"),
    ):
        curves(axes, x, found, STYLES, xscale="log", yscale="log", xlabel=xlabel, ylabel=ylabel)
        axes.legend(frameon=False)
    return figure
