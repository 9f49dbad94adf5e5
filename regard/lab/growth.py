"""growth: why do numbers grow with depth, and what stops them?

    z = Σᵢ 0.01 · 1 = 10 over 1000 inputs,  then Σᵢ 0.01 · 10 = 100      norm(z) = (z - mean) / spread

Claim (deck M, "layer normalization"): small weights do not make small outputs; 10 and then 100 come out, and deeper
networks have worse gradients. With layer normalisation the growth stops. If the outputs are normally distributed,
99.7 % of them are in [-3, 3], 99.99 % in [-4, 4] and 99.9999 % in [-5, 5].

All outputs of the example are equal, so a layer norm would make zeros of them: the deep network here has random weights
between 0 and 0.02. A norm gives mean 0 and spread 1, not another shape: outputs are normal because each is a sum of
many numbers that have little to do with each other, and after a ReLU they are not. The slide's gradient "≈ 100 · 10" is
0.01 for each weight of the first layer; that it grows with every layer is right.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from matplotlib.figure import Figure
from torch import Tensor, nn

from regard.choose import must
from regard.lab.deep_networks import linears, measured, through
from regard.lab.result import Each, Finding, curves, densities, drawing, per_step
from regard.parts.norms import LayerNorm

FLOAT_ERROR = 1e-12  # of doubles, with room for the sum
BOUNDS = {3: "99.7", 4: "99.99", 5: "99.9999"}  # per cent, as the slides have them
STYLES = {"output": "C3-o", "gradient": "C3--s", "output, layer norm": "C0-o", "gradient, layer norm": "C0--s"}
SHAPES = {"layer norm": "C0o", "ReLU, layer norm": "C1^"}


@dataclass(frozen=True)
class Knobs:
    width: int = 1000  # inputs and outputs of a layer
    weight: float = 0.01  # of every input; in the deep network, the mean of random ones
    layers: int = 8  # of the deep network
    inputs: int = 1000  # random ones, whose outputs are counted
    seed: int = 1  # of weights and inputs

    def __post_init__(self) -> None:
        must(self, width=(self.width >= 2, "at least 2"), weight=(self.weight > 0, "more than 0"))
        must(self, layers=(self.layers >= 3, "at least 3"), inputs=(self.inputs >= 1, "at least 1"))


QUICK = Knobs(layers=4)


def run(knobs: Knobs, each: Each) -> Finding:
    torch.manual_seed(knobs.seed)
    once, twice, slope, after_norm = example(knobs.width, knobs.weight)
    layers, norm = linears(knobs.layers, knobs.width), LayerNorm(knobs.width)
    for layer in layers:
        nn.init.uniform_(layer.weight, 0, 2 * knobs.weight)
    found = dict(zip(STYLES, (*measured(layers, nn.Identity()), *measured(layers, norm)), strict=True))
    sizes, slopes, normed_sizes, normed_slopes = found.values()
    longer, normed_longer = per_step(slopes, 1), per_step(normed_slopes, 1)  # one layer alone has none to make longer
    outputs = random_outputs(layers, norm, knobs.inputs, each)
    bent = norm(outputs.relu()).detach()
    share = {bound: inside(outputs, bound) for bound in BOUNDS}
    grows = knobs.width * knobs.weight
    told: list[tuple[str, str | float, str]] = [
        ("output of one layer", once, "10"),
        ("output of two layers", twice, "100"),
        ("its gradient by a weight of the first", slope, "≈ 100 · 10"),
        ("output of one layer, after a layer norm", after_norm, ""),
        (f"size after {knobs.layers} random layers", sizes[-1], ""),
        ("the same with layer norms", normed_sizes[-1], ""),
        ("gradient, times per layer", longer, ""),
        ("the same with layer norms", normed_longer, ""),
        *((f"% in [-{bound}, {bound}]", f"{share[bound]:.5f}", said) for bound, said in BOUNDS.items()),
        ("% in [-3, 3] after a ReLU and a norm", f"{inside(bent, 3):.5f}", ""),
    ]
    return Finding(
        drawn(found, outputs, bent),
        [{"what": what, "seen": seen, "on the slide": said} for what, seen, said in told],
        says=f"{once:g}, then {twice:g}. After {knobs.layers} random layers outputs are {sizes[-1]:.1g} large, with "
        f"layer norms {normed_sizes[-1]:.2f}. Each layer makes the gradient {longer:.1f} times as long, with norms "
        f"{normed_longer:.2f}. Of {outputs.numel():,} normalised outputs {share[3]:.2f} % are in [-3, 3] and "
        f"{share[4]:.3f} % in [-4, 4]; after a ReLU and a norm, {inside(bent, 3):.1f} % are in [-3, 3].",
        wanted="10 and 100 exactly; no growth with layer norms; 99.7 % in [-3, 3] and 99.99 % in [-4, 4]",
        holds=max(abs(once / grows - 1), abs(twice / grows**2 - 1)) < FLOAT_ERROR
        and all(abs(size / grows**depth - 1) < 0.1 for depth, size in enumerate(sizes, 1))
        and all(abs(size - 1) < 0.01 for size in normed_sizes)
        and abs(longer / grows - 1) < 0.2
        and 1 / 1.5 < normed_longer < 1.5
        and 99.7 <= share[3] < 99.8
        and 99.99 <= share[4] < 100,
    )


def example(width: int, weight: float) -> tuple[float, float, float, float]:
    """The slides' two layers: what comes out of each, the gradient at the first, and a norm of what comes out there."""
    layers = linears(2, width)
    for layer in layers:
        nn.init.constant_(layer.double().weight, weight)
    once, twice = through(layers, nn.Identity(), torch.ones(width, dtype=torch.float64))
    (slope,) = torch.autograd.grad(twice[0], layers[0].weight)
    normed = LayerNorm(width, dtype=torch.float64)(once)
    return once[0].item(), twice[0].item(), slope[0, 0].item(), normed.abs().max().item()


@torch.no_grad()
def random_outputs(layers: list[nn.Linear], norm: nn.Module, inputs: int, each: Each) -> Tensor:
    """Of every layer. The inputs have nothing to do with each other, so each adds numbers of its own to the count."""
    return torch.cat(through(each(layers), norm, torch.randn(inputs, layers[0].in_features)))


def inside(outputs: Tensor, bound: float) -> float:
    return 100 * (outputs.abs() <= bound).double().mean().item()


def drawn(found: dict[str, list[float]], outputs: Tensor, bent: Tensor) -> Figure:
    figure, (left, right) = drawing(2)
    curves(left, range(1, len(found["output"]) + 1), found, STYLES, yscale="log", xlabel="layers", ylabel="size")
    left.legend(frameon=False, loc="upper left")
    densities(right, dict(zip(SHAPES, (outputs, bent), strict=True)), SHAPES, 6)
    right.set(xlabel="output", xticks=(-5, -4, -3, 0, 3, 4, 5))
    right.grid(axis="x", color="0.9")
    right.legend(frameon=False)
    return figure
