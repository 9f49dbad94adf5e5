"""recall: who was named, many words ago?

    a name, then chatter of so many words, then the question          "Ann  la la la … la  who?" → Ann

Claim (deck R, "Limitations of Recurrent Models" and "Attention: Text Generation"; deck N, "Long-short term memory"):
an RNN has a short memory because its gradient vanishes, LSTMs have a longer one, and attention reaches back as far as
one likes. Deck N, "Backpropagation through time": truncation cuts off what is older, clipping can only stop explosions.

Each body learns each distance from nothing, with the same lessons, and stops early when it knows. The gradient at each
word is that of a body that has learnt nothing yet: this is all it has to begin with.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product, takewhile
from typing import Literal

import torch
import torch.nn.functional as F
from matplotlib.figure import Figure
from torch import Tensor

from regard.choose import must
from regard.lab.finding import Each, Finding, curves, drawing, legend_below, tick
from regard.lab.learning import learn
from regard.look import look
from regard.models.gpt import GPT, GPTConfig
from regard.models.recurrent import RecurrentConfig, Writer
from regard.parts.heads import Classifier, Model
from regard.parts.pooling import Last

KNOWS, GUESSES = 0.9, 0.5  # share of right answers: at least, and below
ENOUGH = 0.05  # a loss at which there is no more to learn
NOT_CLIPPED, TRUNCATED = "RNN, not clipped", "LSTM, truncated"
CELLS: dict[str, Literal["rnn", "gru", "lstm"]]
CELLS = {"RNN": "rnn", NOT_CLIPPED: "rnn", "GRU": "gru", "LSTM": "lstm", TRUNCATED: "lstm"}
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
        must(self, names=(self.names >= 3, "at least 3"), truncate=(self.truncate >= 1, "at least 1"))
        must(self, dim=(self.dim >= 4 and self.dim % 4 == 0, "a multiple of 4"))


QUICK = Knobs(distances=(3, 10), names=4, dim=24, batch=16, steps=60)


def run(knobs: Knobs, each: Each) -> Finding:
    distances = sorted(set(knobs.distances))
    right: dict[str, list[float]] = {kind: [] for kind in STYLES}
    for distance, kind in each(list(product(distances, STYLES))):
        right[kind].append(taught(kind, distance, knobs))
    reach = {kind: farthest(distances, shares) for kind, shares in right.items()}
    sizes = {kind: gradient_sizes(kind, distances[-1], knobs) for kind in STYLES if kind != NOT_CLIPPED}
    faded = {kind: size[-1] for kind, size in sizes.items()}  # what reaches the name
    return Finding(
        drawn(distances, right, sizes, 1 / knobs.names),
        [
            {"body": kind, **{f"right at {d}": share for d, share in zip(distances, right[kind], strict=True)}}
            for kind in STYLES
        ],
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


def examples(count: int, distance: int, knobs: Knobs) -> tuple[Tensor, Tensor]:
    """(B,T) words and the names asked for, (B,). The names come first in the vocabulary, then chatter, then "who?"."""
    name = torch.randint(knobs.names, (count, 1))
    chatter = torch.randint(knobs.names, 2 * knobs.names, (count, distance))
    return torch.cat((name, chatter, torch.full_like(name, 2 * knobs.names)), 1), name[:, 0]


def new(kind: str, distance: int, knobs: Knobs) -> Model:
    torch.manual_seed(knobs.seed)
    vocab, dim = 2 * knobs.names + 2, knobs.dim  # with "who?" and the padding, which never comes
    head = Classifier(dim, knobs.names, Last())
    if kind == "Transformer":
        return Model(GPT(GPTConfig(vocab, distance + 2, dim, layers=1, heads=4, hidden=2 * dim, dropout=0.0)), head)
    cut = knobs.truncate if kind == TRUNCATED else 0
    return Model(Writer(RecurrentConfig(vocab, dim=dim, layers=1, cell=CELLS[kind], truncate=cut, dropout=0.0)), head)


def taught(kind: str, distance: int, knobs: Knobs) -> float:
    """The share of new examples that it gets right after its lessons."""
    model = new(kind, distance, knobs)
    torch.manual_seed(knobs.seed)  # the same lessons for every body

    def lesson() -> Tensor:
        words, names = examples(knobs.batch, distance, knobs)
        return F.cross_entropy(model(words), names)

    learn(model, lesson, [knobs.rate] * knobs.steps, 0.0 if kind == NOT_CLIPPED else knobs.clip, enough=ENOUGH)
    words, names = examples(256, distance, knobs)
    with torch.no_grad():
        return float((model(words).argmax(-1) == names).float().mean())


def farthest(distances: list[int], right: list[float]) -> int:
    """The distance up to which every one is known."""
    known = takewhile(lambda pair: pair[1] >= KNOWS, zip(distances, right, strict=True))
    return max((distance for distance, _ in known), default=0)


def gradient_sizes(kind: str, distance: int, knobs: Knobs) -> list[float]:
    """At each word from the question's neighbour back to the name, where that of the neighbour is 1."""
    model = new(kind, distance, knobs)
    words, names = examples(knobs.batch, distance, knobs)
    with look(model, gradients=True) as seen:
        loss = F.cross_entropy(model(words), names)
    sizes = torch.autograd.grad(loss, seen["body.tokens"])[0].norm(dim=-1).mean(0)[:-1].flip(0)  # (T-1,)
    return (sizes / sizes[0]).nan_to_num().tolist()  # 0 everywhere if the cut is beside the question


def drawn(distances: list[int], shares: dict[str, list[float]], sizes: dict[str, list[float]], guess: float) -> Figure:
    figure, (left, right) = drawing(2, 3.8)
    curves(left, distances, shares, STYLES, xscale="log", ylim=(0, 1.05), xlabel="words between name and question")
    left.axhline(guess, color="0.7", lw=0.8, zorder=0)
    left.set_ylabel("share of right answers\n(grey: by chance)")
    tick(left, *distances)
    curves(right, range(1, distances[-1] + 2), sizes, STYLES, yscale="log", xlabel="words back from the question")
    right.set_ylabel("gradient at a word\n(1 beside the question)")
    legend_below(figure, left)
    return figure
