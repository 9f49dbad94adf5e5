"""width: what does a network gain from width, and what does depth cost?

    two layers  f(x) = W₂ relu(W₁x + b₁) + b₂,  |f(x) - g(x)| < ε          parameters  ResNet ~ depth, DenseNet ~ depth²

Claim (deck M, "Going Deeper"): a two-layer MLP approximates any function g to any precision, but only as its width goes
to infinity (Cybenko 1989, Hornik et al. 1989). Deeper networks with skip connections are the alternative; of these a
very deep DenseNet needs too many parameters, and a ResNet far fewer. The theorem says which weights exist, not which
training finds, so each width is trained from several initialisations, and the best counts.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise, product

import torch
from matplotlib.figure import Figure
from torch import Tensor, nn

from regard.lab.result import LabResult, Tracker, plot_curves, subplots, table_rows
from regard.lab.small_networks import densenet, resnet
from regard.parts.feedforward import FeedForward
from regard.validate import check_fields, check_minimum

MIN_IMPROVEMENT = 10.0  # ratio of ε at the smallest and the largest width, at least
MIN_DENSENET_GROWTH = 3.5  # growth of a DenseNet (quadratic: almost 4) when the depth doubles, at least
DEEP_NETWORKS = {"ResNet": resnet, "DenseNet": densenet}
STYLES = {"best initialisation": "C0-o", "ResNet": "C1-o", "DenseNet": "C2-.s"}
AT = torch.linspace(-2, 2, 201, dtype=torch.float64)[:, None]


@dataclass(frozen=True)
class WidthOptions:
    widths: tuple[int, ...] = (1, 4, 16, 64, 256)  # numbers of hidden units
    starts: int = 5  # initialisations per width
    steps: int = 300  # maximum L-BFGS steps
    dim: int = 64  # width of the deep networks
    depth: int = 96  # layers of the deepest network (GPT-3 has 96 blocks)
    seed: int = 1  # random seed

    def __post_init__(self) -> None:
        check_fields(self, widths=(len(self.widths) > 1 and min(self.widths) >= 1, "two or more, each at least 1"))
        check_minimum(self, 1, "starts", "steps", "dim")
        check_minimum(self, 24, "depth")


QUICK = WidthOptions(widths=(1, 8, 64), starts=2, steps=60)


def target(x: Tensor) -> Tensor:
    return (2 * x).sin() * (1 + x) / 2


def fit_network(width: int, steps: int) -> Tensor:
    """The outputs at AT of a trained network of this width."""
    network = FeedForward(1, width).double()
    optimizer = torch.optim.LBFGS(
        network.parameters(), max_iter=steps, history_size=100, tolerance_change=0, line_search_fn="strong_wolfe"
    )
    targets = target(AT)

    def loss() -> Tensor:
        optimizer.zero_grad()
        error = (network(AT) - targets).square().mean()
        error.backward()
        return error

    optimizer.step(loss)
    with torch.no_grad():
        return network(AT)


def count_parameters(network: nn.Module) -> int:
    return sum(weight.numel() for weight in network.parameters())


def run(options: WidthOptions, track: Tracker) -> LabResult:
    widths = sorted(options.widths)
    errors: dict[int, list[float]] = {width: [] for width in widths}
    for width, start in track(list(product(widths, range(options.starts)))):
        torch.manual_seed(options.seed + start)
        errors[width].append((fit_network(width, options.steps) - target(AT)).abs().max().item())
    best = [min(errors[width]) for width in widths]
    depths = [options.depth >> halved for halved in (4, 3, 2, 1, 0)]
    with torch.device("meta"):  # counts parameters without storing them
        sizes = {
            name: [count_parameters(make(options.dim, depth)) for depth in depths]
            for name, make in DEEP_NETWORKS.items()
        }
    growth = {name: size[-1] / size[-2] for name, size in sizes.items()}
    parameters = {f"two layers, {width} wide": count_parameters(FeedForward(1, width)) for width in widths}
    parameters |= {f"{name}, {depths[i]} deep": size[i] for name, size in sizes.items() for i in (-2, -1)}
    return LabResult(
        plot(errors, depths, sizes),
        table_rows({"network": parameters, "parameters": parameters.values(), "ε": [*best, "", "", "", ""]}),
        summary=f"The best of {options.starts} networks of width {widths[0]} has a maximum error of {best[0]:.2g}, "
        f"of width {widths[-1]} {best[-1]:.2g}. With {options.depth} layers of width {options.dim} a ResNet has "
        f"{sizes['ResNet'][-1]:,} parameters and a DenseNet {sizes['DenseNet'][-1]:,}; from half that depth the "
        f"first grew {growth['ResNet']:.2f} times, the second {growth['DenseNet']:.2f} times.",
        expected=f"every wider network has a smaller error, in all by {MIN_IMPROVEMENT:g} times or more; twice the "
        "depth is twice the parameters of a ResNet, and almost four times those of a DenseNet (above "
        f"{MIN_DENSENET_GROWTH})",
        holds=all(wider < narrower for narrower, wider in pairwise(best))
        and best[-1] * MIN_IMPROVEMENT < best[0]
        and growth["ResNet"] == 2
        and growth["DenseNet"] > MIN_DENSENET_GROWTH,
    )


def plot(errors: dict[int, list[float]], depths: list[int], sizes: dict[str, list[int]]) -> Figure:
    figure, (left, right) = subplots(2)
    widths, best = list(errors), {"best initialisation": [min(values) for values in errors.values()]}
    for width, values in errors.items():
        left.plot([width] * len(values), values, ".", color="0.6")
    for axes, x, lines, xlabel, ylabel in (
        (left, widths, best, "width (hidden units)", "ε, maximum error"),
        (right, depths, sizes, "depth (layers)", "parameters"),
    ):
        plot_curves(axes, x, lines, STYLES, xscale="log", yscale="log", xlabel=xlabel, ylabel=ylabel)
        axes.legend(frameon=False)
    return figure
