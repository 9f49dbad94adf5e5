"""The model of a world that learns while somebody acts in it: what it learns from grows, and so do its scales.

Scales that fit the first hundred steps of somebody who knows nothing do not fit those of somebody who gets about. When
they are estimated anew, the first and the last layer take up the change, so that the model says what it said:

    W (x - m₀) / s₀ + b  =  W' (x - m₁) / s₁ + b'          W' = W s₁ / s₀,   b' = b + W (m₁ - m₀) / s₀
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, fields, replace

import numpy as np
import torch
from torch import Tensor

from regard.data.batches import Ints
from regard.data.episodes import Episode, Floats
from regard.data.moments import Moments, Window
from regard.data.senses import Senses
from regard.parts.heads import Model
from regard.rl.imagine import Next, World
from regard.rl.policy import NOTHING
from regard.tasks.predict import Predict
from regard.tasks.predict import Seen as Batch
from regard.training.loop import Progress

MOST = 128  # windows of a batch: many small steps are better than few large ones
ENDS = 8  # one window in so many ends where the world ended an episode: there is little else to learn ends from


def unscaled(observation: int, actions: int) -> Predict:
    """The task before anything was seen."""
    no, one = [0.0] * observation, [1.0] * observation
    senses = Senses([observation], 1, mean=no, spread=one, change=one, low=0.0, high=0.0)
    return Predict(kinds=actions, sensed=asdict(senses), reward=[0.0, 1.0])


def rescaled(task: Predict, progress: Progress, episodes: Sequence[Episode]) -> Predict:
    """The task with the scales of these episodes, and a model that goes on as it was."""
    new = replace(Predict.fit(episodes, "foresees", {}, {}, patch=None), kinds=task.kinds)
    take_up(progress.model, task, new)
    if (average := progress.average) is not None:
        with average.in_place():
            take_up(progress.model, task, new)
            torch._foreach_copy_(average.means, average.weights)
    return new


@torch.no_grad()
def take_up(model: Model, old: Predict, new: Predict) -> None:
    device = next(model.parameters()).device
    (m0, s0, c0), (m1, s1, c1) = ([one.to(device) for one in task.senses.scales] for task in (old, new))
    stem, change, outcome = model.body.stem, model.head.change, model.head.outcome
    stem.bias += stem.weight @ ((m1 - m0) / s0)
    stem.weight *= s1 / s0
    change.weight *= (c0 / c1)[:, None]
    change.bias *= c0 / c1
    outcome.weight[0] *= old.reward[1] / new.reward[1]
    outcome.bias[0] = (outcome.bias[0] * old.reward[1] + old.reward[0] - new.reward[0]) / new.reward[1]


def as_world(task: Predict, model: Model) -> World:
    """The model as somebody meets it who acts."""
    device, context = next(model.parameters()).device, model.body.config.context
    mean, spread = task.reward

    def foresee(observations: Tensor, actions: Tensor) -> Next:
        known = actions != NOTHING
        itself = torch.eye(known.size(1), dtype=torch.bool)  # what never was is seen by nobody else
        mask = None if bool(known.all()) else (known[:, None, None] | itself).to(device)
        seen = observations.to(device)
        told = model.head(model.body(task.senses.given(seen), actions.clamp(min=0).to(device), mask)[:, -1:])
        after = task.senses.after(seen[:, -1:], told.change)[:, 0]
        assert told.reward is not None
        assert told.end is not None
        return Next(after.cpu(), told.reward[:, 0].cpu() * spread + mean, (-told.end[:, 0]).sigmoid().cpu())

    return World(context, foresee)


class Remembering(Predict):
    """What the model is asked while it learns. The first step of a window is seen but not asked about, unless the
    episode began there: what went before may be what tells what comes next."""

    @classmethod
    def of(cls, task: Predict) -> Remembering:
        return cls(**{one.name: getattr(task, one.name) for one in fields(task)})

    def batch(self, examples: Moments, rows: Ints) -> Batch:
        found = super().batch(examples, rows)
        first = torch.from_numpy(examples.at(rows)[1] == 0)
        real = torch.cat([found.real[:, :1] & first[:, None], found.real[:, 1:]], 1)
        return found._replace(real=real)


class Lived(Moments):
    """Windows of what was lived so far: any of them, and those at an end more often than they come. Each epoch is one
    batch, so that the next one may be drawn from more."""

    def __init__(self, episodes: Sequence[Episode], context: int, tokens: int):
        super().__init__(episodes, context, tokens)
        spans = zip(self.begins.tolist(), episodes, strict=False)
        self.ends = np.array([a + max(0, one.steps - self.context) for a, one in spans if one.ended], np.int64)
        self.seen: Floats = np.concatenate([one.observations for one in episodes])
        self.rewards: Floats = np.concatenate([one.rewards for one in episodes])
        self.actions: Ints = np.concatenate([one.actions for one in episodes if one.actions is not None])
        self.ending: Floats = np.zeros(len(self.rewards), np.float32)
        self.ending[self.begins[1:] - 1] = [one.ended for one in episodes]

    def rows(self, budget: int) -> int:
        return min(MOST, super().rows(budget))

    def epoch(self, budget: int, seed: int, epoch: int) -> list[Ints]:
        draw, count = np.random.default_rng([seed, epoch]), self.rows(budget)
        every = self.every()
        ends = draw.choice(self.ends, count // ENDS) if len(self.ends) else self.ends
        return [np.concatenate([ends, draw.choice(every, count - len(ends))])]

    def take(self, starts: Ints) -> Window:
        """All at once: this is done for every step of a model that takes a few thousandths of a second for one."""
        number, _ = self.at(starts)
        lengths = np.minimum(self.context, self.left(starts))
        T = int(lengths.max())
        real = np.arange(T) < lengths[:, None]
        steps = starts[:, None] + np.minimum(np.arange(T), lengths[:, None] - 1)
        after = (starts + number)[:, None] + np.minimum(np.arange(T + 1), lengths[:, None])
        return Window(
            self.seen[after], self.actions[steps] * real, self.rewards[steps] * real, self.ending[steps] * real, lengths
        )
