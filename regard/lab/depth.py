"""depth: can a very deep network learn the identity?

    plain  z' = f(z)          ResNet  z' = z + f(z)          DenseNet  z' = f(x and every z before)

Claim (deck M, "Going Deeper"; deck N, "Residual connection"): the identity should be easy, yet a very deep network does
not learn it, because the input is lost on the way. With residual connections it does: He et al. 2016, Huang et al.
2017. Every layer here is wide enough to be the identity by itself, relu(x) - relu(-x) = x, so what fails is training.
One more plain network has an initialisation that preserves variance (He et al. 2015): it fails all the same.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import product

import torch
from matplotlib.figure import Figure
from torch import Tensor, nn

from regard.lab.optimize import optimize
from regard.lab.result import LabResult, Tracker, legend_below, plot_curves, subplots, table_rows
from regard.lab.small_networks import densenet, plain, plain_he_init, resnet, resnet_layer_norm
from regard.parts.heads import Model
from regard.validate import check_fields, check_minimum

MAX_LOSS_RESIDUAL, MIN_LOSS_PLAIN = 0.1, 0.5  # loss as a share of the input's variance
LAST_STEPS = 20  # steps over which the final loss is averaged
NETWORKS: dict[str, Callable[[int, int], nn.Module]] = {
    "plain": plain,
    "plain, He init": plain_he_init,
    "DenseNet": densenet,
    "ResNet": resnet,
    "ResNet + layer norm": resnet_layer_norm,
}
PLAIN = ("plain", "plain, He init")
STYLES = dict(zip(NETWORKS, ("k-o", "k--s", "C2-.^", "C1-D", "C0:v"), strict=True))


@dataclass(frozen=True)
class DepthOptions:
    depths: tuple[int, ...] = (1, 4, 16, 48)  # numbers of layers
    dim: int = 8  # width of input and output
    steps: int = 400  # training steps, each on new inputs
    batch: int = 64  # inputs per step
    lr: float = 0.003  # learning rate
    seed: int = 1  # random seed

    def __post_init__(self) -> None:
        check_fields(self, depths=(len(self.depths) > 1 and min(self.depths) >= 1, "two or more, each at least 1"))
        check_fields(self, lr=(self.lr > 0, "above 0"))
        check_minimum(self, 1, "dim", "batch")
        check_minimum(self, LAST_STEPS, "steps")


QUICK = DepthOptions(depths=(1, 10), steps=100, lr=0.01)


def losses(network: nn.Module, options: DepthOptions) -> list[float]:
    """The loss of each step as a share of the input's variance: 0 = the identity, 1 = an output of 0."""
    generator = torch.Generator().manual_seed(options.seed)

    def batch_loss() -> Tensor:
        x = torch.randn(options.batch, options.dim, generator=generator)
        return (network(x) - x).square().mean() / x.square().mean()

    return optimize(Model(network, nn.Identity()), batch_loss, [options.lr] * options.steps, kind="adamw")


def run(options: DepthOptions, track: Tracker) -> LabResult:
    depths = sorted(options.depths)
    histories: dict[tuple[str, int], list[float]] = {}
    for name, depth in track(list(product(NETWORKS, depths))):
        torch.manual_seed(options.seed)
        histories[name, depth] = losses(NETWORKS[name](options.dim, depth), options)
    final = {key: sum(curve[-LAST_STEPS:]) / LAST_STEPS for key, curve in histories.items()}
    shallow, deep = depths[0], depths[-1]
    end = {name: final[name, deep] for name in NETWORKS}
    plain_fails = all(end[name] > MIN_LOSS_PLAIN for name in PLAIN)
    residual_learns = all(loss < MAX_LOSS_RESIDUAL for (name, _), loss in final.items() if name not in PLAIN)

    return LabResult(
        plot(depths, histories, final),
        table_rows(
            {"network": NETWORKS, **{f"depth {depth}": [final[name, depth] for name in NETWORKS] for depth in depths}}
        ),
        summary=f"At depth {shallow} the plain network misses {final['plain', shallow]:.1%} of the variance. At "
        f"depth {deep} it misses {end['plain']:.0%}, with He initialisation still {end['plain, He init']:.0%}; a "
        f"DenseNet misses {end['DenseNet']:.1%}, a ResNet {end['ResNet']:.1%}, and one with layer norm "
        f"{end['ResNet + layer norm']:.1%}.",
        expected=f"the shallow plain network learns the identity (it misses less than {MAX_LOSS_RESIDUAL:.0%}) and "
        f"the deepest ones fail (more than {MIN_LOSS_PLAIN:.0%}); DenseNet, ResNet and ResNet with layer norm learn "
        "it at every depth",
        holds=plain_fails and residual_learns and final["plain", shallow] < MAX_LOSS_RESIDUAL,
    )


def plot(
    depths: list[int], histories: dict[tuple[str, int], list[float]], final: dict[tuple[str, int], float]
) -> Figure:
    figure, (left, right) = subplots(2, 3.8)
    ends = {name: [final[name, depth] for depth in depths] for name in NETWORKS}
    plot_curves(
        left, depths, ends, STYLES, xscale="log", yscale="log", xlabel="layers", ylabel="final loss (share of variance)"
    )
    deepest = {name: histories[name, depths[-1]] for name in NETWORKS}
    plot_curves(right, range(len(deepest["plain"])), deepest, STYLES, yscale="log", xlabel="training step")
    right.set_ylabel(f"loss with {depths[-1]} layers")
    legend_below(figure, left)
    return figure
