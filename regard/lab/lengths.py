"""lengths: does a model extrapolate beyond the length of its training texts?

    learned, sinusoidal   x_t + p_t       rotary   q_t · k_s rotated by t - s       ALiBi   q_t · k_s - slope · (t - s)

Claim (deck N, "Learned position embeddings"): sinusoidal positions can go beyond the trained length but do not work
well there; learned ones cannot. Beside them later methods: rotary (Su et al. 2021) and ALiBi (Press et al. 2022),
which encode distances only. Here only order matters: each digit is

    x_t = x_{t-2} + 2 x_{t-1}  mod 5          except for one in five, which is random
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import torch
import torch.nn.functional as F
from matplotlib.figure import Figure
from torch import Tensor, nn

from regard.lab.optimize import lr_schedule, optimize
from regard.lab.result import LabResult, Tracker, plot_curves, subplots
from regard.lab.small_networks import decoders_by_position
from regard.lab.synthetic_data import DIGITS, ENTROPY, UNIFORM_LOSS, digit_sequences
from regard.parts.heads import LMHead, Model
from regard.validate import check_fields, check_minimum

STYLES = {"none": "k:", "learned": "C3--", "sinusoidal": "C1-.", "rotary": "C0-", "ALiBi": "k-"}


@dataclass(frozen=True)
class LengthsOptions:
    length: int = 32  # digits per training text; test texts are four times as long
    layers: int = 2  # number of blocks
    dim: int = 32  # width of the residual stream
    heads: int = 4  # attention heads in each block
    steps: int = 300  # training steps of 32 texts
    texts: int = 800  # texts of the test
    seed: int = 1  # random seed

    def __post_init__(self) -> None:
        check_minimum(self, 1, "texts", "heads")
        check_minimum(self, 4, "length")
        check_fields(self, dim=(self.dim % (2 * self.heads) == 0, "a multiple of twice the heads"))


QUICK = LengthsOptions(length=16, layers=1, steps=80, texts=100)


def run(options: LengthsOptions, track: Tracker) -> LabResult:
    torch.manual_seed(options.seed)
    L = options.length
    bodies = decoders_by_position(DIGITS, 4 * L, options.dim, options.layers, options.heads)
    short, long = digit_sequences(4096, L + 1), digit_sequences(options.texts, 4 * L + 1)
    position_losses = {}  # from the third digit on, the first that is predictable
    for name in track([*bodies]):
        model = Model(bodies[name], LMHead(nn.Parameter(torch.randn(DIGITS, options.dim) * 0.02)))
        train(model, short, options)
        with torch.no_grad():
            position_losses[name] = losses(model, long).mean(0)[1:]
    ends = {f"up to {times * L}": times * L - 1 for times in (1, 2, 4)}
    spans = list(pairwise((0, *ends.values())))
    means = {name: [curve[a:b].mean().item() for a, b in spans] for name, curve in position_losses.items()}
    rise = {name: far - within for name, (within, _, far) in means.items()}
    return LabResult(
        plot(position_losses, L),
        [{"positions": name, **dict(zip(ends, span_losses, strict=True))} for name, span_losses in means.items()],
        summary=f"Up to {L} digits all models with positions approach the {ENTROPY:.2f} nats of the rule. Beyond "
        f"twice that length, where a uniform guess costs {UNIFORM_LOSS:.2f}, learned positions have a loss of "
        f"{means['learned'][2]:.2f}, sinusoidal {means['sinusoidal'][2]:.2f}, and rotary, whose angles are new there "
        f"too, {means['rotary'][2]:.2f}. ALiBi stays at {means['ALiBi'][2]:.2f}: distant tokens get little weight.",
        expected="up to the trained length every kind of positions beats none; beyond twice that length learned "
        "ones are no better than chance, sinusoidal and rotary ones lose 0.3 nats or more, and ALiBi less than a "
        "quarter of that",
        holds=all(means[name][0] < means["none"][0] for name in rise if name != "none")
        and means["learned"][2] >= UNIFORM_LOSS
        and min(rise["sinusoidal"], rise["rotary"]) >= 0.3
        and rise["ALiBi"] < min(rise["sinusoidal"], rise["rotary"]) / 4,
    )


def losses(model: Model, ids: Tensor) -> Tensor:
    """(B,T-1): - log P of each digit after the first."""
    return F.cross_entropy(model(ids[:, :-1]).mT, ids[:, 1:], reduction="none")


def train(model: Model, ids: Tensor, options: LengthsOptions) -> None:
    peak = 0.64 / options.dim
    optimize(model, lambda: losses(model, ids[torch.randint(len(ids), (32,))]).mean(), lr_schedule(peak, options.steps))


def plot(position_losses: dict[str, Tensor], train_length: int) -> Figure:
    figure, (axes,) = subplots(height=3.6)
    figure.set_figwidth(7)
    smooth = {name: curve.unfold(0, 4, 1).mean(1).tolist() for name, curve in position_losses.items()}
    plot_curves(axes, [at + 3.5 for at in range(len(smooth["none"]))], smooth, STYLES, ylim=(0.35, None))
    axes.axvline(train_length, color="grey", linewidth=0.8)
    for level, label, side in ((UNIFORM_LOSS, "chance", "bottom"), (ENTROPY, "the rule", "top")):
        axes.axhline(level, color="lightgrey", linewidth=0.8, zorder=0)
        axes.annotate(label, (0, level - 0.1 * (side == "top")), color="grey", va=side)
    axes.set(xlabel=f"position (digits); trained up to {train_length}", ylabel="loss (nats per digit)")
    axes.legend(title="positions", loc="center left", bbox_to_anchor=(1, 0.5), frameon=False)
    return figure
