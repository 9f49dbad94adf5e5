"""GAIL (Ho & Ermon 2016): generative adversarial imitation learning.

    D(o,a)  the probability that the expert did this    loss = - Σ_expert log D - Σ_policy log (1 - D)
    r       = - log (1 - D)                             the reward of the policy
    π       maximises r by PPO, where the paper has TRPO: its step is as careful, and much simpler

Behaviour cloning learns only what to do in the expert's states. Here the policy acts in the environment, so it also
learns to return to them. The environment's own rewards are not used.
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

from regard.data.batches import Ints
from regard.data.episodes import Episode, EpisodeRow
from regard.data.lint import lint
from regard.data.rows import Row
from regard.modalities.trajectory.episode_files import read_episodes
from regard.modalities.trajectory.modality import demonstrations, top_episodes
from regard.rl.environment import Environment, rollout
from regard.rl.imagine import start_states
from regard.rl.policy import History, Policy, PolicyConfig, mlp, sampling_policy
from regard.rl.ppo import PPOConfig, batch_from_episodes, make_optimizer, ppo_update
from regard.seeds import derive_seed
from regard.validate import check_fields, check_minimum


@dataclass(frozen=True)
class GAILOptions:
    """Length of the training and hyperparameters of the discriminator."""

    steps: int = 50_000  # environment steps of the whole run; the last round is completed
    round_steps: int = 1000  # minimum environment steps per round, at the end of which both networks are updated
    history: int = 1  # latest observations in the input of discriminator and policy
    hidden: int = 64  # hidden width of discriminator and policy
    lr: float = 1e-3  # learning rate of the discriminator
    epochs: int = 2  # epochs of the discriminator over the steps of a round
    batch_size: int = 128  # steps of the expert, and as many of the policy, per batch of the discriminator

    def __post_init__(self) -> None:
        check_minimum(self, 1, "steps", "round_steps", "epochs", "batch_size")
        check_fields(self, lr=(self.lr > 0, "above 0"))


class GAILRound(NamedTuple):
    steps: int  # environment steps so far
    returns: list[float]  # of the episodes of this round, by the environment's rewards: for information only
    discriminator_accuracy: float  # on steps of expert and policy
    policy: Policy


class StateActionPairs(NamedTuple):
    """All steps of several episodes."""

    history: History  # (N,M,O), (N,M-1)
    actions: Tensor  # (N,)


class Discriminator(nn.Module):
    """The logit of D(o,a) for each step, from the input of the policy and the action."""

    def __init__(self, policy: Policy, hidden: int):
        super().__init__()
        self.policy = [policy]  # in a list: its weights are not the discriminator's
        self.mlp = mlp(policy.config.input_dim + policy.config.num_actions, hidden, 1, 1.0)

    def forward(self, pairs: StateActionPairs) -> Tensor:
        [policy] = self.policy
        features = policy.features(pairs.history)
        actions = F.one_hot(pairs.actions, policy.config.num_actions).to(features)
        return self.mlp(torch.cat((features, actions), -1))[..., 0]

    @torch.no_grad()
    def reward(self, pairs: StateActionPairs) -> Tensor:
        return F.softplus(self(pairs))  # - log (1 - σ(x))


def imitate(
    environment: Environment, rows: Sequence[EpisodeRow], options: GAILOptions, ppo: PPOConfig, seed: int = 1
) -> Iterator[GAILRound]:
    """Imitate the expert of these episodes, round by round; yields each with the policy as it is then. The seed
    determines all of it."""
    check_expert(environment, rows)
    expert = [row.input for row in rows]
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        sizes = PolicyConfig(environment.observation_dim, environment.num_actions, options.history, options.hidden)
        policy = Policy(sizes)
        discriminator = Discriminator(policy, options.hidden)
    policy.fit_scales([episode._replace(rewards=np.ones_like(episode.rewards)) for episode in expert], ppo.discount)
    policy_optimizer, optimizer = make_optimizer(policy, ppo), Adam(discriminator.parameters(), lr=options.lr)
    expert_pairs, steps, number = state_action_pairs(expert, options.history), 0, 0
    while steps < options.steps:
        number += 1
        round_seed = derive_seed(seed, number)
        episodes = collect_episodes(environment, policy, options.round_steps, round_seed)
        steps += sum(lengths := [episode.steps for episode in episodes])
        pairs = state_action_pairs(episodes, options.history)
        accuracy = train_discriminator(discriminator, optimizer, expert_pairs, pairs, options, round_seed)
        rewards = discriminator.reward(pairs).split(lengths)
        relabelled = [episode._replace(rewards=r.numpy()) for episode, r in zip(episodes, rewards, strict=True)]
        ppo_update(policy, policy_optimizer, batch_from_episodes(policy, relabelled, ppo), ppo, round_seed)
        yield GAILRound(steps, [float(episode.rewards.sum()) for episode in episodes], accuracy, policy)


def collect_episodes(environment: Environment, policy: Policy, steps: int, seed: int) -> list[Episode]:
    """Complete episodes of at least so many steps in all; actions are sampled."""
    episodes: list[Episode] = []
    for trajectory in rollout(environment, sampling_policy(policy, seed), seed):
        if trajectory.done:
            episodes.append(trajectory.to_episode())
            if sum(episode.steps for episode in episodes) >= steps:
                break
    return episodes


def state_action_pairs(episodes: Sequence[Episode], history_length: int) -> StateActionPairs:
    actions = [torch.from_numpy(episode.actions) for episode in episodes if episode.actions is not None]
    return StateActionPairs(start_states(episodes, history_length), torch.cat(actions))


def select_rows(pairs: StateActionPairs, rows: Ints) -> StateActionPairs:
    return StateActionPairs(History(*(tensor[rows] for tensor in pairs.history)), pairs.actions[rows])


def train_discriminator(
    model: Discriminator, optimizer: Adam, expert: StateActionPairs, pairs: StateActionPairs, o: GAILOptions, seed: int
) -> float:
    """Train on steps of expert and policy; returns the accuracy during training."""
    rng, accuracies = np.random.default_rng(seed), []
    for _ in range(o.epochs):
        order = rng.permutation(len(pairs.actions))
        for rows in np.array_split(order, max(1, len(order) // o.batch_size)):
            expert_logits = model(select_rows(expert, rng.integers(len(expert.actions), size=len(rows))))
            policy_logits = model(select_rows(pairs, rows))
            loss = F.softplus(-expert_logits).mean() + F.softplus(policy_logits).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            accuracies.append(torch.cat((expert_logits > 0, policy_logits < 0)).float().mean().item())
    return float(np.mean(accuracies))


def expert_episodes(paths: Sequence[str], top_fraction: float) -> list[EpisodeRow]:
    """The episodes of files, or the bundled ones, with the highest returns."""
    items = read_episodes(paths) if paths else demonstrations("train")
    rows = top_episodes(lint({"data": items})[0]["data"], top_fraction)
    return [row for row in rows if isinstance(row, Row)]


def check_expert(environment: Environment, rows: Sequence[EpisodeRow]) -> None:
    for row in rows:
        actions, shape = row.input.actions, row.input.observations.shape[1:]
        if actions is None:
            raise ValueError(f"{row.location}a video has no actions to imitate; give episodes with actions")
        if shape != (environment.observation_dim,) or actions.max() >= environment.num_actions:
            raise ValueError(
                f"{row.location}observations have shape {shape} and the highest action is {actions.max()}, but "
                f"{environment.name} has {environment.observation_dim} observation entries and "
                f"{environment.num_actions} actions"
            )
