"""gradients: what becomes of a gradient on its way back through time?

    h' = tanh(W_xh x + W_hh h)          ∂L/∂h = W_hhᵀ (tanh' · ∂L/∂h'),  once for every step back

Claim (deck N, "Backpropagation through time"; deck R, "BPTT: Vanishing + Exploding Gradients"): the same matrix is
multiplied again and again, so the gradient explodes if the largest eigenvalue of W_hh is above 1 and vanishes if it is
below. Clipping its norm or its values can only stop the explosion.

The `RNN` part does the steps. With nothing to read its state rests at 0, where tanh' is 1, and the eigenvalue is all
there is. While it reads, tanh' is below 1: then the gradient may vanish even where the eigenvalue is above 1, which is
therefore needed for an explosion, but not enough (Pascanu et al. 2013).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from matplotlib.figure import Figure
from torch import Tensor, nn
from torch.nn.utils import clip_grad_value_

from regard.choose import must
from regard.lab.finding import Each, Finding, curves, drawing
from regard.parts.recurrence import RNN
from regard.training.optimizer import scale_and_clip

NEAR = 0.01  # growth and eigenvalue are the same if they differ by no more than this share
FLOAT_ERROR = 1e-5
STYLES = {"as it comes": "k-o", "clipped by norm": "C0--s", "clipped by value": "C1:^"}


@dataclass(frozen=True)
class Knobs:
    eigenvalues: tuple[float, ...] = (0.8, 0.9, 0.95, 1.0, 1.05, 1.1, 1.2)  # sizes of the largest one of W_hh
    steps: int = 100  # how far the gradient goes back
    dim: int = 32  # width of the state
    loud: float = 0.3  # spread of the inputs while it reads
    clip: float = 1.0  # longest gradient that clipping by norm lets through
    largest: float = 0.1  # largest number of a gradient that clipping by value lets through
    seed: int = 1  # of matrix and inputs

    def __post_init__(self) -> None:
        must(self, eigenvalues=(min(self.eigenvalues, default=0) > 0, "one number or more, all above 0"))
        must(self, steps=(self.steps >= 4, "at least 4"), dim=(self.dim >= 1, "at least 1"))
        must(self, clip=(self.clip > 0, "above 0"), largest=(self.largest > 0, "above 0"))


QUICK = Knobs(eigenvalues=(0.8, 1.0, 1.2), steps=60, dim=16)


def run(knobs: Knobs, each: Each) -> Finding:
    torch.manual_seed(knobs.seed)
    matrix = torch.randn(knobs.dim, knobs.dim, dtype=torch.float64)
    matrix /= torch.linalg.eigvals(matrix).abs().max()
    words = torch.randn(knobs.steps + 1, knobs.dim, dtype=torch.float64)
    resting, reading, clipped = {}, {}, {}
    for size in each(knobs.eigenvalues):
        resting[size] = sent_back(size * matrix, 0 * words)
        reading[size] = sent_back(size * matrix, knobs.loud * words)
        clipped[size] = resting[size][-1, 0], *clip(resting[size][-1, 0], knobs)
    at_rest = {size: growth(sent) for size, sent in resting.items()}
    at_work = {size: growth(sent) for size, sent in reading.items()}
    told = {size: [float(one.norm()) for one in three] for size, three in clipped.items()}
    low, high = min(resting), max(resting)
    turned = torch.cosine_similarity(clipped[high][0], clipped[high][2], 0, eps=0).clamp(-1, 1).acos().rad2deg()
    return Finding(
        drawn(resting, reading, told),
        [
            {
                "largest eigenvalue": size,
                "growth of a step back": at_rest[size],
                "while it reads": at_work[size],
                **dict(zip(STYLES, told[size], strict=True)),
            }
            for size in resting
        ],
        says=f"{knobs.steps} steps back the gradient is {lengths(resting[low])[-1]:.1g} times as long if the largest "
        f"eigenvalue is {low:g}, and {lengths(resting[high])[-1]:.1g} times if it is {high:g}: a step is a factor of "
        f"{at_rest[low]:.3f} or {at_rest[high]:.3f}. While the network reads, tanh makes that {at_work[low]:.2f} and "
        f"{at_work[high]:.2f}. Of a gradient of {told[high][0]:.1g}, clipping by norm leaves {told[high][1]:.2g} and "
        f"by value {told[high][2]:.2g}, turned by {turned:.0f}°; one of {told[low][0]:.1g} stays so.",
        wanted="a step back is a factor of the largest eigenvalue: the gradient explodes above 1 and vanishes below, "
        "where clipping does not help",
        holds=all(
            abs(at_rest[size] / size - 1) < NEAR
            and (at_work[size] < 1 or size >= 1)
            and only_explosions_stop(*clipped[size], knobs)
            for size in resting
        ),
    )


def sent_back(matrix: Tensor, words: Tensor) -> Tensor:
    """Gradients of each number of the last state at every word, the last one first: (steps back, numbers, D)."""
    dim = len(matrix)
    rnn = RNN(dim).double()
    with torch.no_grad():
        for weight, value in zip(rnn.parameters(), (torch.eye(dim), matrix, 0, 0), strict=True):
            weight.copy_(torch.as_tensor(value))
    x = words.expand(dim, -1, -1).clone().requires_grad_()  # (D,T,D): a row for each number of the last state
    rnn(x)[:, -1].diagonal().sum().backward()
    assert x.grad is not None
    return x.grad.transpose(0, 1).flip(0)


def lengths(sent: Tensor) -> list[float]:
    """Of all numbers of the last state together, 1 where they begin."""
    norms = torch.linalg.matrix_norm(sent)
    return (norms / norms[0]).tolist()


def growth(sent: Tensor) -> float:
    """The factor of one step back, over the farther half: the first steps still depend on where one starts."""
    norms = torch.linalg.matrix_norm(sent)
    half = len(norms) // 2
    return float((norms[-1] / norms[half]) ** (1 / (len(norms) - 1 - half)))


def clip(gradient: Tensor, knobs: Knobs) -> tuple[Tensor, Tensor]:
    """By norm, as in training, and by value."""
    word = nn.Parameter(torch.zeros_like(gradient))
    word.grad = by_norm = gradient.clone()
    scale_and_clip([word], 1, knobs.clip)
    word.grad = by_value = gradient.clone()
    clip_grad_value_([word], knobs.largest)
    return by_norm, by_value


def only_explosions_stop(gradient: Tensor, by_norm: Tensor, by_value: Tensor, knobs: Knobs) -> bool:
    """By norm it keeps its direction, by value it need not; neither makes a short one longer."""
    shorter = gradient * min(1.0, knobs.clip / float(gradient.norm()))
    smaller = gradient.clamp(-knobs.largest, knobs.largest)
    return torch.allclose(by_norm, shorter, rtol=FLOAT_ERROR, atol=0) and torch.equal(by_value, smaller)


def drawn(resting: dict[float, Tensor], reading: dict[float, Tensor], clipped: dict[float, list[float]]) -> Figure:
    figure, (left, right) = drawing(2)
    sizes, high = list(resting), max(resting)
    for size in sizes:
        left.plot(lengths(resting[size]), "k-", lw=1, label="at rest, by eigenvalue" if size == high else None)
        left.annotate(f"{size:g}", (len(resting[size]), lengths(resting[size])[-1]), va="center", fontsize=8)
    left.plot(lengths(reading[high]), "C1--", label=f"{high:g}, while it reads")
    left.set(yscale="log", xlabel="steps back", ylabel="length of the gradient\n(1 at the last word)")
    left.legend(frameon=False, fontsize=8, loc="lower left")
    kinds = dict(zip(STYLES, zip(*clipped.values(), strict=True), strict=True))
    curves(right, sizes, kinds, STYLES, yscale="log", xlabel="largest eigenvalue of W_hh")
    right.set_ylabel("length of the gradient\nat the first word")
    right.legend(frameon=False, fontsize=8)
    return figure
