"""GAIL: the discriminator learns, the policy learns from it, and the environment's rewards are not used."""

from itertools import islice

import numpy as np
import pytest
import torch

from regard.data.episodes import episode_row, observed
from regard.modalities.synthetic.cart import carts
from regard.modalities.trajectory.modality import top_episodes
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

ROWS = [episode_row(episode, "cart", line) for line, episode in enumerate(carts(40), 1)]
EXPERT = list(top_episodes(ROWS, 0.1))
EPISODES = [row.input for row in EXPERT]
OPTIONS = GAILOptions(round_steps=200, hidden=32)


def with_fields(row, **fields):
    return row._replace(input=row.input._replace(**fields))


def make_policy(history_length=1):
    torch.manual_seed(1)
    policy = Policy(PolicyConfig(4, 2, history_length, 32))
    policy.fit_scales(EPISODES, 0.99)
    return policy


@pytest.mark.parametrize("history_length", [1, 3])
def test_the_discriminator_learns(history_length):
    policy = make_policy(history_length)
    torch.manual_seed(2)
    discriminator = Discriminator(policy, 32)
    pairs = state_action_pairs(collect_episodes(CartPole(), policy, 400, 1), history_length)
    expert = state_action_pairs(EPISODES, history_length)
    optimizer, before = torch.optim.Adam(discriminator.parameters(), 3e-3), discriminator.reward(pairs).mean()
    accuracies = [
        train_discriminator(discriminator, optimizer, expert, pairs, GAILOptions(epochs=5), seed) for seed in range(6)
    ]
    assert accuracies[-1] > max(0.6, accuracies[0])
    assert discriminator.reward(pairs).mean() < before, "steps of the policy get less reward than before"
    assert discriminator.reward(pairs).mean() < discriminator.reward(expert).mean()


def test_the_reward_is_that_of_the_paper():
    discriminator = Discriminator(make_policy(), 8)
    pairs = state_action_pairs(EPISODES[:1], 1)
    prob = discriminator(pairs).sigmoid()
    torch.testing.assert_close(discriminator.reward(pairs), -(1 - prob).log())


def test_the_discriminator_depends_on_the_action():
    discriminator, pairs = Discriminator(make_policy(), 8), state_action_pairs(EPISODES[:1], 1)
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
    without_rewards = [with_fields(row, rewards=row.input.rewards * 0) for row in EXPERT]
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
        ([episode_row(observed(np.zeros((3, 4), np.float32)), "ball.npz", 2)], "ball.npz:2: a video has no actions"),
        (
            [with_fields(EXPERT[0], observations=EPISODES[0].observations[:, :3])],
            r"cart:\d+: observations have shape \(3,\)",
        ),
        (
            [with_fields(EXPERT[0], actions=EPISODES[0].actions + 5)],
            r"the highest action is 6, but cart has 4 observation entries",
        ),
    ],
)
def test_an_expert_with_other_spaces_is_refused(expert, message):
    with pytest.raises(ValueError, match=message):
        next(imitate(CartPole(), expert, OPTIONS, PPOConfig()))


def test_a_single_recorded_episode_is_a_valid_expert():
    [episode] = record_episodes(CartPole(), lambda trajectory: int(trajectory.observations[-1][2] > 0), 1, seed=1)
    assert next(imitate(CartPole(), [episode_row(episode, "", 1)], OPTIONS, PPOConfig())).steps >= OPTIONS.round_steps
