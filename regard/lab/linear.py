"""linear: what can a stack of linear layers do that one cannot? Nothing.

    W₂(W₁x + b₁) + b₂ = (W₂W₁)x + (W₂b₁ + b₂)          but not with an activation φ between

Claim (deck T, "Building Blocks of Neural Networks"): a linear layer after a linear layer is one linear layer; an
activation function between the two gives more expressive power.

The stacks are `FeedForward` parts, of two linear layers each. Where nothing stands between them, the one layer comes
from the formula. Where something does, it is the best that there is: fitted by least squares to what the stack gives,
and judged on new inputs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import torch
from matplotlib.figure import Figure
from torch import Tensor, nn

from regard.choose import must
from regard.lab.result import Each, Finding, at_least, curves, drawing, rows
from regard.parts.feedforward import ACTIVATIONS, FeedForward

FLOAT_ERROR = 1e-12  # of doubles, with room for the sums
ALONG = torch.linspace(-3, 3, 101, dtype=torch.float64)  # a line through the inputs
CLEARLY = 0.01  # of the spread: far from any float error
BETWEEN: dict[str, Callable[[Tensor], Tensor]] = {
    "nothing": nn.Identity(),
    "relu": ACTIVATIONS["relu"],
    "gelu": ACTIVATIONS["gelu"],
    "tanh": torch.tanh,
    "sigmoid": torch.sigmoid,
}
STYLES = {"nothing": "k-o", "relu": "C0-s", "gelu": "C1--^", "tanh": "C2-.D", "sigmoid": "C3:v"}


@dataclass(frozen=True)
class Knobs:
    parts: int = 6  # feed-forward parts in the highest stack, of two layers each
    dim: int = 16  # numbers that go in and come out
    hidden: int = 64  # numbers between the two layers of a part
    inputs: int = 4000  # to fit the one layer to, and as many new ones to judge it
    seed: int = 1  # of weights and inputs

    def __post_init__(self) -> None:
        at_least(1, self, "parts", "dim", "hidden")
        must(self, inputs=(self.inputs > self.dim, "more than dim"))


QUICK = Knobs(parts=2, inputs=400)


@torch.no_grad()
def run(knobs: Knobs, each: Each) -> Finding:
    missed: dict[str, list[float]] = {}
    bends: dict[str, Tensor] = {}
    for name in each(list(BETWEEN)):
        torch.manual_seed(knobs.seed)
        stack = [strong(FeedForward(knobs.dim, knobs.hidden, BETWEEN[name])).double() for _ in range(knobs.parts)]
        old, new = torch.randn(2, knobs.inputs, knobs.dim, dtype=torch.float64)
        missed[name], bends[name] = [], stack[0](old[0] + ALONG[:, None] * old[1])[:, 0]
        wanted, fit_to = new, old
        for height, part in enumerate(stack, 1):
            wanted, fit_to = part(wanted), part(fit_to)
            layers = [layer for below in stack[:height] for layer in (below.up, below.down)]
            weight, bias = collapsed(layers) if name == "nothing" else fitted(old, fit_to)
            missed[name].append(share_missed(wanted, new @ weight.mT + bias))
    straight, bent = max(missed["nothing"]), min(min(missed[name]) for name in BETWEEN if name != "nothing")
    numbers = knobs.parts * (2 * knobs.dim * knobs.hidden + knobs.hidden + knobs.dim)
    return Finding(
        drawn(missed, bends),
        rows(
            {"between the layers": missed},
            {f"missed, {2 * n} layers": [shares[n - 1] for shares in missed.values()] for n in (1, knobs.parts)},
        ),
        says=f"With nothing between them, {2 * knobs.parts} layers of {numbers:,} numbers are one layer of "
        f"{knobs.dim * (knobs.dim + 1):,}: it misses at most {straight:.0e} of the spread of their outputs, and "
        f"doubles have 16 digits. With an activation between, the best one layer misses at least {100 * bent:.0f} %.",
        wanted="linear layers collapse into one within float error, and with an activation between they do not",
        holds=straight < FLOAT_ERROR and bent > CLEARLY,
    )


def strong(part: FeedForward) -> FeedForward:
    """Weights large enough that an activation is used where it bends: near 0, tanh and sigmoid are almost straight."""
    for layer in (part.up, part.down):
        nn.init.normal_(layer.weight, std=3 / layer.in_features**0.5)
    return part


def collapsed(layers: Iterable[nn.Linear]) -> tuple[Tensor, Tensor]:
    """Weight and bias of the one layer that linear layers are."""
    first, *others = layers
    weight: Tensor = first.weight
    bias: Tensor = first.bias
    for layer in others:
        weight, bias = layer.weight @ weight, layer.weight @ bias + layer.bias
    return weight, bias


def fitted(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """Weight and bias of the one layer that turns x into y with the least squared error."""
    with_one = torch.cat((x, x.new_ones(len(x), 1)), 1)  # the bias is the weight of an input that is always 1
    solution = torch.linalg.lstsq(with_one, y).solution  # (inputs + 1, outputs)
    return solution[:-1].mT, solution[-1]


def share_missed(wanted: Tensor, given: Tensor) -> float:
    """0 where all is given, 1 where no more than the mean is."""
    return ((wanted - given).square().mean() / (wanted - wanted.mean(0)).square().mean()).sqrt().item()


def drawn(missed: dict[str, list[float]], bends: dict[str, Tensor]) -> Figure:
    figure, (left, right) = drawing(2)
    heights = range(2, 2 * len(missed["nothing"]) + 2, 2)
    curves(left, heights, missed, STYLES, yscale="log", ylim=(1e-17, 10), xlabel="linear layers in the stack")
    left.set_ylabel("share of the outputs' spread\nthat one layer misses")
    alike = {name: ((bend - bend.mean()) / bend.std()).tolist() for name, bend in bends.items()}
    curves(right, ALONG.tolist(), alike, STYLES, xlabel="place on a line through the inputs")
    right.set_ylabel("one output of two layers\n(mean 0, spread 1)")
    right.legend(title="between them", frameon=False)
    return figure
