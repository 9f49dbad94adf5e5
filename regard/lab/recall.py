"""recall: who was named, many words ago?

    a name, then chatter of so many words, then the question          "Ann  la la la … la  who?" → Ann

Claim (deck R, "Limitations of Recurrent Models" and "Attention: Text Generation"; deck N, "Long-short term memory"):
an RNN has a short memory because its gradient vanishes, LSTMs have a longer one, and attention reaches back as far as
one likes. Deck N, "Backpropagation through time": truncation cuts off what is older, clipping can only stop explosions.

Each body learns each distance from nothing, with the same lessons. The gradients are those before the first of them.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from matplotlib.figure import Figure
from torch import Tensor

from regard.choose import must
from regard.lab.optimize import gradient_at_words, learn
from regard.lab.result import Each, Finding, at_least, curves, drawing, legend_below, of_the_first
from regard.lab.sequence_models import remembering
from regard.lab.synthetic_tasks import named
from regard.parts.heads import Model

KNOWS, GUESSES = 0.9, 0.5  # share of right answers: at least, and below
ENOUGH = 0.05  # a loss at which there is no more to learn
NOT_CLIPPED, TRUNCATED = "RNN, not clipped", "LSTM, truncated"
STYLES = {"RNN": "k-o", NOT_CLIPPED: "k:x", "GRU": "C0-s", "LSTM": "C2-^", TRUNCATED: "C2:v", "Transformer": "C1--D"}


@dataclass(frozen=True)
class Knobs:
    distances: tuple[int, ...] = (2, 4, 8, 16, 32, 64)  # words between the name and the question
    names: int = 8  # different names, and as many other words
    dim: int = 32  # width of words and states
    batch: int = 32  # examples in a lesson
    steps: int = 200  # most lessons
    rate: float = 0.02  # learning rate
    clip: float = 1.0  # longest gradient
    truncate: int = 8  # words after which the truncated LSTM's gradient stops
    seed: int = 1  # of weights and words

    def __post_init__(self) -> None:
        must(self, distances=(len(self.distances) > 0 and min(self.distances) >= 1, "one number or more, from 1"))
        must(self, dim=(self.dim >= 4 and self.dim % 4 == 0, "a multiple of 4"), names=(self.names >= 3, "at least 3"))
        at_least(1, self, "truncate")


QUICK = Knobs(distances=(3, 10), names=4, dim=24, batch=16, steps=60)


def run(knobs: Knobs, each: Each) -> Finding:
    distances = sorted(set(knobs.distances))
    right = {kind: [taught(kind, distance, knobs) for distance in distances] for kind in each(list(STYLES))}
    reach = {kind: farthest(distances, shares) for kind, shares in right.items()}
    sizes = {kind: gradient_sizes(kind, distances[-1], knobs) for kind in STYLES if kind != NOT_CLIPPED}
    faded = {kind: size[-1] for kind, size in sizes.items()}  # what reaches the name
    asked = [f"right at {distance}" for distance in distances]
    return Finding(
        drawn(distances, right, sizes, 1 / knobs.names),
        [{"body": kind, **dict(zip(asked, shares, strict=True))} for kind, shares in right.items()],
        says=f"The RNN recalls a name over up to {reach['RNN']} words, the GRU over {reach['GRU']}, the LSTM over "
        f"{reach['LSTM']}, the Transformer over {reach['Transformer']}. Of the gradient at the question's neighbour, "
        f"{faded['RNN']:.0e} reaches a name {distances[-1]} words away in an RNN, {faded['GRU']:.0e} in a GRU, "
        f"{faded['LSTM']:.0e} in an LSTM and {faded['Transformer']:.1f} in a Transformer. Truncated every "
        f"{knobs.truncate} words, the LSTM reaches {reach[TRUNCATED]}; without clipping, the RNN {reach[NOT_CLIPPED]}.",
        wanted="the RNN forgets first and the Transformer not at all, and so do their gradients vanish, with GRU and "
        "LSTM between them; truncation shortens the reach of an LSTM, clipping does not lengthen that of an RNN",
        holds=reach["RNN"] < min(reach["GRU"], reach["LSTM"])
        and reach["Transformer"] == distances[-1]
        and max(right["RNN"][-1], right[NOT_CLIPPED][-1]) < GUESSES
        and faded["RNN"] < min(faded["GRU"], faded["LSTM"])
        and max(faded["GRU"], faded["LSTM"]) < faded["Transformer"] / 2
        and reach[TRUNCATED] < reach["LSTM"]
        and faded[TRUNCATED] == 0,
    )


def new(kind: str, distance: int, knobs: Knobs) -> Model:
    torch.manual_seed(knobs.seed)
    vocab = 2 * knobs.names + 2  # with "who?" and the padding, which never comes
    cut = knobs.truncate if kind == TRUNCATED else 0
    return remembering(kind.split(",")[0], vocab, distance + 2, knobs.dim, knobs.names, cut)


def taught(kind: str, distance: int, knobs: Knobs) -> float:
    """The share of new examples that it gets right after its lessons."""
    model = new(kind, distance, knobs)
    torch.manual_seed(knobs.seed)  # the same lessons for every body
    clip = 0.0 if kind == NOT_CLIPPED else knobs.clip
    learn(model, lambda: loss(model, distance, knobs), [knobs.rate] * knobs.steps, clip, ENOUGH)
    words, names = named(256, distance, knobs.names)
    with torch.no_grad():
        return float((model(words).argmax(-1) == names).float().mean())


def loss(model: Model, distance: int, knobs: Knobs) -> Tensor:
    words, names = named(knobs.batch, distance, knobs.names)
    return F.cross_entropy(model(words), names)


def farthest(distances: list[int], right: list[float]) -> int:
    """The distance up to which every one is known."""
    return max((distance for i, distance in enumerate(distances) if min(right[: i + 1]) >= KNOWS), default=0)


def gradient_sizes(kind: str, distance: int, knobs: Knobs) -> list[float]:
    """At each word from the question's neighbour back to the name, where that of the neighbour is 1."""
    model = new(kind, distance, knobs)
    sizes = gradient_at_words(model, lambda: loss(model, distance, knobs))[:-1].flip(0)  # (T-1,)
    return of_the_first(sizes)  # 0 everywhere if the cut is beside the question


def drawn(distances: list[int], shares: dict[str, list[float]], sizes: dict[str, list[float]], guess: float) -> Figure:
    figure, (left, right) = drawing(2, 3.8)
    curves(left, distances, shares, STYLES, xscale="log", ylim=(0, 1.05), xlabel="words between name and question")
    left.axhline(guess, color="0.7", lw=0.8, zorder=0)
    left.set_ylabel("share of right answers\n(grey: by chance)")
    curves(right, range(1, distances[-1] + 2), sizes, STYLES, yscale="log", xlabel="words back from the question")
    right.set_ylabel("gradient at a word\n(1 beside the question)")
    legend_below(figure, left)
    return figure
