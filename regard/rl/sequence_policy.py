"""Who decides with a model that learnt from episodes: step by step, with as many steps in sight as its context holds.

aₜ = the most probable of p(a | the last steps), or one drawn from p^(1/temperature)
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from regard.data.episodes import Episode
from regard.parts.heads import Model
from regard.rl.environment import Environment, Past, begun, luck
from regard.tasks.decide import Decide, Wishes
from regard.tasks.steps import to_go


class Decider:
    """A player of one episode, or of many at once: `decider(past)` is an action."""

    def __init__(self, model: Model, task: Decide, how: Wishes, seed: int = 1):
        self.model, self.task, self.temperature = model.eval(), task, how.temperature
        self.wish, self.seed = task.wished(how), seed

    def __call__(self, past: Past) -> int:
        return self.all([past])[0]

    @torch.inference_mode()
    def all(self, pasts: Sequence[Past]) -> list[int]:
        """An action for each of some episodes that have gone on for as many steps."""
        task, context = self.task, self.model.body.config.context
        seen, before = [], []
        for past in pasts:
            newest = np.stack(past.observations[-context:])
            besides = to_go(np.array(past.rewards, np.float32), self.wish)[-context:]
            seen.append(task.scaled(newest, besides))
            before.append([task.kinds, *past.actions][-context:])
        logp = task.chances(self.model, np.stack(seen), np.array(before))  # (B,actions)
        if not self.temperature:
            return logp.argmax(-1).tolist()
        below = (logp.double() / self.temperature).softmax(-1).cumsum(-1)[:, :-1]
        return [int((row <= luck(past, self.seed)).sum()) for row, past in zip(below, pasts, strict=True)]


def together(worlds: Sequence[Environment], decider: Decider, seed: int, first: int = 0) -> list[Episode]:
    """One episode in each world, all of them step by step at once: the same as one after the other, and sooner. `first`
    is the number of the first one, from which all that is random in it follows."""
    for world in worlds:
        must_suit(world, decider.task)
    pasts = [begun(world, seed, number) for number, world in enumerate(worlds, first)]
    while going := [(world, past) for world, past in zip(worlds, pasts, strict=True) if not past.over]:
        for (world, past), action in zip(going, decider.all([past for _, past in going]), strict=True):
            past.add(action, world.step(action))
    return [past.episode(world.name) for world, past in zip(worlds, pasts, strict=True)]


def must_suit(world: Environment, task: Any) -> None:
    """Refuse a world with other observations or actions than those that were learnt from."""
    if [world.observation] != task.senses.shape or world.actions != task.kinds:
        raise ValueError(
            f"{world.name} shows {world.observation} numbers and knows {world.actions} actions, but this model learnt "
            f"from observations of {task.senses.shape} and {task.kinds} actions"
        )
