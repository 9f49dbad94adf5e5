"""saturation: why attention divides its scores by √d.

    w = softmax(q·k / √d)        ∂w/∂score = diag(w) - w wᵀ, which is 0 where one weight is 1

Claim (deck N, "Attention scoring functions"; Vaswani et al. 2017, section 3.2.1): q·k is a sum of d products, so it
grows as √d; without the scale large scores push the softmax to where its gradient is small. Queries and keys are drawn
with variance 1, as a norm or a good initialisation makes them. The gradient is that of the median query: the few
queries whose two best keys tie keep a gradient, and a mean would hide all the others.
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

from regard.lab.result import LabResult, Tracker, plot_curves, prefixed, subplots, table_rows
from regard.parts import attention_scores
from regard.validate import check_fields, check_minimum

TOLERANCE = 0.1  # relative error of the standard deviation
MAX_RATIO = 1.5  # largest ratio of scaled values over d
MAX_ENTROPY_SHARE = 0.1  # unscaled over scaled entropy at the largest d
MIN_GRADIENT_RATIO = 100.0  # scaled over unscaled gradient there
STYLES = {"q·k": "C1--o", "q·k / √d": "C0-s"}


@dataclass(frozen=True)
class SaturationOptions:
    dims: tuple[int, ...] = (1, 4, 16, 64, 256, 1024)  # widths of queries and keys
    keys: int = 32  # keys per query
    queries: int = 50  # queries per set of keys
    sets: int = 40  # sets of keys
    seed: int = 1  # random seed

    def __post_init__(self) -> None:
        check_fields(self, dims=(len(self.dims) > 1 and min(self.dims) >= 1, "two or more, each at least 1"))
        check_minimum(self, 1, "queries", "sets")
        check_minimum(self, 2, "keys")


QUICK = SaturationOptions(queries=20, sets=20)


class SoftmaxStats(NamedTuple):
    spread: float  # standard deviation of the scores
    entropy: float  # of the weights, in nats, as the mean over queries
    largest: float  # weight, as the mean over queries
    gradient: Tensor  # gradient norm at the scores, by query

    @property
    def median(self) -> float:
        return self.gradient.median().item()


def softmax_stats(scores: Tensor, grad_output: Tensor) -> SoftmaxStats:
    """Statistics of the softmax of scores (...,S), with `grad_output` as gradient at its weights."""
    scores = scores.detach().requires_grad_()
    weights = attention_scores.masked_softmax(scores)
    (gradient,) = torch.autograd.grad(weights, scores, grad_output)
    entropy = torch.special.entr(weights.detach()).sum(-1)
    largest = weights.detach().amax(-1)
    norms = gradient.norm(dim=-1).flatten()
    return SoftmaxStats(scores.std().item(), entropy.mean().item(), largest.mean().item(), norms)


def run(options: SaturationOptions, track: Tracker) -> LabResult:
    torch.manual_seed(options.seed)
    dims, kinds = sorted(options.dims), {"q·k": attention_scores.dot, "q·k / √d": attention_scores.scaled_dot}
    grad_output = torch.randn(options.sets, options.queries, options.keys).double()  # float32 would underflow
    stats: dict[str, list[SoftmaxStats]] = {name: [] for name in kinds}
    for dim in track(dims):
        q = torch.randn(options.sets, options.queries, dim).double()  # (B,T,E)
        k = torch.randn(options.sets, options.keys, dim).double()  # (B,S,E)
        for name, score in kinds.items():
            stats[name].append(softmax_stats(score(q, k), grad_output))
    unscaled, scaled = stats.values()
    spread_holds = all(
        abs(item.spread / math.sqrt(dim) - 1) < TOLERANCE and abs(scaled_item.spread - 1) < TOLERANCE
        for dim, item, scaled_item in zip(dims, unscaled, scaled, strict=True)
    )
    return LabResult(
        plot(dims, stats),
        table_rows(
            {"d": dims, "std of q·k": [item.spread for item in unscaled]},
            prefixed("entropy", {name: [item.entropy for item in items] for name, items in stats.items()}),
            prefixed("largest weight", {name: [item.largest for item in items] for name, items in stats.items()}),
            prefixed("gradient", {name: [item.median for item in items] for name, items in stats.items()}),
        ),
        summary=f"From d = {dims[0]} to {dims[-1]} the standard deviation of q·k grows from {unscaled[0].spread:.1f} "
        f"to {unscaled[-1].spread:.1f}. Without the scale the entropy of the weights falls from "
        f"{unscaled[0].entropy:.2f} to {unscaled[-1].entropy:.2f} nats, and the gradient of the median query from "
        f"{unscaled[0].median:.2g} to {unscaled[-1].median:.2g}; with it they stay at {scaled[-1].entropy:.2f} nats "
        f"and {scaled[-1].median:.2g}.",
        expected="the standard deviation of q·k grows as √d; without the scale entropy falls with every d, below "
        f"{MAX_ENTROPY_SHARE:.0%} of the scaled one, and the gradient below 1/{MIN_GRADIENT_RATIO:.0f} of it; with "
        "the scale neither depends on d",
        holds=spread_holds
        and all(item.entropy > wider.entropy for item, wider in pairwise(unscaled))
        and unscaled[-1].entropy < MAX_ENTROPY_SHARE * scaled[-1].entropy
        and unscaled[-1].median < scaled[-1].median / MIN_GRADIENT_RATIO
        and max(item.entropy for item in scaled) < MAX_RATIO * min(item.entropy for item in scaled)
        and max(item.median for item in scaled) < MAX_RATIO * min(item.median for item in scaled),
    )


def plot(dims: list[int], stats: dict[str, list[SoftmaxStats]]) -> Figure:
    figure, (left, right) = subplots(2)
    entropies = {name: [item.entropy for item in items] for name, items in stats.items()}
    medians = {name: [item.median for item in items] for name, items in stats.items()}
    plot_curves(left, dims, entropies, STYLES, xscale="log", ylim=(0, None), xlabel="d")
    left.set_ylabel("entropy of the weights (nats)")
    plot_curves(right, dims, medians, STYLES, xscale="log", yscale="log", xlabel="d", ylabel="gradient at the scores")
    for name, items in stats.items():
        low, high = np.quantile([item.gradient.numpy() for item in items], (0.25, 0.75), axis=1)
        right.fill_between(dims, low, high, color=STYLES[name][:2], alpha=0.2, linewidth=0)
    left.legend(frameon=False, loc="lower left")
    right.set_title("median and interquartile range")
    return figure
