"""lengths: can a model read on where its training texts ended?

    learned, sinusoidal   x_t + p_t       rotary   q_t · k_s turned by t - s       ALiBi   q_t · k_s - slope · (t - s)

Claim (deck N, "Learned position embeddings"): sinusoidal positions can go beyond the trained length but do not work
well there; learned ones cannot. Beside them what came later: rotary (Su et al. 2021) and ALiBi (Press et al. 2022),
which know distances only. Here order is all that counts: each digit is

    x_t = x_{t-2} + 2 x_{t-1}  mod 5          except for one in five, which is drawn at random
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import torch
import torch.nn.functional as F
from matplotlib.figure import Figure
from torch import Tensor, nn

from regard.choose import must
from regard.lab.optimize import learn, rates
from regard.lab.result import Each, Finding, at_least, curves, drawing
from regard.lab.sequence_models import told_of_order
from regard.lab.synthetic_tasks import CHANCE, DIGITS, FLOOR, digits
from regard.parts.heads import Model, Output

STYLES = {"none": "k:", "learned": "C3--", "sinusoidal": "C1-.", "rotary": "C0-", "ALiBi": "k-"}


@dataclass(frozen=True)
class Knobs:
    length: int = 32  # digits of a text in training; the test goes to four times as many
    layers: int = 2  # blocks
    dim: int = 32  # width of the residual stream
    heads: int = 4  # attention heads in each block
    steps: int = 300  # of training, with 32 texts each
    asked: int = 800  # texts of the test
    seed: int = 1  # of everything random

    def __post_init__(self) -> None:
        at_least(1, self, "asked", "heads")
        at_least(4, self, "length")
        must(self, dim=(self.dim % (2 * self.heads) == 0, "a multiple of twice the heads"))


QUICK = Knobs(length=16, layers=1, steps=80, asked=100)


def run(knobs: Knobs, each: Each) -> Finding:
    torch.manual_seed(knobs.seed)
    L = knobs.length
    bodies = told_of_order(DIGITS, 4 * L, knobs.dim, knobs.layers, knobs.heads)
    short, long = digits(4096, L + 1), digits(knobs.asked, 4 * L + 1)
    found = {}  # the loss at each place from the third digit on, the first that can be known
    for name in each([*bodies]):
        model = Model(bodies[name], Output(nn.Parameter(torch.randn(DIGITS, knobs.dim) * 0.02)))
        teach(model, short, knobs)
        with torch.no_grad():
            found[name] = losses(model, long).mean(0)[1:]
    ends = {f"up to {times * L}": times * L - 1 for times in (1, 2, 4)}
    spans = list(pairwise((0, *ends.values())))
    means = {name: [curve[a:b].mean().item() for a, b in spans] for name, curve in found.items()}
    rise = {name: far - inside for name, (inside, _, far) in means.items()}
    return Finding(
        drawn(found, L),
        [{"positions": name, **dict(zip(ends, three, strict=True))} for name, three in means.items()],
        says=f"Up to {L} digits all that know positions come near the {FLOOR:.2f} nats of the rule itself. Beyond "
        f"twice that length, where a guess costs {CHANCE:.2f}, learned positions are at {means['learned'][2]:.2f}, "
        f"sinusoidal ones at {means['sinusoidal'][2]:.2f}, and rotary ones, whose angles are new there too, at "
        f"{means['rotary'][2]:.2f}. ALiBi reads on at {means['ALiBi'][2]:.2f}: a far token is hardly heard.",
        wanted="up to the trained length every kind of positions beats none; beyond twice that length learned ones are "
        "no better than a guess, sinusoidal and rotary ones lose 0.3 nats or more, and ALiBi less than a quarter of it",
        holds=all(means[name][0] < means["none"][0] for name in rise if name != "none")
        and means["learned"][2] >= CHANCE
        and min(rise["sinusoidal"], rise["rotary"]) >= 0.3
        and rise["ALiBi"] < min(rise["sinusoidal"], rise["rotary"]) / 4,
    )


def losses(model: Model, ids: Tensor) -> Tensor:
    """(B,T-1): - log P of each digit after the first."""
    return F.cross_entropy(model(ids[:, :-1]).mT, ids[:, 1:], reduction="none")


def teach(model: Model, ids: Tensor, knobs: Knobs) -> None:
    peak = 0.64 / knobs.dim
    learn(model, lambda: losses(model, ids[torch.randint(len(ids), (32,))]).mean(), rates(peak, knobs.steps))


def drawn(found: dict[str, Tensor], trained: int) -> Figure:
    figure, (axes,) = drawing(height=3.6)
    figure.set_figwidth(7)
    smooth = {name: curve.unfold(0, 4, 1).mean(1).tolist() for name, curve in found.items()}
    curves(axes, [at + 3.5 for at in range(len(smooth["none"]))], smooth, STYLES, ylim=(0.35, None))
    axes.axvline(trained, color="grey", linewidth=0.8)
    for level, told, side in ((CHANCE, "a guess", "bottom"), (FLOOR, "the rule", "top")):
        axes.axhline(level, color="lightgrey", linewidth=0.8, zorder=0)
        axes.annotate(told, (0, level - 0.1 * (side == "top")), color="grey", va=side)
    axes.set(xlabel=f"place in the text (digits); trained up to {trained}", ylabel="loss (nats a digit)")
    axes.legend(title="positions", loc="center left", bbox_to_anchor=(1, 0.5), frameon=False)
    return figure
