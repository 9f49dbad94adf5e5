"""linear: what can a stack of linear layers do that one cannot? Nothing.

    W₂(W₁x + b₁) + b₂ = (W₂W₁)x + (W₂b₁ + b₂)          but not with an activation φ between

Claim (deck T, "Building Blocks of Neural Networks"): a linear layer after a linear layer is one linear layer; an
activation function between the two gives more expressive power.

The stacks are `FeedForward` parts, of two linear layers each. Without an activation, the formula gives the
one layer. With an activation, it is fitted by least squares to the outputs of the stack, and evaluated on new inputs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import torch
from matplotlib.figure import Figure
from torch import Tensor, nn

from regard.lab.result import LabResult, Tracker, plot_curves, subplots, table_rows
from regard.parts.feedforward import ACTIVATIONS, FeedForward
from regard.validate import check_fields, check_minimum

FLOAT_ERROR = 1e-12  # of float64, with a margin for the sums
LINE = torch.linspace(-3, 3, 101, dtype=torch.float64)  # a line through the inputs
MIN_ERROR = 0.01  # relative error that is far from float error
BETWEEN: dict[str, Callable[[Tensor], Tensor]] = {
    "none": nn.Identity(),
    "relu": ACTIVATIONS["relu"],
    "gelu": ACTIVATIONS["gelu"],
    "tanh": torch.tanh,
    "sigmoid": torch.sigmoid,
}
STYLES = {"none": "k-o", "relu": "C0-s", "gelu": "C1--^", "tanh": "C2-.D", "sigmoid": "C3:v"}


@dataclass(frozen=True)
class LinearOptions:
    parts: int = 6  # feed-forward parts of the deepest stack, of two layers each
    dim: int = 16  # input and output width
    hidden: int = 64  # hidden width of a part
    inputs: int = 4000  # inputs of the fit, and as many of the test
    seed: int = 1  # random seed

    def __post_init__(self) -> None:
        check_minimum(self, 1, "parts", "dim", "hidden")
        check_fields(self, inputs=(self.inputs > self.dim, "more than dim"))


QUICK = LinearOptions(parts=2, inputs=400)


@torch.no_grad()
def run(options: LinearOptions, track: Tracker) -> LabResult:
    errors: dict[str, list[float]] = {}
    profiles: dict[str, Tensor] = {}
    for name in track(list(BETWEEN)):
        torch.manual_seed(options.seed)
        stack = [
            scale_up(FeedForward(options.dim, options.hidden, BETWEEN[name])).double() for _ in range(options.parts)
        ]
        train_x, test_x = torch.randn(2, options.inputs, options.dim, dtype=torch.float64)
        errors[name], profiles[name] = [], stack[0](train_x[0] + LINE[:, None] * train_x[1])[:, 0]
        targets, fit_targets = test_x, train_x
        for count, block in enumerate(stack, 1):
            targets, fit_targets = block(targets), block(fit_targets)
            layers = [layer for layers_of in stack[:count] for layer in (layers_of.up, layers_of.down)]
            weight, bias = collapse(layers) if name == "none" else least_squares(train_x, fit_targets)
            errors[name].append(relative_error(targets, test_x @ weight.mT + bias))
    linear_error, nonlinear_error = max(errors["none"]), min(min(errors[name]) for name in [*BETWEEN][1:])
    numbers = options.parts * (2 * options.dim * options.hidden + options.hidden + options.dim)
    return LabResult(
        plot(errors, profiles),
        table_rows(
            {"activation": errors},
            {f"error, {2 * n} layers": [shares[n - 1] for shares in errors.values()] for n in (1, options.parts)},
        ),
        summary=f"Without an activation, {2 * options.parts} layers of {numbers:,} numbers are one layer of "
        f"{options.dim * (options.dim + 1):,}: its relative error is at most {linear_error:.0e}, where float64 has "
        f"16 digits. With an activation, the best linear layer has an error of {100 * nonlinear_error:.0f} % or more.",
        expected="linear layers collapse into one within float error, and with an activation they do not",
        holds=linear_error < FLOAT_ERROR and nonlinear_error > MIN_ERROR,
    )


def scale_up(part: FeedForward) -> FeedForward:
    """Weights large enough to make activations nonlinear: near 0, tanh and sigmoid are almost linear."""
    for layer in (part.up, part.down):
        nn.init.normal_(layer.weight, std=3 / layer.in_features**0.5)
    return part


def collapse(layers: Iterable[nn.Linear]) -> tuple[Tensor, Tensor]:
    """Weight and bias of the product of linear layers."""
    first, *others = layers
    weight: Tensor = first.weight
    bias: Tensor = first.bias
    for layer in others:
        weight, bias = layer.weight @ weight, layer.weight @ bias + layer.bias
    return weight, bias


def least_squares(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """Weight and bias of the one layer that turns x into y with the least squared error."""
    with_one = torch.cat((x, x.new_ones(len(x), 1)), 1)  # the bias is the weight of an input that is always 1
    solution = torch.linalg.lstsq(with_one, y).solution  # (inputs + 1, outputs)
    return solution[:-1].mT, solution[-1]


def relative_error(targets: Tensor, predictions: Tensor) -> float:
    """Relative to the standard deviation of the targets: 0 = exact, 1 = no better than their mean."""
    return ((targets - predictions).square().mean() / (targets - targets.mean(0)).square().mean()).sqrt().item()


def plot(errors: dict[str, list[float]], profiles: dict[str, Tensor]) -> Figure:
    figure, (left, right) = subplots(2)
    heights = range(2, 2 * len(errors["none"]) + 2, 2)
    plot_curves(left, heights, errors, STYLES, yscale="log", ylim=(1e-17, 10), xlabel="linear layers in the stack")
    left.set_ylabel("relative error of one layer")
    normalised = {name: ((profile - profile.mean()) / profile.std()).tolist() for name, profile in profiles.items()}
    plot_curves(right, LINE.tolist(), normalised, STYLES, xlabel="position on a line through the inputs")
    right.set_ylabel("one output of two layers\n(normalised)")
    right.legend(title="activation", frameon=False)
    return figure
