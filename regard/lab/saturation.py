"""saturation: why attention divides its scores by √d.

    w = softmax(q·k / √d)        ∂w/∂score = diag(w) - w wᵀ, which is 0 where one weight is 1

Claim (deck N, "Attention scoring functions"; Vaswani et al. 2017, section 3.2.1): q·k is a sum of d products, so it
grows as √d; without the scale large scores push the softmax to where its gradient is small. Queries and keys are drawn
with variance 1, as a norm or a good start makes them. The gradient is that of the median query: the few whose two best
keys are level still learn, and a mean would hide all the others.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import torch
from matplotlib.figure import Figure
from torch import Tensor

from regard.choose import must
from regard.lab.result import Each, Finding, at_least, curves, drawing, rows, under
from regard.parts import scoring

NEAR = 0.1  # to the spread that d predicts
STEADY = 1.5  # times, at most, that what is scaled differs from d to d
SHARP = 0.1  # of the scaled entropy, at most, is left without the scale at the largest d
DEAD = 100.0  # times, at least, that the scaled gradient is larger there
STYLES = {"q·k": "C1--o", "q·k / √d": "C0-s"}


@dataclass(frozen=True)
class Knobs:
    dims: tuple[int, ...] = (1, 4, 16, 64, 256, 1024)  # widths of a query and a key
    keys: int = 32  # that a query chooses from
    queries: int = 50  # that choose from the same keys
    sets: int = 40  # of keys
    seed: int = 1  # of everything random

    def __post_init__(self) -> None:
        must(self, dims=(len(self.dims) > 1 and min(self.dims) >= 1, "two or more, each at least 1"))
        at_least(1, self, "queries", "sets")
        at_least(2, self, "keys")


QUICK = Knobs(queries=20, sets=20)


class Softmax(NamedTuple):
    spread: float  # standard deviation of the scores
    entropy: float  # of the weights, in nats, as the mean over queries
    largest: float  # weight, as the mean over queries
    gradient: Tensor  # how much of it reaches the scores, by query

    @property
    def median(self) -> float:
        return self.gradient.median().item()


def softmax_of(scores: Tensor, asked: Tensor) -> Softmax:
    """What the softmax makes of scores (...,S), and of the gradient that its weights are `asked` to follow."""
    scores = scores.detach().requires_grad_()
    weights = scoring.weights_of(scores)
    (gradient,) = torch.autograd.grad(weights, scores, asked)
    entropy = torch.special.entr(weights.detach()).sum(-1)
    largest = weights.detach().amax(-1)
    return Softmax(scores.std().item(), entropy.mean().item(), largest.mean().item(), gradient.norm(dim=-1).flatten())


def run(knobs: Knobs, each: Each) -> Finding:
    torch.manual_seed(knobs.seed)
    dims, kinds = sorted(knobs.dims), {"q·k": scoring.dot, "q·k / √d": scoring.scaled_dot}
    asked = torch.randn(knobs.sets, knobs.queries, knobs.keys).double()  # small gradients would drown in float error
    found: dict[str, list[Softmax]] = {name: [] for name in kinds}
    for dim in each(dims):
        q = torch.randn(knobs.sets, knobs.queries, dim).double()  # (B,T,E)
        k = torch.randn(knobs.sets, knobs.keys, dim).double()  # (B,S,E)
        for name, score in kinds.items():
            found[name].append(softmax_of(score(q, k), asked))
    bare, scaled = found.values()
    spreads_as_told = all(
        abs(one.spread / math.sqrt(dim) - 1) < NEAR and abs(other.spread - 1) < NEAR
        for dim, one, other in zip(dims, bare, scaled, strict=True)
    )
    return Finding(
        drawn(dims, found),
        rows(
            {"d": dims, "spread of q·k": [one.spread for one in bare]},
            under("entropy", {name: [one.entropy for one in several] for name, several in found.items()}),
            under("largest weight", {name: [one.largest for one in several] for name, several in found.items()}),
            under("gradient", {name: [one.median for one in several] for name, several in found.items()}),
        ),
        says=f"From d = {dims[0]} to {dims[-1]} the spread of q·k grows from {bare[0].spread:.1f} to"
        f" {bare[-1].spread:.1f}. Without the scale the entropy of the weights falls from {bare[0].entropy:.2f} to"
        f" {bare[-1].entropy:.2f} nats, and the gradient of the median query from {bare[0].median:.2g} to"
        f" {bare[-1].median:.2g}; with it they stay at {scaled[-1].entropy:.2f} nats and {scaled[-1].median:.2g}.",
        wanted=f"q·k spreads as √d; without the scale entropy falls with every d, below {SHARP:.0%} of the scaled one,"
        f" and the gradient below 1/{DEAD:.0f} of it; with the scale neither depends on d",
        holds=spreads_as_told
        and all(one.entropy > wider.entropy for one, wider in pairwise(bare))
        and bare[-1].entropy < SHARP * scaled[-1].entropy
        and bare[-1].median < scaled[-1].median / DEAD
        and max(one.entropy for one in scaled) < STEADY * min(one.entropy for one in scaled)
        and max(one.median for one in scaled) < STEADY * min(one.median for one in scaled),
    )


def drawn(dims: list[int], found: dict[str, list[Softmax]]) -> Figure:
    figure, (left, right) = drawing(2)
    entropies = {name: [one.entropy for one in several] for name, several in found.items()}
    medians = {name: [one.median for one in several] for name, several in found.items()}
    curves(left, dims, entropies, STYLES, xscale="log", ylim=(0, None), xlabel="d")
    left.set_ylabel("entropy of the weights (nats)")
    curves(right, dims, medians, STYLES, xscale="log", yscale="log", xlabel="d", ylabel="gradient at the scores")
    for name, several in found.items():
        low, high = np.quantile([one.gradient.numpy() for one in several], (0.25, 0.75), axis=1)
        right.fill_between(dims, low, high, color=STYLES[name][:2], alpha=0.2, linewidth=0)
    left.legend(frameon=False, loc="lower left")
    right.set_title("median and middle half")
    return figure
