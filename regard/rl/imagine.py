"""Imagination: rollouts of a policy in a learned transition model (Sutton 1990, Ha & Schmidhuber 2018).

    aₜ ~ π(history)        oₜ₊₁, rₜ, cₜ = model(last observations and actions)        reach_prob ← reach_prob · cₜ

All rows of a batch start in real states. A termination is not sampled: the probability of reaching a step, and with it
the weight of the step, goes down instead.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from regard.data.episodes import Episode
from regard.rl.policy import NO_ACTION, History, Policy, history_at
from regard.rl.ppo import RolloutBatch


class Transition(NamedTuple):
    """What the model predicts for a step."""

    observation: Tensor  # (B,O)
    reward: Tensor  # (B,)
    continue_prob: Tensor  # (B,), probability that the episode does not terminate here


class TransitionModel(NamedTuple):
    """A learned model of an environment."""

    context: int  # steps in its input
    predict: Callable[[Tensor, Tensor], Transition]  # of observations (B,C,O) and actions (B,C), NO_ACTION for padding


@torch.no_grad()
def imagine(
    transition_model: TransitionModel, policy: Policy, starts: History, horizon: int, seed: int, greedy: bool = False
) -> RolloutBatch:
    """`starts` are (B,C,O) observations and (B,C-1) actions between them; C covers the inputs of model and policy."""
    (B, C, width), M, context = starts.observations.shape, policy.config.history_length, transition_model.context
    assert max(context, M) <= C, "the starts are shorter than the input of the model or of the policy"
    observations = torch.cat([starts.observations, starts.observations.new_empty(B, horizon, width)], 1)
    actions = torch.cat([starts.actions, starts.actions.new_full((B, horizon), NO_ACTION)], 1)
    noise = torch.rand(horizon, B, policy.config.num_actions, generator=torch.Generator().manual_seed(seed))
    gumbel = -(-noise.clamp(1e-12).log()).log() * (not greedy)  # argmax(logits + gumbel) is a sample
    log_probs, rewards, continue_prob = (torch.empty(B, horizon) for _ in range(3))
    for t in range(horizon):
        end = C + t  # observations so far
        logits = policy(History(observations[:, end - M : end], actions[:, end - M : end - 1])).logits
        actions[:, end - 1] = action = (logits + gumbel[t]).argmax(-1)
        log_probs[:, t] = logits.log_softmax(-1).gather(-1, action[:, None])[:, 0]
        observations[:, end], rewards[:, t], continue_prob[:, t] = transition_model.predict(
            observations[:, end - context : end], actions[:, end - context : end]
        )
    reach_prob = torch.cat([torch.ones(B, 1), continue_prob[:, :-1].cumprod(1)], 1)
    last_value = policy(History(observations[:, -M:], actions[:, actions.size(1) - M + 1 :])).value
    history = policy_histories(observations, actions, horizon, M)
    return RolloutBatch(history, actions[:, C - 1 :], log_probs, rewards, continue_prob, reach_prob, last_value)


def policy_histories(observations: Tensor, actions: Tensor, horizon: int, length: int) -> History:
    """The policy's input before each of the last steps: (B,T,M,O) and (B,T,M-1)."""
    ends = torch.arange(observations.size(1) - 1 - horizon, observations.size(1) - 1)
    indices = ends[:, None] + torch.arange(1 - length, 1)
    return History(observations[:, indices], actions[:, indices[:, :-1]])


def predicted_return(batch: RolloutBatch) -> float:
    """The expected return, averaged over the rows."""
    return float((batch.reach_prob * batch.rewards).sum(1).mean())


def start_states(episodes: Sequence[Episode], length: int) -> History:
    """Every state of real episodes in which an action was taken: (N,C,O) and (N,C-1)."""
    histories = []
    for episode in episodes:
        assert episode.actions is not None, "a video has no actions"
        histories.append(history_at(episode.observations, episode.actions, length, np.arange(episode.steps)))
    return History(*(torch.cat(tensors) for tensors in zip(*histories, strict=True)))


def sample_starts(starts: History, count: int, initial_share: float, seed: int) -> History:
    """`count` random starts, of which a share are initial states of episodes."""
    rng = np.random.default_rng(seed)
    initial_states = (starts.actions == NO_ACTION).all(-1).nonzero()[:, 0].numpy()
    initial = rng.choice(initial_states, round(count * initial_share))
    later = rng.integers(len(starts.observations), size=count - len(initial))
    rows = torch.from_numpy(np.concatenate([initial, later]))
    return History(starts.observations[rows], starts.actions[rows])
