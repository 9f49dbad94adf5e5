"""gradients: what becomes of a gradient on its way back through time?

    h' = tanh(W_xh x + W_hh h)          ∂L/∂h = W_hhᵀ (tanh' · ∂L/∂h'),  once for every step back

Claim (deck N, "Backpropagation through time"; deck R, "BPTT: Vanishing + Exploding Gradients"): the same matrix is
multiplied again and again, so the gradient explodes if the largest eigenvalue of W_hh is above 1 and vanishes if it is
below. Clipping its norm or its values can only stop the explosion.

The `RNN` part does the steps. With nothing to read its state rests at 0, where tanh' is 1, and the eigenvalue is all
there is. While it reads, tanh' is below 1, and the gradient may vanish all the same: an eigenvalue above 1 is needed
for an explosion, but not enough (Pascanu et al. 2013).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from matplotlib.figure import Figure
from torch import Tensor, nn
from torch.linalg import matrix_norm
from torch.nn.utils import clip_grad_value_

from regard.choose import must
from regard.lab.result import Each, Finding, curves, drawing, of_the_first, per_step, rows
from regard.parts.recurrence import RNN
from regard.training.optimizer import scale_and_clip

NEAR, FLOAT_ERROR = 0.01, 1e-5  # shares by which a growth, or a gradient, may differ from what is told
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
    for size in each(sorted(knobs.eigenvalues)):
        sent = sent_back(size * matrix, 0 * words)
        resting[size], clipped[size] = of_the_first(matrix_norm(sent)), clip(sent[-1, 0], knobs)
        reading[size] = of_the_first(matrix_norm(sent_back(size * matrix, knobs.loud * words)))
    half = (knobs.steps + 1) // 2  # the first steps still depend on where one starts
    at_rest, at_work = ([per_step(found[size], half) for size in found] for found in (resting, reading))
    told = {kind: [float(three[kind].norm()) for three in clipped.values()] for kind in STYLES}
    low, high = min(resting), max(resting)
    whole, _, by_value = clipped[high].values()
    turned = torch.cosine_similarity(whole, by_value, 0, eps=0).clamp(-1, 1).acos().rad2deg()
    return Finding(
        drawn(resting, reading[high], told),
        rows({"largest eigenvalue": resting, "growth of a step back": at_rest, "while it reads": at_work}, told),
        says=f"{knobs.steps} steps back the gradient is {resting[low][-1]:.1g} times as long if the largest eigenvalue "
        f"is {low:g}, and {resting[high][-1]:.1g} times if it is {high:g}: a step is a factor of {at_rest[0]:.3f} or "
        f"{at_rest[-1]:.3f}. While the network reads, tanh makes that {at_work[0]:.2f} and {at_work[-1]:.2f}. Of a "
        f"gradient of {whole.norm():.1g}, clipping by norm leaves {told['clipped by norm'][-1]:.2g} and by value "
        f"{by_value.norm():.2g}, turned by {turned:.0f}°; one of {told['as it comes'][0]:.1g} stays so.",
        wanted="a step back is a factor of the largest eigenvalue: the gradient explodes above 1 and vanishes below, "
        "where clipping does not help",
        holds=all(
            abs(rest / size - 1) < NEAR and (work < 1 or size >= 1) and only_explosions_stop(knobs, *three.values())
            for (size, three), rest, work in zip(clipped.items(), at_rest, at_work, strict=True)
        ),
    )


def sent_back(matrix: Tensor, words: Tensor) -> Tensor:
    """Gradients of each number of the last state at every word, the last one first: (steps back, numbers, D)."""
    rnn = RNN(len(matrix)).double()
    with torch.no_grad():
        for weight, value in zip(rnn.parameters(), (torch.eye(len(matrix)), matrix, 0, 0), strict=True):
            weight.copy_(torch.as_tensor(value))
    x = words.expand(len(matrix), -1, -1).clone().requires_grad_()  # (D,T,D): a row for each number of the last state
    (sent,) = torch.autograd.grad(rnn(x)[:, -1].diagonal().sum(), x)
    return sent.transpose(0, 1).flip(0)


def clip(gradient: Tensor, knobs: Knobs) -> dict[str, Tensor]:
    """As it comes, by norm as in training, and by value."""
    word = nn.Parameter(torch.zeros_like(gradient))
    word.grad = by_norm = gradient.clone()
    scale_and_clip([word], 1, knobs.clip)
    word.grad = by_value = gradient.clone()
    clip_grad_value_([word], knobs.largest)
    return dict(zip(STYLES, (gradient, by_norm, by_value), strict=True))


def only_explosions_stop(knobs: Knobs, gradient: Tensor, by_norm: Tensor, by_value: Tensor) -> bool:
    """By norm it keeps its direction, by value it need not; neither makes a short one longer."""
    shorter = gradient * min(1.0, knobs.clip / float(gradient.norm()))
    smaller = gradient.clamp(-knobs.largest, knobs.largest)
    return torch.allclose(by_norm, shorter, rtol=FLOAT_ERROR, atol=0) and torch.equal(by_value, smaller)


def drawn(resting: dict[float, list[float]], reading: list[float], clipped: dict[str, list[float]]) -> Figure:
    figure, (left, right) = drawing(2)
    for size, sent in resting.items():
        left.plot(sent, "k-", lw=1)
        left.annotate(f"{size:g}", (len(sent), sent[-1]), va="center", fontsize=8)
    left.lines[-1].set_label("at rest, by eigenvalue")
    left.plot(reading, "C1--", label=f"{size:g}, while it reads")
    left.set(yscale="log", xlabel="steps back", ylabel="length of the gradient\n(1 at the last word)")
    curves(right, list(resting), clipped, STYLES, yscale="log", xlabel="largest eigenvalue of W_hh")
    right.set_ylabel("length of the gradient\nat the first word")
    for axes in (left, right):
        axes.legend(frameon=False, fontsize=8)
    return figure
