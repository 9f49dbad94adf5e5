"""kernel: attention is kernel regression with a learned kernel.

    Nadaraya-Watson   Σ K(x,x_i) y_i / Σ K(x,x_i)          attention, if K = exp(q·k) with q = W_Q x and k = W_K x_i
    Gaussian process  Σ K(x,x_i) v_i,  v = (K + σ²I)⁻¹ y   also linear in y, with weights that need not sum to 1

Claim (deck T, "Connection to GPs"): compare x with every stored example and average their y; learn the matrices, and
you arrive at attention. The Gaussian kernel shows it: -(x - x_i)² / 2w² is q·k for q = (x, -1/2) / w² and
k = (x_i, x_i²), but for a term of x alone, which the fraction cancels. So an attention layer with these weights is
Nadaraya-Watson regression (1964), and a trained layer is too, with the kernel that it has learned.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from matplotlib.figure import Figure
from torch import Tensor, nn

from regard.lab.kernel_regression import gaussian_attention, gp_weights, predict
from regard.lab.optimize import optimize
from regard.lab.result import LabResult, Tracker, legend_below, plot_curves, subplots, table_rows
from regard.look import look
from regard.parts.attention import CrossAttention
from regard.parts.attention_scores import gaussian, kernel_average, scaled_dot
from regard.parts.heads import Model
from regard.validate import check_fields

EQUAL, DIFFERENT = 1e-9, 1e-2  # largest difference of equal curves, smallest of different ones
X_MAX = 3.0  # x ranges from -X_MAX to X_MAX
INITIAL_WIDTH = 2.0  # times the width, before training
BY_HAND, TRAINED = "attention, Gaussian", "attention, trained"
STYLES = {"truth": "C7-", "Nadaraya-Watson": "C1o", BY_HAND: "k--", TRAINED: "C0-", "Gaussian process": "C2:"}


@dataclass(frozen=True)
class KernelOptions:
    examples: int = 80  # stored examples
    noise: float = 0.3  # standard deviation of the noise on y
    width: float = 0.4  # kernel width
    steps: int = 400  # training steps of the learned kernel
    lr: float = 0.03  # learning rate
    seed: int = 1  # random seed

    def __post_init__(self) -> None:
        check_fields(self, examples=(self.examples >= 3, "at least 3"), steps=(self.steps >= 1, "at least 1"))
        check_fields(self, noise=(self.noise > 0, "above 0"), lr=(self.lr > 0, "above 0"))
        check_fields(self, width=(self.width >= 0.1, "at least 0.1"))


QUICK = KernelOptions(steps=50)


def truth(x: Tensor) -> Tensor:
    return (2 * x).sin() + x / 2


def train(layer: CrossAttention, x: Tensor, y: Tensor, options: KernelOptions, track: Tracker) -> None:
    """Train the kernel to predict the y of each example from the other examples (leave-one-out)."""
    layer.value.requires_grad_(False)
    layer.out.requires_grad_(False)
    others, model = ~torch.eye(len(x), dtype=torch.bool), Model(layer, nn.Identity())
    lrs = track([options.lr] * options.steps)
    optimize(model, lambda: (predict(layer, x, x, y, others) - y).square().mean(), lrs, kind="adamw")


def error(curve: Tensor, at: Tensor) -> float:
    return (curve - truth(at)).square().mean().sqrt().item()


def run(options: KernelOptions, track: Tracker) -> LabResult:
    torch.manual_seed(options.seed)
    x = ((torch.rand(options.examples).double() * 2 - 1) * X_MAX).sort().values
    y = truth(x) + options.noise * torch.randn(options.examples).double()
    at = torch.linspace(-X_MAX, X_MAX, 201).double()
    layers = {BY_HAND: gaussian_attention(options.width), TRAINED: gaussian_attention(INITIAL_WIDTH * options.width)}
    before = error(predict(layers[TRAINED], at, x, y), at)
    train(layers[TRAINED], x, y, options, track)
    predictions, activations = {}, {}
    for name, layer in layers.items():
        with look(layer) as activations[name]:
            predictions[name] = predict(layer, at, x, y).detach()

    q, k, v = (activations[TRAINED][name][0, 0] for name in ("queries", "keys", "values"))
    by_kernel = kernel_average(scaled_dot(q, k).exp(), v) @ layers[TRAINED].out.weight.detach().mT  # (T,3)
    log_kernel = gaussian(at[:, None], x[:, None], options.width)  # (T,S)
    gp = gp_weights(at, x, options.width, options.noise)
    regressions = {
        "Nadaraya-Watson, Gaussian kernel": kernel_average(log_kernel.exp(), y),
        "Nadaraya-Watson, exp(q·k) of the layer": by_kernel[:, 2],
        "Nadaraya-Watson, Cauchy kernel": kernel_average(1 / (1 - 2 * log_kernel), y),
        "Gaussian process mean": gp @ y,
    }
    compared = (BY_HAND, TRAINED, BY_HAND, BY_HAND)
    differences = [(a - predictions[b]).abs().max().item() for a, b in zip(regressions.values(), compared, strict=True)]
    after = error(predictions[TRAINED], at)
    weights = {"Nadaraya-Watson": log_kernel.softmax(-1)}
    weights |= {name: tensors["weights"][0, 0] for name, tensors in activations.items()} | {"Gaussian process": gp}
    return LabResult(
        plot(x, y, at, weights),
        table_rows(
            {"regression": regressions, "compared with": compared, "difference": differences},
            {"error": [error(curve, at) for curve in regressions.values()]},
            {"error of the layer": [error(predictions[layer], at) for layer in compared]},
        ),
        summary=f"An attention layer with a Gaussian kernel equals Nadaraya-Watson to {differences[0]:.0e}, and a "
        f"trained one equals Nadaraya-Watson with the kernel exp(q·k) to {differences[1]:.0e}; training lowers its "
        f"error from {before:.2f} to {after:.2f}. A Cauchy kernel differs by {differences[2]:.2f}, the mean of a "
        f"Gaussian process by {differences[3]:.2f}: its weights go down to {gp.min():.2f}.",
        expected=f"equal (below {EQUAL:g}) where the kernel is exp(q·k), different (above {DIFFERENT:g}) where it is "
        "not or where the weights need not sum to 1, and training lowers the error",
        holds=max(differences[:2]) < EQUAL and min(differences[2:]) > DIFFERENT and after < before,
    )


def plot(x: Tensor, y: Tensor, at: Tensor, weights: dict[str, Tensor]) -> Figure:
    """Every regression here is linear in the examples' y, with weights (T,S)."""
    figure, (left, right) = subplots(2, 4.2)
    left.plot(x, y, ".", color="0.6", markersize=4, label="examples")
    regressions = {name: matrix @ y for name, matrix in weights.items()}
    plot_curves(left, at, {"truth": truth(at), **regressions}, STYLES, xlabel="x", ylabel="y")
    at_zero = {name: matrix[len(at) // 2] for name, matrix in weights.items()}
    plot_curves(right, x, at_zero, STYLES, xlabel="x of the example", ylabel="its weight in the prediction at x = 0")
    legend_below(figure, left)
    return figure
