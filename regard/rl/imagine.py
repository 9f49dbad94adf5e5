"""Imagination: a policy acts in the model of a world instead of the world itself (Sutton 1990, Ha & Schmidhuber 2018).

    aₜ ~ π(what was seen)        oₜ₊₁ = oₜ + change, rₜ, cₜ = the model's guess        reached ← reached · cₜ

Many rows at once, none of them real, all beginning in states that were. An end is not drawn: the chance to have come so
far goes down instead, and with it what a step counts.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from regard.data.episodes import Episode
from regard.rl.policy import NOTHING, Policy, Seen, seen_at
from regard.rl.ppo import Rows


class Next(NamedTuple):
    """What a model expects of a step."""

    observation: Tensor  # (B,O)
    reward: Tensor  # (B,)
    goes_on: Tensor  # (B,), the chance that the world does not end here


class World(NamedTuple):
    """A model of a world, for whoever acts in it."""

    context: int  # steps that it looks at
    foresee: Callable[[Tensor, Tensor], Next]  # observations (B,C,O) and actions (B,C), NOTHING where there was none


@torch.no_grad()
def imagine(world: World, policy: Policy, starts: Seen, horizon: int, seed: int, greedy: bool = False) -> Rows:
    """`starts` are (B,C,O) observations and (B,C-1) actions between them, as far back as anybody looks."""
    (B, C, wide), M = starts.observations.shape, policy.config.memory
    assert max(world.context, M) <= C, "the starts do not go back as far as model and policy look"
    seen = torch.cat([starts.observations, starts.observations.new_empty(B, horizon, wide)], 1)
    done = torch.cat([starts.actions, starts.actions.new_full((B, horizon), NOTHING)], 1)
    noise = torch.rand(horizon, B, policy.config.actions, generator=torch.Generator().manual_seed(seed))
    luck = -(-noise.clamp(1e-12).log()).log() * (not greedy)  # Gumbel's: the largest sum is drawn by its chance
    logp, rewards, goes_on = (torch.empty(B, horizon) for _ in range(3))
    for t in range(horizon):
        now = C + t  # observations so far
        logits = policy(Seen(seen[:, now - M : now], done[:, now - M : now - 1])).logits
        action = (logits + luck[t]).argmax(-1)
        done[:, now - 1] = action
        logp[:, t] = logits.log_softmax(-1).gather(-1, action[:, None])[:, 0]
        seen[:, now], rewards[:, t], goes_on[:, t] = world.foresee(
            seen[:, now - world.context : now], done[:, now - world.context : now]
        )
    reached = torch.cat([torch.ones(B, 1), goes_on[:, :-1].cumprod(1)], 1)
    last = policy(Seen(seen[:, -M:], done[:, done.size(1) - M + 1 :])).value
    return Rows(looked_at(seen, done, horizon, M), done[:, C - 1 :], logp, rewards, goes_on, reached, last)


def looked_at(seen: Tensor, done: Tensor, horizon: int, memory: int) -> Seen:
    """What the policy saw before each of the last steps: (B,T,M,O) and (B,T,M-1)."""
    ends = torch.arange(seen.size(1) - 1 - horizon, seen.size(1) - 1)
    places = ends[:, None] + torch.arange(1 - memory, 1)
    return Seen(seen[:, places], done[:, places[:, :-1]])


def predicted(rows: Rows) -> float:
    """The return that is expected of a row, on average."""
    return float((rows.reached * rows.rewards).sum(1).mean())


def starts_in(episodes: Sequence[Episode], back: int) -> Seen:
    """Every state of real episodes in which something was done: (N,C,O) and (N,C-1)."""
    found = []
    for episode in episodes:
        assert episode.actions is not None, "nobody acts in a video"
        found.append(seen_at(episode.observations, episode.actions, back, np.arange(episode.steps)))
    return Seen(torch.cat([one.observations for one in found]), torch.cat([one.actions for one in found]))


def some_of(starts: Seen, count: int, fresh: float, seed: int) -> Seen:
    """So many of them by chance; a share are those with which episodes begin."""
    draw = np.random.default_rng(seed)
    begins = (starts.actions == NOTHING).all(-1).nonzero()[:, 0].numpy()
    first = draw.choice(begins, round(count * fresh))
    rest = draw.integers(len(starts.observations), size=count - len(first))
    chosen = torch.from_numpy(np.concatenate([first, rest]))
    return Seen(starts.observations[chosen], starts.actions[chosen])
