"""gradients: how does a gradient change on its way back through time?

    h' = tanh(W_xh x + W_hh h)          ∂L/∂h = W_hhᵀ (tanh' · ∂L/∂h'),  once for every step back

Claim (deck N, "Backpropagation through time"; deck R, "BPTT: Vanishing + Exploding Gradients"): the same matrix is
multiplied again and again, so the gradient explodes if the largest eigenvalue of W_hh is above 1 and vanishes if it is
below. Clipping its norm or its values can only stop the explosion.

The `RNN` part does the steps. Without input its state stays at 0, where tanh' is 1, and the eigenvalue alone decides.
With input tanh' is below 1, and the gradient may vanish all the same: an eigenvalue above 1 is necessary for an
explosion, but not sufficient (Pascanu et al. 2013).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from matplotlib.figure import Figure
from torch import Tensor, nn
from torch.linalg import matrix_norm
from torch.nn.utils import clip_grad_value_

from regard.lab.result import LabResult, Tracker, growth_per_step, plot_curves, relative_to_first, subplots, table_rows
from regard.parts.recurrence import RNN
from regard.training.optimizer import scale_and_clip
from regard.validate import check_fields

TOLERANCE, FLOAT_ERROR = 0.01, 1e-5  # relative errors of a growth factor, and of a clipped gradient
STYLES = {"not clipped": "k-o", "clipped by norm": "C0--s", "clipped by value": "C1:^"}


@dataclass(frozen=True)
class GradientsOptions:
    eigenvalues: tuple[float, ...] = (0.8, 0.9, 0.95, 1.0, 1.05, 1.1, 1.2)  # largest eigenvalues of W_hh
    steps: int = 100  # time steps of back-propagation
    dim: int = 32  # state width
    input_std: float = 0.3  # standard deviation of the inputs
    grad_clip: float = 1.0  # maximum gradient norm
    clip_value: float = 0.1  # maximum gradient value
    seed: int = 1  # random seed

    def __post_init__(self) -> None:
        check_fields(self, eigenvalues=(min(self.eigenvalues, default=0) > 0, "one number or more, all above 0"))
        check_fields(self, steps=(self.steps >= 4, "at least 4"), dim=(self.dim >= 1, "at least 1"))
        check_fields(self, grad_clip=(self.grad_clip > 0, "above 0"), clip_value=(self.clip_value > 0, "above 0"))


QUICK = GradientsOptions(eigenvalues=(0.8, 1.0, 1.2), steps=60, dim=16)


def run(options: GradientsOptions, track: Tracker) -> LabResult:
    torch.manual_seed(options.seed)
    matrix = torch.randn(options.dim, options.dim, dtype=torch.float64)
    matrix /= torch.linalg.eigvals(matrix).abs().max()
    inputs = torch.randn(options.steps + 1, options.dim, dtype=torch.float64)
    resting, reading, clipped = {}, {}, {}
    for size in track(sorted(options.eigenvalues)):
        jacobians = gradients_through_time(size * matrix, 0 * inputs)
        resting[size], clipped[size] = relative_to_first(matrix_norm(jacobians)), clip(jacobians[-1, 0], options)
        reading[size] = relative_to_first(
            matrix_norm(gradients_through_time(size * matrix, options.input_std * inputs))
        )
    half = (options.steps + 1) // 2  # the first steps still depend on the initial direction
    at_rest, at_work = ([growth_per_step(norms[size], half) for size in norms] for norms in (resting, reading))
    clipped_norms = {kind: [float(variants[kind].norm()) for variants in clipped.values()] for kind in STYLES}
    low, high = min(resting), max(resting)
    gradient, _, by_value = clipped[high].values()
    angle = torch.cosine_similarity(gradient, by_value, 0, eps=0).clamp(-1, 1).acos().rad2deg()
    return LabResult(
        plot(resting, reading[high], clipped_norms),
        table_rows({"largest eigenvalue": resting, "growth per step": at_rest, "with input": at_work}, clipped_norms),
        summary=f"After {options.steps} steps back the gradient norm is {resting[low][-1]:.1g} times as large if the "
        f"largest eigenvalue is {low:g}, and {resting[high][-1]:.1g} times if it is {high:g}: a step is a factor of "
        f"{at_rest[0]:.3f} or {at_rest[-1]:.3f}. With input, tanh reduces that to {at_work[0]:.2f} and "
        f"{at_work[-1]:.2f}. Of a gradient of {gradient.norm():.1g}, clipping by norm leaves "
        f"{clipped_norms['clipped by norm'][-1]:.2g} and by value {by_value.norm():.2g}, rotated by {angle:.0f}°; "
        f"one of {clipped_norms['not clipped'][0]:.1g} stays as it is.",
        expected="a step back is a factor of the largest eigenvalue: the gradient explodes above 1 and vanishes "
        "below, where clipping does not help",
        holds=all(
            abs(rest / size - 1) < TOLERANCE and (work < 1 or size >= 1) and only_shortens(options, *variants.values())
            for (size, variants), rest, work in zip(clipped.items(), at_rest, at_work, strict=True)
        ),
    )


def gradients_through_time(matrix: Tensor, inputs: Tensor) -> Tensor:
    """Gradient of each component of the last state at every input, the last one first: (steps back, components, D)."""
    rnn = RNN(len(matrix)).double()
    with torch.no_grad():
        for weight, value in zip(rnn.parameters(), (torch.eye(len(matrix)), matrix, 0, 0), strict=True):
            weight.copy_(torch.as_tensor(value))
    x = inputs.expand(len(matrix), -1, -1).clone().requires_grad_()  # (D,T,D): a row per component of the last state
    (gradients,) = torch.autograd.grad(rnn(x)[:, -1].diagonal().sum(), x)
    return gradients.transpose(0, 1).flip(0)


def clip(gradient: Tensor, options: GradientsOptions) -> dict[str, Tensor]:
    """Not clipped, clipped by norm as in training, and by value."""
    parameter = nn.Parameter(torch.zeros_like(gradient))
    parameter.grad = by_norm = gradient.clone()
    scale_and_clip([parameter], 1, options.grad_clip)
    parameter.grad = by_value = gradient.clone()
    clip_grad_value_([parameter], options.clip_value)
    return dict(zip(STYLES, (gradient, by_norm, by_value), strict=True))


def only_shortens(options: GradientsOptions, gradient: Tensor, by_norm: Tensor, by_value: Tensor) -> bool:
    """Clipping by norm keeps the direction, by value it need not; neither lengthens a short gradient."""
    shorter = gradient * min(1.0, options.grad_clip / float(gradient.norm()))
    smaller = gradient.clamp(-options.clip_value, options.clip_value)
    return torch.allclose(by_norm, shorter, rtol=FLOAT_ERROR, atol=0) and torch.equal(by_value, smaller)


def plot(resting: dict[float, list[float]], reading: list[float], clipped: dict[str, list[float]]) -> Figure:
    figure, (left, right) = subplots(2)
    for size, norms in resting.items():
        left.plot(norms, "k-", lw=1)
        left.annotate(f"{size:g}", (len(norms), norms[-1]), va="center", fontsize=8)
    left.lines[-1].set_label("without input, by eigenvalue")
    left.plot(reading, "C1--", label=f"{size:g}, with input")
    left.set(yscale="log", xlabel="steps back", ylabel="gradient norm\n(1 at the last step)")
    plot_curves(right, list(resting), clipped, STYLES, yscale="log", xlabel="largest eigenvalue of W_hh")
    right.set_ylabel("gradient norm\nat the first step")
    for axes in (left, right):
        axes.legend(frameon=False, fontsize=8)
    return figure
