"""GAIL: the discriminator learns, the policy learns from it, and the environment's rewards are not used."""

from itertools import islice

import numpy as np
import pytest
import torch

from regard.data.bundled.cart import carts
from regard.data.episodes import video
from regard.rl.cartpole import CartPole
from regard.rl.environment import record_episodes
from regard.rl.gail import (
    Discriminator,
    GAILOptions,
    StateActionPairs,
    collect_episodes,
    imitate,
    state_action_pairs,
    train_discriminator,
)
from regard.rl.policy import Policy, PolicyConfig
from regard.rl.ppo import PPOConfig
from regard.tasks.returns import top_episodes

EXPERT = list(top_episodes(carts(40), 0.1))
OPTIONS = GAILOptions(round_steps=200, hidden=32)


def make_policy(history_length=1):
    torch.manual_seed(1)
    policy = Policy(PolicyConfig(4, 2, history_length, 32))
    policy.fit_scales(EXPERT, 0.99)
    return policy


@pytest.mark.parametrize("history_length", [1, 3])
def test_the_discriminator_learns(history_length):
    policy = make_policy(history_length)
    torch.manual_seed(2)
    discriminator = Discriminator(policy, 32)
    pairs = state_action_pairs(collect_episodes(CartPole(), policy, 400, 1), history_length)
    expert = state_action_pairs(EXPERT, history_length)
    optimizer, before = torch.optim.Adam(discriminator.parameters(), 3e-3), discriminator.reward(pairs).mean()
    accuracies = [
        train_discriminator(discriminator, optimizer, expert, pairs, GAILOptions(epochs=5), seed) for seed in range(6)
    ]
    assert accuracies[-1] > max(0.6, accuracies[0])
    assert discriminator.reward(pairs).mean() < before, "steps of the policy get less reward than before"
    assert discriminator.reward(pairs).mean() < discriminator.reward(expert).mean()


def test_the_reward_is_that_of_the_paper():
    discriminator = Discriminator(make_policy(), 8)
    pairs = state_action_pairs(EXPERT[:1], 1)
    prob = discriminator(pairs).sigmoid()
    torch.testing.assert_close(discriminator.reward(pairs), -(1 - prob).log())


def test_the_discriminator_depends_on_the_action():
    discriminator, pairs = Discriminator(make_policy(), 8), state_action_pairs(EXPERT[:1], 1)
    assert (discriminator(pairs) - discriminator(StateActionPairs(pairs.history, 1 - pairs.actions))).abs().min() > 0


def test_a_round_updates_the_policy_and_follows_from_the_seed():
    first, second = islice(imitate(CartPole(), EXPERT, OPTIONS, PPOConfig(), seed=1), 2)
    initial = make_policy()
    assert second.steps > first.steps >= OPTIONS.round_steps
    assert any(not torch.equal(a, b) for a, b in zip(first.policy.parameters(), initial.parameters(), strict=True))
    repeated = list(islice(imitate(CartPole(), EXPERT, OPTIONS, PPOConfig(), seed=1), 2))[1]
    assert (repeated.returns, repeated.discriminator_accuracy) == (second.returns, second.discriminator_accuracy)
    other = next(imitate(CartPole(), EXPERT, OPTIONS, PPOConfig(), seed=2))
    assert other.returns != first.returns


def test_the_environments_rewards_are_not_used():
    class NegativeRewards(CartPole):
        def step(self, action):
            return super().step(action)._replace(reward=-100.0)

    original, negative = (
        list(islice(imitate(kind(), EXPERT, OPTIONS, PPOConfig(), seed=1), 2))[1]
        for kind in (CartPole, NegativeRewards)
    )
    for a, b in zip(original.policy.parameters(), negative.policy.parameters(), strict=True):
        assert torch.equal(a, b)
    assert original.returns != negative.returns


def test_the_experts_rewards_are_not_used():
    """The policy's rewards come from the discriminator only."""
    without_rewards = [episode._replace(rewards=episode.rewards * 0) for episode in EXPERT]
    first, second = (
        next(imitate(CartPole(), expert, OPTIONS, PPOConfig(), seed=1)).policy.state_dict()
        for expert in (EXPERT, without_rewards)
    )
    assert all(torch.equal(first[name], second[name]) for name in first)


def test_imitation_ends_after_its_steps():
    rounds = list(imitate(CartPole(), EXPERT, GAILOptions(steps=500, round_steps=200, hidden=8), PPOConfig(), seed=1))
    assert rounds[-1].steps >= 500
    assert rounds[-2].steps < 500


@pytest.mark.parametrize(
    ("expert", "message"),
    [
        ([video(np.zeros((3, 4), np.float32), "ball.npz", 2)], "ball.npz:2: a video has no actions"),
        (
            [EXPERT[0]._replace(observations=EXPERT[0].observations[:, :3])],
            r"cart:\d+: observations have shape \(3,\)",
        ),
        (
            [EXPERT[0]._replace(actions=EXPERT[0].actions + 5)],
            r"the highest action is 6, but cart has 4 observation entries",
        ),
    ],
)
def test_an_expert_with_other_spaces_is_refused(expert, message):
    with pytest.raises(ValueError, match=message):
        next(imitate(CartPole(), expert, OPTIONS, PPOConfig()))


def test_a_single_recorded_episode_is_a_valid_expert():
    [episode] = record_episodes(CartPole(), lambda trajectory: int(trajectory.observations[-1][2] > 0), 1, seed=1)
    assert next(imitate(CartPole(), [episode], OPTIONS, PPOConfig())).steps >= OPTIONS.round_steps
