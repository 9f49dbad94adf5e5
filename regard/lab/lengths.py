"""lengths: can a model read on where its training texts ended?

    sinusoidal, learned   x_t + p_t          rotary   q_t · k_s turned by t - s          ALiBi   q_t · k_s - slope · (t - s)

Claim (deck N, "Learned position embeddings"): sinusoidal positions can go beyond the trained length but do not work
well there; learned ones cannot. Beside them what came later: rotary (Su et al. 2021) and ALiBi (Press et al. 2022),
which know distances only. Here order is all that counts: each digit is

    x_t = x_{t-2} + 2 x_{t-1}  mod 5          except for one in five, which is drawn at random
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from regard.choose import must
from regard.lab.finding import Each, Finding, drawing
from regard.parts.attention import SelfAttention
from regard.parts.block import Block
from regard.parts.feedforward import FeedForward
from regard.parts.heads import Model, Output
from regard.parts.norms import LayerNorm
from regard.parts.positions import Alibi, Learned, Rotary, Sinusoidal
from regard.parts.residual import PreNorm
from regard.training.optimizer import optimizers
from regard.training.schedule import decay

DIGITS = 5
SLIPS = 0.2
CHANCE = math.log(DIGITS)  # the loss of a guess
FLOOR = -sum(
    p * math.log(p) for p in (1 - SLIPS + SLIPS / DIGITS, *[SLIPS / DIGITS] * (DIGITS - 1))
)  # of who knows all
LINES = {"none": ":", "learned": "--", "sinusoidal": "-.", "rotary": (0, (5, 1)), "ALiBi": "-"}


@dataclass(frozen=True)
class Knobs:
    length: int = 32  # digits of a text in training; the test goes to four times as many
    layers: int = 2  # blocks
    dim: int = 32  # width of the residual stream
    heads: int = 4  # attention heads in each block
    steps: int = 300  # of training, with 32 texts each
    asked: int = 400  # texts of the test
    seed: int = 1  # of everything random

    def __post_init__(self) -> None:
        must(self, length=(self.length >= 4, "at least 4"))


QUICK = Knobs(length=16, layers=1, steps=80, asked=100)


class Reader(nn.Module):
    """A decoder that is told of order in one way: by vectors added to the tokens, or inside of its attention."""

    def __init__(self, knobs: Knobs, positions: nn.Module | None = None, **attention: Any):
        super().__init__()
        self.tokens, self.positions, self.norm = nn.Embedding(DIGITS, knobs.dim), positions, LayerNorm(knobs.dim)
        self.blocks = nn.ModuleList(
            Block(
                mixer=PreNorm(LayerNorm(knobs.dim), SelfAttention(knobs.dim, knobs.heads, causal=True, **attention)),
                feedforward=PreNorm(LayerNorm(knobs.dim), FeedForward(knobs.dim, 2 * knobs.dim)),
            )
            for _ in range(knobs.layers)
        )

    def forward(self, ids: Tensor) -> Tensor:
        x = self.tokens(ids)  # (B,T,D)
        if self.positions is not None:
            x = x + self.positions(ids.size(1))
        for block in self.blocks:
            x = block(x)
        return self.norm(x)


def readers(knobs: Knobs) -> dict[str, Reader]:
    context = 4 * knobs.length
    return {
        "none": Reader(knobs),
        "learned": Reader(knobs, Learned(context, knobs.dim)),
        "sinusoidal": Reader(knobs, Sinusoidal(context, knobs.dim)),
        "rotary": Reader(knobs, rotate=Rotary(knobs.dim // knobs.heads, context)),
        "ALiBi": Reader(knobs, score_bias=Alibi(knobs.heads)),
    }


def run(knobs: Knobs, each: Each) -> Finding:
    torch.manual_seed(knobs.seed)
    L, bodies = knobs.length, readers(knobs)
    short, long = texts(4096, L + 1), texts(knobs.asked, 4 * L + 1)
    curves = {}  # the loss at each place from the third digit on, the first that can be known
    for name in each([*bodies]):
        model = Model(bodies[name], Output(nn.Parameter(torch.randn(DIGITS, knobs.dim) * 0.02)))
        learn(model, short, knobs)
        with torch.no_grad():
            curves[name] = losses(model, long).mean(0)[1:]

    spans = {
        f"up to {L}": slice(0, L - 1),
        f"up to {2 * L}": slice(L - 1, 2 * L - 1),
        f"up to {4 * L}": slice(2 * L - 1, None),
    }
    means = {name: [curve[span].mean().item() for span in spans.values()] for name, curve in curves.items()}
    table: list[dict[str, str | float]] = [
        {"positions": name, **{span: round(value, 2) for span, value in zip(spans, means[name], strict=True)}}
        for name in means
    ]
    rise = {name: far - inside for name, (inside, _, far) in means.items()}

    figure, (axes,) = drawing(1, height=3.6)
    figure.set_figwidth(7)
    for (name, curve), colour in zip(
        curves.items(), ["grey", "tab:red", "tab:orange", "tab:blue", "black"], strict=True
    ):
        smooth = curve.unfold(0, 4, 1).mean(1)
        axes.plot(torch.arange(len(smooth)) + 3.5, smooth, linestyle=LINES[name], color=colour, label=name)
    axes.axvline(L, color="grey", linewidth=0.8)
    axes.annotate(
        "trained length", (L, 0.02), xycoords=("data", "axes fraction"), xytext=(4, 0), textcoords="offset points"
    )
    for level, told in ((CHANCE, "a guess"), (FLOOR, "the rule itself")):
        axes.axhline(level, color="lightgrey", linewidth=0.8, zorder=0)
        axes.annotate(told, (1, level), xycoords=("axes fraction", "data"), ha="right", va="bottom", color="grey")
    axes.set(xlabel="place in the text (digits)", ylabel="loss (nats a digit)")
    axes.legend(title="positions", loc="center left", bbox_to_anchor=(1, 0.5), frameon=False)

    says = (
        f"Up to {L} digits all that know positions come near the {FLOOR:.2f} nats of the rule itself. Beyond twice that "
        f"length learned positions are at {means['learned'][2]:.2f} and sinusoidal ones at {means['sinusoidal'][2]:.2f}, "
        f"where a guess costs {CHANCE:.2f}. Rotary positions hold on longer ({means['rotary'][1]:.2f} up to {2 * L}) and "
        f"then fail too ({means['rotary'][2]:.2f}); ALiBi reads on at {means['ALiBi'][2]:.2f}."
    )
    return Finding(
        figure,
        table,
        says,
        wanted="up to the trained length every kind of positions beats none; beyond twice that length learned ones are "
        "no better than a guess, sinusoidal ones lose 0.3 nats or more, and ALiBi loses less than a quarter of that; "
        "just beyond, rotary ones lose less than sinusoidal ones",
        holds=all(means[name][0] < means["none"][0] for name in means if name != "none")
        and means["learned"][2] >= CHANCE
        and rise["sinusoidal"] >= 0.3
        and rise["ALiBi"] < rise["sinusoidal"] / 4
        and means["rotary"][1] < means["sinusoidal"][1],
    )


def texts(count: int, length: int) -> Tensor:
    """(B,T) digits."""
    ids = torch.randint(DIGITS, (count, length))
    follows = torch.rand(count, length) >= SLIPS
    for t in range(2, length):
        ids[:, t] = torch.where(follows[:, t], (ids[:, t - 2] + 2 * ids[:, t - 1]) % DIGITS, ids[:, t])
    return ids


def losses(model: Model, ids: Tensor) -> Tensor:
    """(B,T-1): - log P of each digit after the first."""
    return F.cross_entropy(model(ids[:, :-1]).mT, ids[:, 1:], reduction="none")


def learn(model: Model, ids: Tensor, knobs: Knobs) -> None:
    makers = optimizers(model, weight_decay=0.01, kind="muon")
    for step in range(knobs.steps):
        for group in (group for maker in makers for group in maker.param_groups):
            group["lr"] = 0.64 / knobs.dim * decay(step, knobs.steps, knobs.steps // 10, 0.6)
        losses(model, ids[torch.randint(len(ids), (32,))]).mean().backward()
        for maker in makers:
            maker.step()
        model.zero_grad()
