"""growth: why do activations grow with depth, and what stops them?

    z = Σᵢ 0.01 · 1 = 10 over 1000 inputs,  then Σᵢ 0.01 · 10 = 100      norm(z) = (z - mean) / spread

Claim (deck M, "layer normalization"): small weights do not make small outputs; 10 and then 100 come out, and deeper
networks have worse gradients. With layer normalisation the growth stops. If the outputs are normally distributed,
99.7 % of them are in [-3, 3], 99.99 % in [-4, 4] and 99.9999 % in [-5, 5].

All outputs of the example are equal, so a layer norm would map them to 0: the deep network here has random weights
between 0 and 0.02. A norm changes mean and variance, not the shape: outputs are normal because each is a sum of many
nearly independent numbers, and after a ReLU they are not. The slide's gradient "≈ 100 · 10" is
0.01 for each weight of the first layer; that it grows with every layer is right.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from matplotlib.figure import Figure
from torch import Tensor, nn

from regard.lab.result import LabResult, Tracker, growth_per_step, plot_curves, plot_densities, subplots
from regard.lab.small_networks import layer_norms, layer_outputs, linear_layers
from regard.parts.norms import LayerNorm
from regard.validate import check_fields

FLOAT_ERROR = 1e-12  # of float64, with a margin for the sum
BOUNDS = {3: "99.7", 4: "99.99", 5: "99.9999"}  # percent, from the slides
STYLES = {"output": "C3-o", "gradient": "C3--s", "output, layer norm": "C0-o", "gradient, layer norm": "C0--s"}
SHAPES = {"layer norm": "C0o", "ReLU, layer norm": "C1^"}


@dataclass(frozen=True)
class GrowthOptions:
    width: int = 1000  # layer width
    weight: float = 0.01  # weight of every input; mean of the random weights of the deep network
    layers: int = 8  # depth of the deep network
    inputs: int = 1000  # random inputs of the histogram
    seed: int = 1  # random seed

    def __post_init__(self) -> None:
        check_fields(self, width=(self.width >= 2, "at least 2"), weight=(self.weight > 0, "more than 0"))
        check_fields(self, layers=(self.layers >= 3, "at least 3"), inputs=(self.inputs >= 1, "at least 1"))


QUICK = GrowthOptions(layers=4)


def run(options: GrowthOptions, track: Tracker) -> LabResult:
    torch.manual_seed(options.seed)
    once, twice, gradient, after_norm = example(options.width, options.weight)
    layers, norm = linear_layers(options.layers, options.width), LayerNorm(options.width)
    for layer in layers:
        nn.init.uniform_(layer.weight, 0, 2 * options.weight)
    lines = dict(zip(STYLES, (*layer_norms(layers, nn.Identity()), *layer_norms(layers, norm)), strict=True))
    sizes, gradients, normed_sizes, normed_gradients = lines.values()
    factor, normed_factor = growth_per_step(gradients, 1), growth_per_step(normed_gradients, 1)
    outputs = random_outputs(layers, norm, options.inputs, track)
    after_relu = norm(outputs.relu()).detach()
    share = {bound: percent_within(outputs, bound) for bound in BOUNDS}
    expected_factor = options.width * options.weight
    rows: list[tuple[str, str | float, str]] = [
        ("output of one layer", once, "10"),
        ("output of two layers", twice, "100"),
        ("its gradient at a weight of the first", gradient, "≈ 100 · 10"),
        ("output of one layer, after a layer norm", after_norm, ""),
        (f"size after {options.layers} random layers", sizes[-1], ""),
        ("the same with layer norm", normed_sizes[-1], ""),
        ("gradient, growth per layer", factor, ""),
        ("the same with layer norm", normed_factor, ""),
        *((f"% in [-{bound}, {bound}]", f"{share[bound]:.5f}", slide) for bound, slide in BOUNDS.items()),
        ("% in [-3, 3] after a ReLU and a norm", f"{percent_within(after_relu, 3):.5f}", ""),
    ]
    return LabResult(
        plot(lines, outputs, after_relu),
        [{"quantity": quantity, "measured": value, "on the slide": slide} for quantity, value, slide in rows],
        summary=f"{once:g}, then {twice:g}. After {options.layers} random layers the RMS of the outputs is "
        f"{sizes[-1]:.1g}, with layer norm {normed_sizes[-1]:.2f}. Each layer multiplies the gradient by "
        f"{factor:.1f}, with layer norm {normed_factor:.2f}. Of {outputs.numel():,} normalised outputs "
        f"{share[3]:.2f} % are in [-3, 3] and {share[4]:.3f} % in [-4, 4]; after a ReLU and a norm, "
        f"{percent_within(after_relu, 3):.1f} % are in [-3, 3].",
        expected="10 and 100 exactly; no growth with layer norm; 99.7 % in [-3, 3] and 99.99 % in [-4, 4]",
        holds=max(abs(once / expected_factor - 1), abs(twice / expected_factor**2 - 1)) < FLOAT_ERROR
        and all(abs(size / expected_factor**depth - 1) < 0.1 for depth, size in enumerate(sizes, 1))
        and all(abs(size - 1) < 0.01 for size in normed_sizes)
        and abs(factor / expected_factor - 1) < 0.2
        and 1 / 1.5 < normed_factor < 1.5
        and 99.7 <= share[3] < 99.8
        and 99.99 <= share[4] < 100,
    )


def example(width: int, weight: float) -> tuple[float, float, float, float]:
    """The two layers of the slides: their outputs, the gradient at the first, and the layer norm of its output."""
    layers = linear_layers(2, width)
    for layer in layers:
        nn.init.constant_(layer.double().weight, weight)
    once, twice = layer_outputs(layers, nn.Identity(), torch.ones(width, dtype=torch.float64))
    (gradient,) = torch.autograd.grad(twice[0], layers[0].weight)
    normed = LayerNorm(width, dtype=torch.float64)(once)
    return once[0].item(), twice[0].item(), gradient[0, 0].item(), normed.abs().max().item()


@torch.no_grad()
def random_outputs(layers: list[nn.Linear], norm: nn.Module, inputs: int, track: Tracker) -> Tensor:
    """Outputs of every layer for independent random inputs."""
    return torch.cat(layer_outputs(track(layers), norm, torch.randn(inputs, layers[0].in_features)))


def percent_within(outputs: Tensor, bound: float) -> float:
    return 100 * (outputs.abs() <= bound).double().mean().item()


def plot(lines: dict[str, list[float]], outputs: Tensor, after_relu: Tensor) -> Figure:
    figure, (left, right) = subplots(2)
    plot_curves(left, range(1, len(lines["output"]) + 1), lines, STYLES, yscale="log", xlabel="layers", ylabel="norm")
    left.legend(frameon=False, loc="upper left")
    plot_densities(right, dict(zip(SHAPES, (outputs, after_relu), strict=True)), SHAPES, 6)
    right.set(xlabel="output", xticks=(-5, -4, -3, 0, 3, 4, 5))
    right.grid(axis="x", color="0.9")
    right.legend(frameon=False)
    return figure
