"""doors: by which door did I come in?

    step t: observation = a guest, action = the door taken before          last step: predict the first door

Claim (deck M, "Review", the party, with actions): a model that acts must remember its actions, not only its
observations. Guests stand behind doors, other ones at every party, and doors are taken at random. The first door does
not depend on the observations. A world model that reads its actions learns to recall it, and its prediction follows
if the actions are shifted. A model that reads the same guests without actions can only guess.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
import torch.nn.functional as F
from matplotlib.figure import Figure
from torch import Tensor

from regard.lab.optimize import lr_schedule, optimize
from regard.lab.result import LabResult, Tracker, plot_curves, subplots, table_rows
from regard.models.world_model import WorldModel, WorldModelConfig
from regard.parts.heads import Model, TokenClassifier
from regard.validate import check_fields, check_minimum

MIN_ACCURACY, TOLERANCE = 0.9, 0.1  # accuracy with actions at least; distance from chance without at most
TEST_PARTIES = 512
STYLES = {"with actions": "C0-o", "without actions": "C1--s", "with shifted actions": "k:x"}


@dataclass(frozen=True)
class DoorsOptions:
    visits: tuple[int, ...] = (2, 4, 8, 16)  # numbers of doors taken before the question
    doors: int = 4  # number of doors, with a guest behind each
    guests: int = 8  # number of possible guests
    dim: int = 48  # model width
    batch: int = 64  # parties per batch
    steps: int = 150  # training steps
    lr: float = 0.02  # peak learning rate
    seed: int = 1  # random seed

    def __post_init__(self) -> None:
        check_fields(self, visits=(len(self.visits) > 0 and min(self.visits) >= 1, "one number or more, from 1"))
        check_fields(self, dim=(self.dim >= 4 and self.dim % 4 == 0, "a multiple of 4"))
        check_fields(self, doors=(2 <= self.doors <= 100, "at least 2, and at most 100"))
        check_fields(self, guests=(self.guests >= self.doors, "at least one for each door"))
        check_minimum(self, 1, "batch", "steps")


QUICK = DoorsOptions(visits=(2, 5), doors=3, guests=4, dim=32, batch=32, steps=60)


class Parties(NamedTuple):
    observations: Tensor  # (B,T,1,O): one-hot guest; the last component marks the question
    actions: Tensor  # (B,T): the door taken, or no action
    labels: Tensor  # (B,): the first door


def parties(count: int, visits: int, options: DoorsOptions) -> Parties:
    behind = torch.rand(count, options.guests).argsort(-1)[:, : options.doors]  # (B,doors)
    actions = torch.randint(options.doors, (count, visits))
    guests_met = behind.gather(1, actions)  # (B,visits)
    observations = F.pad(F.one_hot(guests_met, options.guests).float(), (0, 1, 0, 1))  # (B,visits+1,guests+1)
    observations[:, -1, -1] = 1.0
    no_action = torch.full((count, 1), options.doors)
    return Parties(observations[:, :, None], torch.cat((actions, no_action), 1), actions[:, 0])


def shift_doors(batch: Parties, doors: int) -> Parties:
    """The same guests in the same order, each behind the next door."""
    actions = torch.where(batch.actions < doors, (batch.actions + 1) % doors, batch.actions)
    return Parties(batch.observations, actions, (batch.labels + 1) % doors)


def predict_door(model: Model, batch: Parties, sees_actions: bool, doors: int) -> Tensor:
    actions = batch.actions if sees_actions else torch.full_like(batch.actions, doors)
    return model.head(model.body(batch.observations, actions)[:, -1:, -1])[:, 0]  # (B,doors)


def train_model(visits: int, sees_actions: bool, options: DoorsOptions) -> Model:
    torch.manual_seed(options.seed)
    sizes = {"dim": options.dim, "layers": 2, "heads": 4, "hidden": 2 * options.dim}
    body = WorldModel(WorldModelConfig(options.guests + 1, num_actions=options.doors, context=visits + 1, **sizes))
    model = Model(body, TokenClassifier(options.dim, options.doors))

    def batch_loss() -> Tensor:
        batch = parties(options.batch, visits, options)
        return F.cross_entropy(predict_door(model, batch, sees_actions, options.doors), batch.labels)

    optimize(model, batch_loss, lr_schedule(options.lr, options.steps), grad_clip=1.0)
    return model.eval()


@torch.no_grad()
def accuracy(model: Model, batch: Parties, sees_actions: bool, doors: int) -> float:
    return float((predict_door(model, batch, sees_actions, doors).argmax(-1) == batch.labels).float().mean())


def run(options: DoorsOptions, track: Tracker) -> LabResult:
    counts, rows = sorted(set(options.visits)), []
    for visits in track(counts):
        reader, blind = train_model(visits, True, options), train_model(visits, False, options)
        test = parties(TEST_PARTIES, visits, options)
        conditions = (reader, test, True), (blind, test, False), (reader, shift_doors(test, options.doors), True)
        rows.append([accuracy(*condition, options.doors) for condition in conditions])
    accuracies = dict(zip(STYLES, (list(column) for column in zip(*rows, strict=True)), strict=True))
    chance, (with_actions, without_actions, shifted_actions) = 1 / options.doors, accuracies.values()
    return LabResult(
        plot(counts, accuracies, chance),
        table_rows({"doors taken": counts}, accuracies),
        summary=f"After {counts[-1]} doors the model that reads its actions takes the right one in "
        f"{with_actions[-1]:.0%} of the parties, the one without actions in {without_actions[-1]:.0%} (chance is "
        f"{chance:.0%}). With the same guests behind other doors the first is right in {shifted_actions[-1]:.0%}.",
        expected=f"with actions the accuracy is above {MIN_ACCURACY:.0%}, for shifted actions too; without, it is "
        "chance",
        holds=min(with_actions + shifted_actions) > MIN_ACCURACY
        and max(abs(share - chance) for share in without_actions) < TOLERANCE,
    )


def plot(visits: list[int], accuracies: dict[str, list[float]], chance: float) -> Figure:
    figure, [axes] = subplots(1)
    plot_curves(axes, visits, accuracies, STYLES, xscale="log", ylim=(0, 1.05), xlabel="doors taken", ylabel="accuracy")
    axes.axhline(chance, color="0.7", lw=0.8, zorder=0)
    axes.legend(frameon=False, loc="center right")
    return figure
