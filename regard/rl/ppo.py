"""Proximal policy optimisation (Schulman et al. 2017): make what went better than expected more likely, a little.

    δₜ = rₜ + γ cₜ V(oₜ₊₁) - V(oₜ)              c: the chance that the world goes on, 0 where it ended
    Aₜ = δₜ + γ λ cₜ Aₜ₊₁                       what an action brought beyond V   (Schulman et al. 2016)
    ρₜ = π(aₜ) / π_old(aₜ)
    L  = -Σ wₜ min(ρₜ Aₜ, clip(ρₜ, 1 ± ε) Aₜ)    nothing is gained by going further than ε from the old policy

A step counts by wₜ, the chance that it is reached: in imagination an end is a probability, and nothing is drawn.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.optim import Adam

from regard.choose import must
from regard.data.episodes import Episode
from regard.rl.policy import Policy, Seen, seen_at


@dataclass(frozen=True)
class PPO:
    """How a policy is improved."""

    discount: float = 0.99  # what a reward is worth one step later
    trace: float = 0.95  # how far an advantage looks before it trusts the value: 0 one step, 1 to the end
    clip: float = 0.2  # how far the chance of an action may move in one update
    entropy: float = 0.005  # pull towards trying things
    passes: int = 4  # over the same rows
    parts: int = 4  # batches of a pass
    rate: float = 1e-3  # of Adam
    longest: float = 0.5  # gradient

    def __post_init__(self) -> None:
        must(
            self,
            discount=(0 <= self.discount < 1, "at least 0 and below 1"),
            trace=(0 <= self.trace <= 1, "0 to 1"),
            clip=(0 < self.clip < 1, "above 0 and below 1"),
            entropy=(self.entropy >= 0, "0 or more"),
            passes=(self.passes >= 1, "at least 1"),
            parts=(self.parts >= 1, "at least 1"),
        )


class Rows(NamedTuple):
    """What was played, imagined or real: B rows of T steps."""

    seen: Seen  # what the policy saw before each action: (B,T,M,O), (B,T,M-1)
    actions: Tensor  # (B,T)
    logp: Tensor  # (B,T), of each action when it was chosen
    rewards: Tensor  # (B,T)
    goes_on: Tensor  # (B,T), the chance that the world goes on after it
    reached: Tensor  # (B,T), the chance that the row comes so far; 0 where there is nothing
    last: Tensor  # (B,), the value of what followed the last step


class Update(NamedTuple):
    loss: float  # of the policy
    value: float  # squared error of the values, in their unit
    entropy: float  # of the choices, in nats
    moved: float  # share of steps whose chance moved beyond the clip


def advantages(rewards: Tensor, values: Tensor, goes_on: Tensor, last: Tensor, how: PPO) -> Tensor:
    """(B,T), from the end to the beginning."""
    after, follows = last, torch.zeros_like(last)
    found = torch.empty_like(rewards)
    for t in reversed(range(rewards.size(1))):
        surprise = rewards[:, t] + how.discount * goes_on[:, t] * after - values[:, t]
        follows = surprise + how.discount * how.trace * goes_on[:, t] * follows
        found[:, t], after = follows, values[:, t]
    return found


def optimizer_of(policy: Policy, how: PPO) -> Adam:
    return Adam(policy.parameters(), lr=how.rate, eps=1e-5)


def improve(policy: Policy, optimizer: Adam, rows: Rows, how: PPO, seed: int) -> Update:
    """A few passes over the rows. The mean of what was seen on the way."""
    with torch.no_grad():
        values = policy(rows.seen).value
        gain = advantages(rows.rewards, values, rows.goes_on, rows.last, how)
        wanted = gain + values
    weight = rows.reached.flatten()
    there = weight.nonzero()[:, 0]
    flat = Seen(rows.seen.observations.flatten(0, 1)[there], rows.seen.actions.flatten(0, 1)[there])
    weight, gain, wanted = weight[there], gain.flatten()[there], wanted.flatten()[there]
    actions, logp = rows.actions.flatten()[there], rows.logp.flatten()[there]
    gain = standard(gain, weight)
    draw, told = np.random.default_rng(seed), []
    for _ in range(how.passes):
        for some in np.array_split(draw.permutation(len(there)), min(how.parts, len(there))):
            part = torch.from_numpy(some)
            thought = policy(Seen(flat.observations[part], flat.actions[part]))
            log_chances = thought.logits.log_softmax(-1)
            ratio = (log_chances.gather(-1, actions[part, None])[:, 0] - logp[part]).exp()
            w, a = weight[part] / weight[part].sum(), gain[part]
            loss = -(w * torch.minimum(ratio * a, ratio.clamp(1 - how.clip, 1 + how.clip) * a)).sum()
            error = (
                w * F.smooth_l1_loss(thought.value / policy.unit, wanted[part] / policy.unit, reduction="none")
            ).sum()
            entropy = -(w * (log_chances.exp() * log_chances).sum(-1)).sum()
            optimizer.zero_grad()
            (loss + error - how.entropy * entropy).backward()
            torch.nn.utils.clip_grad_norm_(policy.parameters(), how.longest)
            optimizer.step()
            moved = (w * ((ratio - 1).abs() > how.clip)).sum()
            told.append([loss.item(), error.item(), entropy.item(), moved.item()])
    return Update(*np.mean(told, 0).tolist())


def standard(gain: Tensor, weight: Tensor) -> Tensor:
    """With mean 0 and spread 1, each counted by its weight."""
    share = weight / weight.sum()
    mean = (share * gain).sum()
    return (gain - mean) / ((share * (gain - mean).square()).sum().sqrt() + 1e-8)


@torch.no_grad()
def rows_of(policy: Policy, episodes: Sequence[Episode], how: PPO) -> Rows:
    """Real episodes that this policy has just played, one a row, the rest of a shorter one empty. Where time cut one
    off the world would have gone on: the value of what was last seen joins the last reward."""
    longest, memory = max(len(episode.rewards) for episode in episodes), policy.config.memory
    every = []
    for episode in episodes:
        assert episode.actions is not None, "nobody acts in a video"
        steps = len(episode.rewards)
        seen = seen_at(episode.observations, episode.actions, memory, np.arange(longest).clip(max=steps))
        actions, thought = torch.from_numpy(episode.actions), policy(seen)
        logp = thought.logits[:steps].log_softmax(-1).gather(-1, actions[:, None])[:, 0]
        rewards, goes_on = torch.from_numpy(episode.rewards.copy()), torch.ones(steps)
        goes_on[-1] = 0
        if not episode.ended:
            final = policy(seen_at(episode.observations, episode.actions, memory, np.array([steps]))).value[0]
            rewards[-1] += how.discount * final
        rest = (0, longest - steps)
        parts = (actions, logp, rewards, goes_on, torch.ones(steps))
        every.append((*seen, *(F.pad(part, rest) for part in parts)))
    seen_then, before, done, logs, gains, on, there = (torch.stack(part) for part in zip(*every, strict=True))
    return Rows(Seen(seen_then, before), done, logs, gains, on, there, torch.zeros(len(episodes)))
