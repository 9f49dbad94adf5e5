"""mask: how does a decoder not attend to tokens that it has yet to predict?

    weights = softmax(scores + mask),   mask = 0 for the past and itself, -∞ for the future

Claim (deck R, "Self-Attention: Masking"): added before the softmax, -∞ becomes a weight of 0.

The slide then shows the scores themselves in place of the weights: its rows sum to 0.6, 0.8, 0.9 and 1. After a softmax
every row sums to 1, and even the last row, where nothing is masked, differs: its scores are not its weights. The
experiment checks the same on random tables, and that scores of future tokens change no bit of a weight.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import torch
from matplotlib.figure import Figure
from torch import Tensor

from regard.lab.result import LabResult, Tracker, plot_table, subplots, table_rows
from regard.parts.attention import attend, attention_weights
from regard.validate import check_minimum

WORDS = ("<SOS>", "it", "is", "11")
SCORES = torch.tensor([[0.6, 0.1, 0.2, 0.1], [0.1, 0.7, 0.1, 0.1], [0.1, 0.2, 0.6, 0.1], [0.1, 0.2, 0.2, 0.5]])
FLOAT_ERROR = 1e-6  # of a row of weights


@dataclass(frozen=True)
class MaskOptions:
    tables: int = 1000  # random tables, beside the deck's
    tokens: int = 12  # tokens per random table
    seed: int = 1  # random seed

    def __post_init__(self) -> None:
        check_minimum(self, 1, "tables")
        check_minimum(self, 2, "tokens")


QUICK = MaskOptions(tables=50)


class MaxErrors(NamedTuple):
    sum: float  # difference of a row's sum from 1
    future: float  # weight of a future token
    formula: float  # difference from the softmax by hand
    kernel: float  # difference of the fused kernel from it
    leak: float  # change of a weight with the scores of future tokens


def run(options: MaskOptions, track: Tracker) -> LabResult:
    generator = torch.Generator().manual_seed(options.seed)
    errors = [max_errors(SCORES, generator)]
    for _ in track(range(options.tables)):
        errors.append(max_errors(3 * torch.randn(options.tokens, options.tokens, generator=generator), generator))
    maximum = MaxErrors(*(max(column) for column in zip(*errors, strict=True)))
    weights, slide = masked(SCORES), SCORES.tril()
    return LabResult(
        plot(weights),
        table_rows(
            {"weights of": WORDS, **dict(zip(WORDS, weights.T.tolist(), strict=True))},
            {"sum": weights.sum(-1).tolist(), "on the slide": slide.sum(-1).tolist()},
        ),
        summary=f"The slide's rows sum to {listed(slide.sum(-1), 1)}: they are scores, not weights. After the "
        f"softmax all rows of this table and of {options.tables} random ones sum to 1 within {maximum.sum:.0g}. "
        f"Future tokens have a weight of at most {maximum.future:g}, and other scores for them change a weight by at "
        f"most {maximum.leak:g}. The last row, where nothing is masked, is {listed(weights[-1], 2)}: not its scores "
        "either.",
        expected="every row sums to 1, future tokens have weight 0, and their scores make no difference",
        holds=max(maximum.sum, maximum.formula, maximum.kernel) < FLOAT_ERROR and maximum.future == maximum.leak == 0,
    )


def masked(scores: Tensor) -> Tensor:
    return attention_weights(*as_attention(scores), causal=True, scale=1.0)[0, 0]


def as_attention(scores: Tensor) -> tuple[Tensor, Tensor]:
    """Queries and keys with these scores: each key selects one component of the query, (1,1,T,T) both."""
    return scores[None, None], torch.eye(len(scores))[None, None]


def by_hand(scores: Tensor) -> Tensor:
    """The softmax over visible tokens, number by number."""
    weights = torch.zeros_like(scores)
    for t, row in enumerate(scores.tolist()):
        powers = [math.exp(score) for score in row[: t + 1]]
        weights[t, : t + 1] = torch.tensor([power / sum(powers) for power in powers])
    return weights


def max_errors(scores: Tensor, generator: torch.Generator) -> MaxErrors:
    weights, expected = masked(scores), by_hand(scores)
    q, k = as_attention(scores)
    kernel = attend(q, k, k, causal=True, scale=1.0)[0, 0]  # with one-hot values the output is the weights
    other_future = scores + 9 * torch.randn(scores.shape, generator=generator).triu(1)
    differences = (
        weights.sum(-1) - 1,
        weights.triu(1),
        weights - expected,
        kernel - expected,
        weights - masked(other_future),
    )
    return MaxErrors(*(difference.abs().max().item() for difference in differences))


def listed(numbers: Tensor, digits: int) -> str:
    return ", ".join(f"{number:.{digits}f}" for number in numbers)


def plot(weights: Tensor) -> Figure:
    figure, (left, right) = subplots(2)
    for axes, table, hidden, title in (
        (left, SCORES, "-∞", "masked scores; with 0 for -∞,\nthe slide gives them as weights"),
        (right, weights, "0", "weights after the softmax"),
    ):
        plot_table(axes, table.tril(), 1.0, WORDS, WORDS, title, hidden)
        sums = axes.secondary_yaxis("right")
        sums.set_yticks(range(len(WORDS)), [f"Σ = {row.sum():.2f}" for row in table.tril()])
    return figure
