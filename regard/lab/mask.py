"""mask: how does a decoder not see what it has yet to write?

    weights = softmax(scores + mask),   mask = 0 for the past and itself, -∞ for the future

Claim (deck R, "Self-Attention: Masking"): added before the softmax, -∞ becomes a weight of 0.

The slide then shows the scores themselves in place of the weights: its rows sum to 0.6, 0.8, 0.9 and 1. After a softmax
every row sums to 1, and even the last row, where nothing is hidden, is another: its scores are not its weights. The
same is checked on random tables, and that the future can be anything: whatever its scores are, no bit of a weight
changes.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import torch
from matplotlib.figure import Figure
from torch import Tensor

from regard.lab.result import Each, Finding, at_least, drawing, grid, rows
from regard.parts.attention import attend, weights_openly

WORDS = ("<SOS>", "it", "is", "11")
SCORES = torch.tensor([[0.6, 0.1, 0.2, 0.1], [0.1, 0.7, 0.1, 0.1], [0.1, 0.2, 0.6, 0.1], [0.1, 0.2, 0.2, 0.5]])
FLOAT_ERROR = 1e-6  # of a row of weights


@dataclass(frozen=True)
class Knobs:
    tables: int = 1000  # random ones, beside the deck's
    tokens: int = 12  # in a random table
    seed: int = 1  # of the random tables

    def __post_init__(self) -> None:
        at_least(1, self, "tables")
        at_least(2, self, "tokens")


QUICK = Knobs(tables=50)


class Worst(NamedTuple):
    sum: float  # how far a row is from a sum of 1
    future: float  # a weight of what is yet to come
    formula: float  # how far a weight is from the softmax done by hand
    kernel: float  # how far from it a weight of the fused kernel is
    leak: float  # how much a weight changes with the scores of what is yet to come


def run(knobs: Knobs, each: Each) -> Finding:
    draw = torch.Generator().manual_seed(knobs.seed)
    found = [worst(SCORES, draw)]
    for _ in each(range(knobs.tables)):
        found.append(worst(3 * torch.randn(knobs.tokens, knobs.tokens, generator=draw), draw))
    most = Worst(*(max(column) for column in zip(*found, strict=True)))
    weights, slide = masked(SCORES), SCORES.tril()
    return Finding(
        drawn(weights),
        rows(
            {"weights of": WORDS, **dict(zip(WORDS, weights.T.tolist(), strict=True))},
            {"sum": weights.sum(-1).tolist(), "on the slide": slide.sum(-1).tolist()},
        ),
        says=f"The slide's rows sum to {listed(slide.sum(-1), 1)}: they are scores, not weights. After the softmax all "
        f"rows of this table and of {knobs.tables} random ones sum to 1 within {most.sum:.0g}. Words yet to come weigh "
        f"at most {most.future:g}, and with other scores for them a weight changes by at most {most.leak:g}. The last "
        f"row, where nothing is hidden, is {listed(weights[-1], 2)}: not its scores either.",
        wanted="every row sums to 1, the future weighs nothing, and what its scores are makes no difference",
        holds=max(most.sum, most.formula, most.kernel) < FLOAT_ERROR and most.future == most.leak == 0,
    )


def masked(scores: Tensor) -> Tensor:
    return weights_openly(*as_attention(scores), causal=True, scale=1.0)[0, 0]


def as_attention(scores: Tensor) -> tuple[Tensor, Tensor]:
    """Queries and keys with these scores: each key asks for one number of the query, (1,1,T,T) both."""
    return scores[None, None], torch.eye(len(scores))[None, None]


def by_hand(scores: Tensor) -> Tensor:
    """Number by number, and only of what may be seen."""
    weights = torch.zeros_like(scores)
    for t, row in enumerate(scores.tolist()):
        powers = [math.exp(score) for score in row[: t + 1]]
        weights[t, : t + 1] = torch.tensor([power / sum(powers) for power in powers])
    return weights


def worst(scores: Tensor, draw: torch.Generator) -> Worst:
    weights, right = masked(scores), by_hand(scores)
    q, k = as_attention(scores)
    kernel = attend(q, k, k, causal=True, scale=1.0)[0, 0]  # of values that are one-hot, its weights remain
    other_future = scores + 9 * torch.randn(scores.shape, generator=draw).triu(1)
    off = (weights.sum(-1) - 1, weights.triu(1), weights - right, kernel - right, weights - masked(other_future))
    return Worst(*(one.abs().max().item() for one in off))


def listed(numbers: Tensor, digits: int) -> str:
    return ", ".join(f"{number:.{digits}f}" for number in numbers)


def drawn(weights: Tensor) -> Figure:
    figure, (left, right) = drawing(2)
    for axes, table, hidden, title in (
        (left, SCORES, "-∞", "masked scores; with 0 for -∞,\nthe slide gives them as weights"),
        (right, weights, "0", "weights after the softmax"),
    ):
        grid(axes, table.tril(), 1.0, WORDS, WORDS, title, hidden)
        sums = axes.secondary_yaxis("right")
        sums.set_yticks(range(len(WORDS)), [f"Σ = {row.sum():.2f}" for row in table.tril()])
    return figure
