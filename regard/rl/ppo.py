"""Proximal policy optimisation (Schulman et al. 2017) with generalised advantage estimation (Schulman et al. 2016).

    δₜ = rₜ + γ cₜ V(oₜ₊₁) - V(oₜ)              c: the probability that the episode continues, 0 where it terminated
    Aₜ = δₜ + γ λ cₜ Aₜ₊₁                       the advantage of an action
    ρₜ = π(aₜ) / π_old(aₜ)
    L  = -Σ wₜ min(ρₜ Aₜ, clip(ρₜ, 1 ± ε) Aₜ)    no gain from moving further than ε from the old policy

wₜ is the probability that step t is reached: in imagination a termination is a probability and is not sampled.
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

from regard.data.episodes import Episode
from regard.rl.policy import History, Policy, history_at
from regard.validate import check_fields, check_minimum


@dataclass(frozen=True)
class PPOConfig:
    """Hyperparameters of PPO."""

    discount: float = 0.99  # γ
    gae_lambda: float = 0.95  # λ: 0 trusts the value function after one step, 1 never
    clip_range: float = 0.2  # ε
    entropy_coef: float = 0.005  # weight of the entropy bonus
    epochs: int = 4  # passes over a rollout batch
    minibatches: int = 4  # of an epoch
    lr: float = 1e-3  # learning rate of Adam
    max_grad_norm: float = 0.5

    def __post_init__(self) -> None:
        check_minimum(self, 1, "epochs", "minibatches")
        check_minimum(self, 0, "entropy_coef")
        check_fields(
            self,
            discount=(0 <= self.discount < 1, "at least 0 and below 1"),
            gae_lambda=(0 <= self.gae_lambda <= 1, "0 to 1"),
            clip_range=(0 < self.clip_range < 1, "above 0 and below 1"),
        )


class RolloutBatch(NamedTuple):
    """Rollouts, imagined or real: B rows of T steps."""

    history: History  # the policy's input before each action: (B,T,M,O), (B,T,M-1)
    actions: Tensor  # (B,T)
    log_probs: Tensor  # (B,T), of each action under the policy that chose it
    rewards: Tensor  # (B,T)
    continue_prob: Tensor  # (B,T), probability that the episode continues after the step
    reach_prob: Tensor  # (B,T), probability that the row reaches the step; 0 for padding
    last_value: Tensor  # (B,), value after the last step


def compute_gae(
    rewards: Tensor, values: Tensor, continue_prob: Tensor, last_value: Tensor, config: PPOConfig
) -> Tensor:
    """Advantages (B,T), computed from the last step to the first."""
    next_value, advantage = last_value, torch.zeros_like(last_value)
    advantages = torch.empty_like(rewards)
    for t in reversed(range(rewards.size(1))):
        delta = rewards[:, t] + config.discount * continue_prob[:, t] * next_value - values[:, t]
        advantage = delta + config.discount * config.gae_lambda * continue_prob[:, t] * advantage
        advantages[:, t], next_value = advantage, values[:, t]
    return advantages


def make_optimizer(policy: Policy, config: PPOConfig) -> Adam:
    return Adam(policy.parameters(), lr=config.lr, eps=1e-5)


def ppo_update(policy: Policy, optimizer: Adam, batch: RolloutBatch, config: PPOConfig, seed: int) -> float:
    """A few epochs over the batch. Returns the share of steps whose ratio left the clip range."""
    with torch.no_grad():
        values = policy(batch.history).value
        advantages = compute_gae(batch.rewards, values, batch.continue_prob, batch.last_value, config)
        targets = advantages + values
    weight = batch.reach_prob.flatten()
    real = weight.nonzero()[:, 0]
    history = History(batch.history.observations.flatten(0, 1)[real], batch.history.actions.flatten(0, 1)[real])
    weight, advantages, targets = weight[real], advantages.flatten()[real], targets.flatten()[real]
    actions, old_log_probs = batch.actions.flatten()[real], batch.log_probs.flatten()[real]
    advantages = normalize_advantages(advantages, weight)
    rng, clip_fractions = np.random.default_rng(seed), []
    for _ in range(config.epochs):
        for indices in np.array_split(rng.permutation(len(real)), min(config.minibatches, len(real))):
            rows = torch.from_numpy(indices)
            output = policy(History(history.observations[rows], history.actions[rows]))
            log_probs, values = output.logits.log_softmax(-1), output.value / policy.value_scale
            ratio = (log_probs.gather(-1, actions[rows, None])[:, 0] - old_log_probs[rows]).exp()
            w, a = weight[rows] / weight[rows].sum(), advantages[rows]
            loss = -(w * torch.minimum(ratio * a, ratio.clamp(1 - config.clip_range, 1 + config.clip_range) * a)).sum()
            value_loss = (w * F.smooth_l1_loss(values, targets[rows] / policy.value_scale, reduction="none")).sum()
            entropy = -(w * (log_probs.exp() * log_probs).sum(-1)).sum()
            optimizer.zero_grad()
            (loss + value_loss - config.entropy_coef * entropy).backward()
            torch.nn.utils.clip_grad_norm_(policy.parameters(), config.max_grad_norm)
            optimizer.step()
            clip_fractions.append((w * ((ratio - 1).abs() > config.clip_range)).sum().item())
    return float(np.mean(clip_fractions))


def normalize_advantages(advantages: Tensor, weight: Tensor) -> Tensor:
    """Weighted mean 0 and standard deviation 1."""
    share = weight / weight.sum()
    mean = (share * advantages).sum()
    return (advantages - mean) / ((share * (advantages - mean).square()).sum().sqrt() + 1e-8)


@torch.no_grad()
def batch_from_episodes(policy: Policy, episodes: Sequence[Episode], config: PPOConfig) -> RolloutBatch:
    """Real episodes that this policy has just played, one a row, shorter ones padded. Where the time limit truncated
    an episode, the discounted value of the last observation is added to the last reward (bootstrapping)."""
    longest, length = max(len(episode.rewards) for episode in episodes), policy.config.history_length
    rows = []
    for episode in episodes:
        assert episode.actions is not None, "a video has no actions"
        steps = len(episode.rewards)
        history = history_at(episode.observations, episode.actions, length, np.arange(longest).clip(max=steps))
        actions, output = torch.from_numpy(episode.actions), policy(history)
        log_probs = output.logits[:steps].log_softmax(-1).gather(-1, actions[:, None])[:, 0]
        rewards, continue_prob = torch.from_numpy(episode.rewards.copy()), torch.ones(steps)
        continue_prob[-1] = 0
        if not episode.terminated:
            final = policy(history_at(episode.observations, episode.actions, length, np.array([steps]))).value[0]
            rewards[-1] += config.discount * final
        columns = (actions, log_probs, rewards, continue_prob, torch.ones(steps))
        rows.append((*history, *(F.pad(column, (0, longest - steps)) for column in columns)))
    observations, previous, actions, log_probs, rewards, continue_prob, reach_prob = (
        torch.stack(column) for column in zip(*rows, strict=True)
    )
    history, last_value = History(observations, previous), torch.zeros(len(episodes))
    return RolloutBatch(history, actions, log_probs, rewards, continue_prob, reach_prob, last_value)
