"""party: who was it that I met first?

    sum  S' = S + k vᵀ        γ  S' = γ S + k vᵀ        both answer q S'        attention keeps every k and v

Claim (deck M, "Review", the party): a sum holds a limited amount, so it blurs as it fills; a forgetting factor γ makes
room, and forgets whoever came first, with γ⁴ left of the first of five; attention does neither. Every guest has a face,
the key, and a name, the value. After each guest the memory is shown a face and asked for the name.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch
import torch.nn.functional as F
from matplotlib.figure import Figure
from torch import Tensor

from regard.choose import must
from regard.lab.result import Each, Finding, at_least, curves, drawing, rows, under
from regard.parts.attention import attend
from regard.parts.memory import recall_all_at_once

KEPT, GONE = 0.9, 0.1  # likeness of the answer to the name that was asked for
NEAR = 0.1  # to the likeness that chance faces predict
STYLES = {"sum": "C1--", "γ": "k:", "attention": "C0-"}


@dataclass(frozen=True)
class Knobs:
    people: int = 200  # guests met, one after the other
    dim: int = 64  # numbers that make a face, and a name
    gamma: float = 0.9  # share of the γ memory that is left after each guest
    parties: int = 50  # to take the mean of
    seed: int = 1  # of everything random

    def __post_init__(self) -> None:
        must(self, gamma=(0 < self.gamma < 1, "between 0 and 1"))
        at_least(1, self, "parties")
        at_least(2, self, "dim")
        at_least(4, self, "people")


QUICK = Knobs(people=80, parties=10)


def remembered(q: Tensor, k: Tensor, v: Tensor, gamma: float) -> Tensor:
    """Answers (B,1,T,E) of a memory that is asked after each guest; γ = 1 is the sum."""
    empty = k.new_zeros(len(k), 1, k.size(-1), v.size(-1))
    return recall_all_at_once(q, k, v, k.new_tensor([gamma]), empty)[0]


def memories(gamma: float) -> dict[str, Callable[[Tensor, Tensor, Tensor], Tensor]]:
    return {
        "sum": partial(remembered, gamma=1.0),
        "γ": partial(remembered, gamma=gamma),
        "attention": partial(attend, causal=True),
    }


def likeness(answers: Tensor, names: Tensor) -> list[float]:
    """The cosine of each answer and the right name, by guests met, as the mean over parties."""
    return F.cosine_similarity(answers, names, -1).mean((0, 1)).tolist()


def run(knobs: Knobs, each: Each) -> Finding:
    torch.manual_seed(knobs.seed)
    faces = torch.randn(knobs.parties, 1, knobs.people, knobs.dim)  # (B,1,T,E)
    names = torch.randn_like(faces)
    first: dict[str, list[float]] = {}
    latest: dict[str, list[float]] = {}
    for kind, recall in each(list(memories(knobs.gamma).items())):
        first[kind] = likeness(recall(faces[:, :, :1].expand_as(faces), faces, names), names[:, :, :1])
        latest[kind] = likeness(recall(faces, faces, names), names)
    # Chance faces are alike by 1/√E, so that each of the others adds its name with about that weight.
    blur = [(1 + met / knobs.dim) ** -0.5 for met in range(knobs.people)]
    off = max(abs(seen - told) for seen, told in zip(first["sum"], blur, strict=True))

    asked = (1, knobs.people // 4, knobs.people // 2, knobs.people)
    end = {kind: (first[kind][-1], latest[kind][-1]) for kind in first}
    return Finding(
        drawn(first, latest, knobs.gamma),
        rows(
            {"people met": asked},
            under("first", {kind: [alike[met - 1] for met in asked] for kind, alike in first.items()}),
            under("latest", {kind: [alike[met - 1] for met in asked] for kind, alike in latest.items()}),
        ),
        says=f"After {knobs.people} people the sum's answer for the first is like the right name by"
        f" {end['sum'][0]:.2f}, where chance predicts {blur[-1]:.2f}, and for the latest by {end['sum'][1]:.2f}:"
        f" it blurs all alike. The γ memory has {end['γ'][1]:.2f} of the latest and {end['γ'][0]:.2f} of the first,"
        f" attention {end['attention'][1]:.2f} and {end['attention'][0]:.2f}.",
        wanted=f"the sum falls as 1/√(1 + people / dim) for everyone, γ keeps the latest (above {KEPT}) and loses the"
        f" first (below {GONE}), attention keeps both (above {KEPT}) at every moment",
        holds=off < NEAR
        and blur[-1] < KEPT
        and abs(end["sum"][1] - blur[-1]) < NEAR
        and min(latest["γ"]) > KEPT
        and end["γ"][0] < GONE
        and min(first["attention"] + latest["attention"]) > KEPT,
    )


def drawn(first: dict[str, list[float]], latest: dict[str, list[float]], gamma: float) -> Figure:
    figure, axes = drawing(2)
    for one, found, who in zip(axes, (first, latest), ("first", "latest"), strict=True):
        met = range(1, len(found["sum"]) + 1)
        curves(one, met, found, STYLES, xlabel="people met", title=f"asked for the {who}", ylim=(-0.1, 1.05))
    axes[0].set_ylabel("likeness to the right name (cosine)")
    axes[1].legend([kind if kind != "γ" else f"γ = {gamma:g}" for kind in latest], frameon=False, loc="lower left")
    return figure
