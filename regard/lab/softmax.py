"""softmax: how do scores become weights?

    weightᵢ = exp(sᵢ) / Σⱼ exp(sⱼ),   sᵢ = q·kᵢ / √d

Claim (deck A, "Calculating Self-Attention"): the scores 112 and 96 of keys that are 64 wide
become 14 and 12, and then weights of 0.88 and 0.12. The rounding is right.

Claim (deck T, "Attention is all you need"): the scores 1, 1, 1, 5 become weights of 0.05,
0.05, 0.05, 0.85. This is a slip: they become 0.02, 0.02, 0.02, 0.95. The slide's numbers
belong to scores that were divided by √2 first, which the slide does not do.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from matplotlib.figure import Figure
from torch import Tensor

from regard.lab.result import LabResult, Row, Tracker, subplots
from regard.parts.attention import attend
from regard.parts.attention_scores import masked_softmax, scaled_dot
from regard.validate import check_fields

DECK_A, DECK_T = (112.0, 96.0), (1.0, 1.0, 1.0, 5.0)  # scores
SLIDE_A, SLIDE_T = [0.88, 0.12], [0.05, 0.05, 0.05, 0.85]  # weights on the slides
CORRECT_T = [0.02, 0.02, 0.02, 0.95]
ROUNDING = 0.005  # largest rounding error of two digits
WIDTHS = [2**power for power in range(13)]


@dataclass(frozen=True)
class SoftmaxOptions:
    width: int = 64  # key width: the scores of deck A are divided by its square root

    def __post_init__(self) -> None:
        check_fields(self, width=(self.width >= 1, "at least 1"))


QUICK = SoftmaxOptions()


def run(options: SoftmaxOptions, track: Tracker) -> LabResult:
    q, k = query_and_keys(DECK_A, options.width)
    scaled, weights = scaled_dot(q, k)[0], masked_softmax(scaled_dot(q, k))[0]
    kernel = attend(q[None, None], k[None, None], torch.eye(2, dtype=q.dtype)[None, None])[0, 0, 0]
    plain, softer = (
        masked_softmax(torch.tensor(DECK_T, dtype=q.dtype) / divisor).tolist() for divisor in (1, math.sqrt(2))
    )
    max_error = max(abs(slide - weight) for slide, weight in zip(SLIDE_T, plain, strict=True))
    curve = [masked_softmax(scaled_dot(*query_and_keys(DECK_A, width)))[0, 0].item() for width in track(WIDTHS)]
    table = [
        *deck_rows("A", DECK_A, scaled.tolist(), weights.tolist(), SLIDE_A),
        *deck_rows("T", DECK_T, DECK_T, plain, SLIDE_T),
    ]
    return LabResult(
        plot(curve, options.width, weights[0].item(), plain),
        table,
        summary=f"112 and 96 become {scaled[0]:.4g} and {scaled[1]:.4g}, and then {weights[0]:.4f} and "
        f"{weights[1]:.4f}; deck A has 0.88 and 0.12. 1, 1, 1, 5 become {plain[0]:.4f} three times and "
        f"{plain[-1]:.4f}; deck T's 0.05 and 0.85 are off by up to {max_error:.2f}. They fit scores divided by √2, "
        f"which give {softer[0]:.3f} and {softer[-1]:.3f}.",
        expected="14 and 12, then 0.88 and 0.12; and 0.02, 0.02, 0.02, 0.95, not 0.05, 0.05, 0.05, 0.85",
        holds=scaled.tolist() == [14, 12]
        and round2(weights.tolist()) == SLIDE_A
        and round2(kernel.tolist()) == SLIDE_A
        and round2(plain) == CORRECT_T
        and max_error > ROUNDING,
    )


def query_and_keys(scores: Sequence[float], width: int) -> tuple[Tensor, Tensor]:
    """A query of ones, and keys whose dot products with it are these scores."""
    q = torch.ones(1, width, dtype=torch.float64)
    return q, torch.tensor(scores, dtype=q.dtype)[:, None].expand(-1, width) / width  # (1,E) and (S,E)


def round2(weights: Sequence[float]) -> list[float]:
    return [round(weight, 2) for weight in weights]


def deck_rows(deck: str, *columns: Sequence[float]) -> list[Row]:
    names = ("score", "after scaling", "weight", "on the slide")
    return [{"deck": deck, **dict(zip(names, row, strict=True))} for row in zip(*columns, strict=True)]


def plot(curve: list[float], width: int, weight: float, plain: list[float]) -> Figure:
    figure, (left, right) = subplots(2)
    left.semilogx(WIDTHS, curve, "k-", base=2)
    left.plot(width, weight, "o", color="C3")
    left.annotate(f"d = {width}: {weight:.2f}", (width, weight), (8, 4), textcoords="offset points")
    left.set_xlabel("key width d")
    left.set_ylabel("weight of the score 112\nbeside 96, both divided by √d")
    left.set_ylim(0.45, 1.05)
    positions = torch.arange(len(plain)).numpy()
    for shift, heights, name, colour in ((-0.2, plain, "softmax", "0.25"), (0.2, SLIDE_T, "slide of deck T", "C1")):
        bars = right.bar(positions + shift, heights, 0.4, color=colour, label=name)
        right.bar_label(bars, [f"{height:.2f}" for height in heights], fontsize=8)
    right.set_xticks(positions, [f"{score:g}" for score in DECK_T])
    right.set(xlabel="score", ylabel="weight", ylim=(0, 1.05))
    right.legend(frameon=False, loc="upper left")
    return figure
