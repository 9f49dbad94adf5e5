"""GAIL (Ho & Ermon 2016): act so that nobody can tell it from the expert.

    D(o,a)  the chance that the expert did this         loss = - Σ_expert log D - Σ_policy log (1 - D)
    r       = - log (1 - D)                             what the policy gets for doing as the expert does
    π       learns from r by PPO, where the paper has TRPO: its step is as careful, and much simpler

Who only clones learns what to do where the expert was. Here the policy acts in the world itself, and what leads it away
from where the expert was is found out as well. The world's own rewards are never looked at.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.optim import Adam

from regard.choose import must
from regard.data.batches import Ints
from regard.data.episodes import Episode
from regard.rl.environment import Environment, lived
from regard.rl.policy import Policy, PolicyConfig, Seen, drawn, layers, seen_at
from regard.rl.ppo import PPO, improve, optimizer_of, rows_of
from regard.training.loop import number_from


@dataclass(frozen=True)
class Imitation:
    """How long and how fast to imitate."""

    steps: int = 50_000  # done in the world; the last round is done to its end
    round: int = 1000  # of them, at least, before judge and policy learn
    memory: int = 1  # newest observations that judge and policy see
    hidden: int = 64  # width of their layers
    rate: float = 1e-3  # of the judge
    passes: int = 2  # of the judge over the newest steps
    batch: int = 128  # steps of each, expert and policy

    def __post_init__(self) -> None:
        must(
            self,
            steps=(self.steps >= 1, "at least 1"),
            round=(self.round >= 1, "at least 1"),
            passes=(self.passes >= 1, "at least 1"),
            batch=(self.batch >= 1, "at least 1"),
            rate=(self.rate > 0, "above 0"),
        )


class Round(NamedTuple):
    steps: int  # done in the world so far
    returns: list[float]  # of the episodes of this round, as the world counts them: only for who watches
    told_apart: float  # share of the steps of both that the judge takes for what they are
    policy: Policy


class Deeds(NamedTuple):
    """What was seen, and what was done about it, in all steps of some episodes."""

    seen: Seen  # (N,M,O), (N,M-1)
    actions: Tensor  # (N,)


class Judge(nn.Module):
    """Whether the expert did this: a logit for each step. It sees what the policy sees, and the action."""

    def __init__(self, policy: Policy, hidden: int):
        super().__init__()
        self.policy = [policy]  # in a list: its weights are not the judge's
        c = policy.config
        self.layers = layers(c.observation + (c.memory - 1) * (c.observation + c.actions) + c.actions, hidden, 1, 1.0)

    def forward(self, deeds: Deeds) -> Tensor:
        [policy] = self.policy
        seen = policy.features(deeds.seen)
        done = F.one_hot(deeds.actions, policy.config.actions).to(seen)
        return self.layers(torch.cat((seen, done), -1))[..., 0]

    @torch.no_grad()
    def reward(self, deeds: Deeds) -> Tensor:
        return F.softplus(self(deeds))  # - log (1 - σ(x))


def imitate(
    environment: Environment, expert: Sequence[Episode], how: Imitation, learning: PPO, seed: int = 1
) -> Iterator[Round]:
    """Round after round, with the policy as it is then. All of it follows from the seed."""
    must_suit(environment, expert)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        policy = Policy(PolicyConfig(environment.observation, environment.actions, how.memory, how.hidden))
        judge = Judge(policy, how.hidden)
    policy.fit_scales([one._replace(rewards=np.ones_like(one.rewards)) for one in expert], learning.discount)
    policies, judges = optimizer_of(policy, learning), Adam(judge.parameters(), lr=how.rate)
    shown, steps, number = deeds_of(expert, how.memory), 0, 0
    while steps < how.steps:
        number += 1
        chance = number_from(seed, number)
        episodes = some(environment, policy, how.round, chance)
        steps += sum(len(episode.rewards) for episode in episodes)
        mine = deeds_of(episodes, how.memory)
        told = judged(judge, judges, shown, mine, how, chance)
        rewards = judge.reward(mine).split([len(episode.rewards) for episode in episodes])
        liked = [one._replace(rewards=gain.numpy()) for one, gain in zip(episodes, rewards, strict=True)]
        improve(policy, policies, rows_of(policy, liked, learning), learning, chance)
        yield Round(steps, [float(one.rewards.sum()) for one in episodes], told, policy)


def some(environment: Environment, policy: Policy, steps: int, seed: int) -> list[Episode]:
    """Whole episodes, of so many steps or more in all."""
    found: list[Episode] = []
    for past in lived(environment, drawn(policy, seed), seed):
        if past.over:
            found.append(past.episode(environment.name))
            if sum(len(one.rewards) for one in found) >= steps:
                break
    return found


def deeds_of(episodes: Sequence[Episode], memory: int) -> Deeds:
    parts, done = [], []
    for one in episodes:
        assert one.actions is not None, "nobody acts in a video"
        parts.append(seen_at(one.observations, one.actions, memory, np.arange(len(one.rewards))))
        done.append(torch.from_numpy(one.actions))
    observations, before = (torch.cat(part) for part in zip(*parts, strict=True))
    return Deeds(Seen(observations, before), torch.cat(done))


def chosen(deeds: Deeds, rows: Ints) -> Deeds:
    return Deeds(Seen(deeds.seen.observations[rows], deeds.seen.actions[rows]), deeds.actions[rows])


def judged(judge: Judge, optimizer: Adam, expert: Deeds, mine: Deeds, how: Imitation, seed: int) -> float:
    """The judge learns to tell the two apart; the share of steps that it took for what they are."""
    draw, right = np.random.default_rng(seed), []
    for _ in range(how.passes):
        order = draw.permutation(len(mine.actions))
        for rows in np.array_split(order, max(1, len(order) // how.batch)):
            theirs = judge(chosen(expert, draw.integers(len(expert.actions), size=len(rows))))
            ours = judge(chosen(mine, rows))
            loss = F.softplus(-theirs).mean() + F.softplus(ours).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            right.append(torch.cat((theirs > 0, ours < 0)).float().mean().item())
    return float(np.mean(right))


def must_suit(environment: Environment, expert: Sequence[Episode]) -> None:
    for one in expert:
        where, shape = f"{one.file}:{one.line}", one.observations.shape[1:]
        if one.actions is None:
            raise ValueError(f"{where}: nobody acts here, so there is nobody to imitate")
        if shape != (environment.observation,) or one.actions.max() >= environment.actions:
            raise ValueError(
                f"{where}: its observations are {shape} and its highest action is {one.actions.max()}, but "
                f"{environment.name} shows {environment.observation} numbers and knows {environment.actions} actions"
            )
