"""recall: which model recalls a name from many words ago?

    a name, then this many filler words, then the question          "Ann  la la la … la  who?" → Ann

Claim (deck R, "Limitations of Recurrent Models" and "Attention: Text Generation"; deck N, "Long-short term memory"):
an RNN has a short memory because its gradient vanishes, LSTMs have a longer one, and attention reaches back over any
distance. Deck N, "Backpropagation through time": truncation removes older gradients, clipping only stops explosions.

Each model is trained from scratch for each distance, on the same batches. The gradients are those before training.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from matplotlib.figure import Figure
from torch import Tensor

from regard.lab.optimize import optimize, token_gradient_norms
from regard.lab.result import LabResult, Tracker, legend_below, plot_curves, relative_to_first, subplots
from regard.lab.small_networks import recall_model
from regard.lab.synthetic_data import recall_batch
from regard.parts.heads import Model
from regard.validate import check_fields, check_minimum

MIN_ACCURACY, MAX_ACCURACY_RNN = 0.9, 0.5  # accuracy: at least, and below
STOP_LOSS = 0.05  # training stops below this loss
NOT_CLIPPED, TRUNCATED = "RNN, not clipped", "LSTM, truncated"
STYLES = {"RNN": "k-o", NOT_CLIPPED: "k:x", "GRU": "C0-s", "LSTM": "C2-^", TRUNCATED: "C2:v", "Transformer": "C1--D"}


@dataclass(frozen=True)
class RecallOptions:
    distances: tuple[int, ...] = (2, 4, 8, 16, 32, 64)  # filler words between the name and the question
    names: int = 8  # number of names, and of filler words
    dim: int = 32  # width of embeddings and states
    batch: int = 32  # examples per batch
    steps: int = 200  # maximum training steps
    lr: float = 0.02  # learning rate
    grad_clip: float = 1.0  # maximum gradient norm
    bptt_length: int = 8  # segment length of the truncated LSTM's gradient
    seed: int = 1  # random seed

    def __post_init__(self) -> None:
        check_fields(self, distances=(min(self.distances, default=0) >= 1, "one number or more, from 1"))
        check_fields(self, dim=(self.dim >= 4 and self.dim % 4 == 0, "a multiple of 4"))
        check_fields(self, names=(self.names >= 3, "at least 3"))
        check_minimum(self, 1, "bptt_length")


QUICK = RecallOptions(distances=(3, 10), names=4, dim=24, batch=16, steps=60)


def run(options: RecallOptions, track: Tracker) -> LabResult:
    distances = sorted(set(options.distances))
    accuracy = {kind: [train_and_test(kind, d, options) for d in distances] for kind in track(list(STYLES))}
    reach = {kind: max_distance(distances, shares) for kind, shares in accuracy.items()}
    sizes = {kind: relative_gradients(kind, distances[-1], options) for kind in STYLES if kind != NOT_CLIPPED}
    ratio = {kind: size[-1] for kind, size in sizes.items()}  # at the name
    columns = [f"accuracy at {d}" for d in distances]
    return LabResult(
        plot(distances, accuracy, sizes, 1 / options.names),
        [{"model": kind, **dict(zip(columns, shares, strict=True))} for kind, shares in accuracy.items()],
        summary=f"The RNN recalls a name over up to {reach['RNN']} words, the GRU over {reach['GRU']}, the LSTM over "
        f"{reach['LSTM']}, the Transformer over {reach['Transformer']}. Of the gradient beside the question, "
        f"{ratio['RNN']:.0e} reaches a name {distances[-1]} words away in an RNN, {ratio['GRU']:.0e} in a GRU, "
        f"{ratio['LSTM']:.0e} in an LSTM and {ratio['Transformer']:.1f} in a Transformer. Truncated every "
        f"{options.bptt_length} words, the LSTM reaches {reach[TRUNCATED]}; without clipping, the RNN "
        f"{reach[NOT_CLIPPED]}.",
        expected="the RNN forgets first and the Transformer not at all, and their gradients vanish in the same "
        "order, with GRU and LSTM between; truncation shortens the reach of an LSTM, clipping does not extend that "
        "of an RNN",
        holds=reach["RNN"] < min(reach["GRU"], reach["LSTM"])
        and reach["Transformer"] == distances[-1]
        and max(accuracy["RNN"][-1], accuracy[NOT_CLIPPED][-1]) < MAX_ACCURACY_RNN
        and ratio["RNN"] < min(ratio["GRU"], ratio["LSTM"])
        and max(ratio["GRU"], ratio["LSTM"]) < ratio["Transformer"] / 2
        and reach[TRUNCATED] < reach["LSTM"]
        and ratio[TRUNCATED] == 0,
    )


def build_model(kind: str, distance: int, options: RecallOptions) -> Model:
    torch.manual_seed(options.seed)
    vocab = 2 * options.names + 2  # with "who?" and padding, which is never used
    cut = options.bptt_length if kind == TRUNCATED else 0
    return recall_model(kind.split(",")[0], vocab, distance + 2, options.dim, options.names, cut)


def train_and_test(kind: str, distance: int, options: RecallOptions) -> float:
    """The accuracy on new examples after training."""
    model = build_model(kind, distance, options)
    torch.manual_seed(options.seed)  # the same batches for every model
    clip = 0.0 if kind == NOT_CLIPPED else options.grad_clip
    optimize(model, lambda: loss(model, distance, options), [options.lr] * options.steps, clip, STOP_LOSS)
    words, names = recall_batch(256, distance, options.names)
    with torch.no_grad():
        return float((model(words).argmax(-1) == names).float().mean())


def loss(model: Model, distance: int, options: RecallOptions) -> Tensor:
    words, names = recall_batch(options.batch, distance, options.names)
    return F.cross_entropy(model(words), names)


def max_distance(distances: list[int], accuracy: list[float]) -> int:
    """The largest distance up to which every accuracy is high enough."""
    return max((distance for i, distance in enumerate(distances) if min(accuracy[: i + 1]) >= MIN_ACCURACY), default=0)


def relative_gradients(kind: str, distance: int, options: RecallOptions) -> list[float]:
    """Gradient norms from the word before the question back to the name, relative to the first."""
    model = build_model(kind, distance, options)
    sizes = token_gradient_norms(model, lambda: loss(model, distance, options))[:-1].flip(0)  # (T-1,)
    return relative_to_first(sizes)  # 0 everywhere if a segment starts at the question


def plot(
    distances: list[int], accuracy: dict[str, list[float]], sizes: dict[str, list[float]], chance: float
) -> Figure:
    figure, (left, right) = subplots(2, 3.8)
    plot_curves(left, distances, accuracy, STYLES, xscale="log", ylim=(0, 1.05), xlabel="words to the question")
    left.axhline(chance, color="0.7", lw=0.8, zorder=0)
    left.set_ylabel("accuracy\n(grey: chance)")
    plot_curves(right, range(1, distances[-1] + 2), sizes, STYLES, yscale="log", xlabel="words back from the question")
    right.set_ylabel("gradient norm\n(1 beside the question)")
    legend_below(figure, left)
    return figure
