"""doors: by which door did I come in?

    step t: a guest is seen, and which door was taken before          at last nobody is there: take the first door again

Claim (deck M, "Review", the party, with actions): a model that acts must remember what it did, not only what it saw.
Guests stand behind doors, at every party others, and one door after the other is taken by chance. To leave by the one
that was the first depends on nothing that was seen. A model of the world that is told its actions learns it, and its
answer follows if other doors were taken. One that sees the same guests and is not told what it did can only guess.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
import torch.nn.functional as F
from matplotlib.figure import Figure
from torch import Tensor

from regard.choose import must
from regard.lab.optimize import learn, rates
from regard.lab.result import Each, Finding, at_least, curves, drawing, rows
from regard.models.world import World, WorldConfig
from regard.parts.heads import Model, PerToken

KNOWS, NEAR = 0.9, 0.1  # share of right answers at least, and how far from a guess at most
NEW = 512  # parties that it is tested at
STYLES = {"told what it did": "C0-o", "not told": "C1--s", "told of other doors": "k:x"}


@dataclass(frozen=True)
class Knobs:
    visits: tuple[int, ...] = (2, 4, 8, 16)  # doors taken before it is time to leave
    doors: int = 4  # to choose from, with a guest behind each
    guests: int = 8  # who may stand there
    dim: int = 48  # width of the model
    batch: int = 64  # parties in a lesson
    steps: int = 150  # lessons
    rate: float = 0.02  # highest learning rate
    seed: int = 1  # of weights and parties

    def __post_init__(self) -> None:
        must(self, visits=(len(self.visits) > 0 and min(self.visits) >= 1, "one number or more, from 1"))
        must(self, dim=(self.dim >= 4 and self.dim % 4 == 0, "a multiple of 4"))
        must(self, doors=(2 <= self.doors <= 100, "at least 2, and at most 100"))
        must(self, guests=(self.guests >= self.doors, "at least one for each door"))
        at_least(1, self, "batch", "steps")


QUICK = Knobs(visits=(2, 5), doors=3, guests=4, dim=32, batch=32, steps=60)


class Parties(NamedTuple):
    seen: Tensor  # (B,T,1,O): who is there; the last number tells that it is time to leave
    taken: Tensor  # (B,T): the door taken before, or nothing
    right: Tensor  # (B,)


def parties(count: int, visits: int, knobs: Knobs) -> Parties:
    behind = torch.rand(count, knobs.guests).argsort(-1)[:, : knobs.doors]  # (B,doors)
    taken = torch.randint(knobs.doors, (count, visits))
    met = behind.gather(1, taken)  # (B,visits)
    seen = F.pad(F.one_hot(met, knobs.guests).float(), (0, 1, 0, 1))  # (B,visits+1,guests+1)
    seen[:, -1, -1] = 1.0
    nothing = torch.full((count, 1), knobs.doors)
    return Parties(seen[:, :, None], torch.cat((taken, nothing), 1), taken[:, 0])


def elsewhere(some: Parties, doors: int) -> Parties:
    """The same guests in the same order, met behind the next door each."""
    moved = torch.where(some.taken < doors, (some.taken + 1) % doors, some.taken)
    return Parties(some.seen, moved, (some.right + 1) % doors)


def answers(model: Model, some: Parties, told: bool, doors: int) -> Tensor:
    taken = some.taken if told else torch.full_like(some.taken, doors)
    return model.head(model.body(some.seen, taken)[:, -1:, -1])[:, 0]  # (B,doors)


def taught(visits: int, told: bool, knobs: Knobs) -> Model:
    torch.manual_seed(knobs.seed)
    sizes = {"dim": knobs.dim, "layers": 2, "heads": 4, "hidden": 2 * knobs.dim}
    body = World(WorldConfig(knobs.guests + 1, actions=knobs.doors, context=visits + 1, **sizes))
    model = Model(body, PerToken(knobs.dim, knobs.doors))

    def lesson() -> Tensor:
        some = parties(knobs.batch, visits, knobs)
        return F.cross_entropy(answers(model, some, told, knobs.doors), some.right)

    learn(model, lesson, rates(knobs.rate, knobs.steps), clip=1.0)
    return model.eval()


@torch.no_grad()
def share(model: Model, some: Parties, told: bool, doors: int) -> float:
    return float((answers(model, some, told, doors).argmax(-1) == some.right).float().mean())


def run(knobs: Knobs, each: Each) -> Finding:
    asked, shares = sorted(set(knobs.visits)), []
    for visits in each(asked):
        knowing, unknowing = taught(visits, True, knobs), taught(visits, False, knobs)
        new = parties(NEW, visits, knobs)
        tries = (knowing, new, True), (unknowing, new, False), (knowing, elsewhere(new, knobs.doors), True)
        shares.append([share(*one, knobs.doors) for one in tries])
    told, untold, other = (list(column) for column in zip(*shares, strict=True))
    guess, found = 1 / knobs.doors, dict(zip(STYLES, (told, untold, other), strict=True))
    return Finding(
        drawn(asked, found, guess),
        rows({"doors taken": asked}, found),
        says=f"After {asked[-1]} doors the model that is told what it did takes the right one {told[-1]:.0%} of the "
        f"time, the one that is not told {untold[-1]:.0%}, where a guess is {guess:.0%}. With the same guests behind "
        f"other doors it is right {other[-1]:.0%} of the time.",
        wanted=f"who is told what it did finds its door (above {KNOWS:.0%}), any other too; who is not told guesses",
        holds=min(told + other) > KNOWS and max(abs(one - guess) for one in untold) < NEAR,
    )


def drawn(asked: list[int], found: dict[str, list[float]], guess: float) -> Figure:
    figure, [axes] = drawing(1)
    curves(axes, asked, found, STYLES, xscale="log", ylim=(0, 1.05), xlabel="doors taken", ylabel="right doors")
    axes.axhline(guess, color="0.7", lw=0.8, zorder=0)
    axes.legend(frameon=False, loc="center right")
    return figure
