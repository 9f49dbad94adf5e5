"""depth: can a very deep network hand on what it was given?

    plain  z' = f(z)          ResNet  z' = z + f(z)          DenseNet  z' = f(x and every z before)

Claim (deck M, "Going Deeper"; deck N, "Residual connection"): the identity should be easy, yet a very deep network does
not learn it, because the input is lost on the way. With residual connections it does: He et al. 2016, Huang et al.
2017. Every layer here is wide enough to be the identity by itself, relu(x) - relu(-x) = x, so what fails is learning.
One more plain network starts with weights that keep the size of its numbers (He et al. 2015): it fails all the same.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import product

import torch
from matplotlib.figure import Figure
from torch import Tensor, nn

from regard.choose import must
from regard.lab.deep_networks import densenet, normed_resnet, plain, plain_kept_in_size, resnet
from regard.lab.optimize import learn
from regard.lab.result import Each, Finding, at_least, curves, drawing, legend_below, rows
from regard.parts.heads import Model

LEARNT, FAILED = 0.1, 0.5  # shares of the input's variance that are missing in the output
AVERAGED = 20  # steps, for the loss at the end
NETWORKS: dict[str, Callable[[int, int], nn.Module]] = {
    "plain": plain,
    "plain, size kept": plain_kept_in_size,
    "DenseNet": densenet,
    "ResNet": resnet,
    "ResNet + layer norm": normed_resnet,
}
PLAIN = ("plain", "plain, size kept")
STYLES = dict(zip(NETWORKS, ("k-o", "k--s", "C2-.^", "C1-D", "C0:v"), strict=True))


@dataclass(frozen=True)
class Knobs:
    depths: tuple[int, ...] = (1, 4, 16, 48)  # layers, from few to many
    dim: int = 8  # width of what is handed on
    steps: int = 400  # of training, each on new numbers
    batch: int = 64  # inputs a step
    rate: float = 0.003  # of learning
    seed: int = 1  # of everything random

    def __post_init__(self) -> None:
        must(self, depths=(len(self.depths) > 1 and min(self.depths) >= 1, "two or more, each at least 1"))
        must(self, rate=(self.rate > 0, "above 0"))
        at_least(1, self, "dim", "batch")
        at_least(AVERAGED, self, "steps")


QUICK = Knobs(depths=(1, 10), steps=100, rate=0.01)


def losses(network: nn.Module, knobs: Knobs) -> list[float]:
    """What is missing in the output, step by step: 0 is the identity, 1 is no better than silence."""
    numbers = torch.Generator().manual_seed(knobs.seed)

    def lesson() -> Tensor:
        x = torch.randn(knobs.batch, knobs.dim, generator=numbers)
        return (network(x) - x).square().mean() / x.square().mean()

    return learn(Model(network, nn.Identity()), lesson, [knobs.rate] * knobs.steps, kind="adamw")


def run(knobs: Knobs, each: Each) -> Finding:
    depths = sorted(knobs.depths)
    seen: dict[tuple[str, int], list[float]] = {}
    for name, depth in each(list(product(NETWORKS, depths))):
        torch.manual_seed(knobs.seed)
        seen[name, depth] = losses(NETWORKS[name](knobs.dim, depth), knobs)
    last = {key: sum(curve[-AVERAGED:]) / AVERAGED for key, curve in seen.items()}
    shallow, deep = depths[0], depths[-1]
    end = {name: last[name, deep] for name in NETWORKS}
    lost = all(end[name] > FAILED for name in PLAIN)
    learnt = all(loss < LEARNT for (name, _), loss in last.items() if name not in PLAIN)

    return Finding(
        drawn(depths, seen, last),
        rows({"network": NETWORKS, **{f"depth {depth}": [last[name, depth] for name in NETWORKS] for depth in depths}}),
        says=f"At depth {shallow} the plain network misses {last['plain', shallow]:.1%} of its input. At depth {deep}"
        f" it misses {end['plain']:.0%}, and still {end['plain, size kept']:.0%} when it starts with weights that keep"
        f" sizes; a DenseNet misses {end['DenseNet']:.1%}, a ResNet {end['ResNet']:.1%}, and one with layer norm"
        f" {end['ResNet + layer norm']:.1%}.",
        wanted=f"the shallow plain network learns the identity (it misses less than {LEARNT:.0%}) and the deepest ones"
        f" fail (more than {FAILED:.0%}); DenseNet, ResNet and ResNet with layer norm learn it at every depth",
        holds=lost and learnt and last["plain", shallow] < LEARNT,
    )


def drawn(depths: list[int], seen: dict[tuple[str, int], list[float]], last: dict[tuple[str, int], float]) -> Figure:
    figure, (left, right) = drawing(2, 3.8)
    ends = {name: [last[name, depth] for depth in depths] for name in NETWORKS}
    curves(left, depths, ends, STYLES, xscale="log", yscale="log", xlabel="layers", ylabel="share missed at the end")
    deepest = {name: seen[name, depths[-1]] for name in NETWORKS}
    curves(right, range(len(deepest["plain"])), deepest, STYLES, yscale="log", xlabel="training step")
    right.set_ylabel(f"share missed with {depths[-1]} layers")
    legend_below(figure, left)
    return figure
