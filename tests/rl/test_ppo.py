"""PPO: advantages equal the definition, and the policy learns what pays."""

import numpy as np
import pytest
import torch

from regard.rl.environment import episode_returns, record_episodes
from regard.rl.policy import History, Policy, PolicyConfig, greedy_policy, sampling_policy
from regard.rl.ppo import PPOConfig, RolloutBatch, batch_from_episodes, compute_gae, make_optimizer, ppo_update


def make_policy(observation_dim=2, num_actions=2, seed=1):
    torch.manual_seed(seed)
    return Policy(PolicyConfig(observation_dim, num_actions, hidden=16))


def test_advantages_equal_the_explicit_sum():
    torch.manual_seed(3)
    config, (B, T) = PPOConfig(discount=0.9, gae_lambda=0.7), (3, 5)
    rewards, values, continue_prob, last_value = torch.randn(B, T), torch.randn(B, T), torch.rand(B, T), torch.randn(B)
    advantages = compute_gae(rewards, values, continue_prob, last_value, config)
    next_values = torch.cat([values[:, 1:], last_value[:, None]], 1)
    for b in range(B):
        for t in range(T):
            total, weight = 0.0, 1.0
            for k in range(t, T):
                delta = rewards[b, k] + config.discount * continue_prob[b, k] * next_values[b, k] - values[b, k]
                total += weight * delta
                weight *= config.discount * config.gae_lambda * continue_prob[b, k]
            assert float(advantages[b, t]) == pytest.approx(float(total), abs=1e-5)


def test_with_lambda_1_an_advantage_is_the_return_minus_the_value():
    rewards, values = torch.tensor([[1.0, 2.0, 3.0]]), torch.tensor([[5.0, 6.0, 7.0]])
    continue_prob, config = torch.tensor([[1.0, 1.0, 0.0]]), PPOConfig(discount=0.5, gae_lambda=1.0)
    expected = [1 + 0.5 * (2 + 0.5 * 3) - 5, 2 + 0.5 * 3 - 6, 3.0 - 7]
    assert compute_gae(rewards, values, continue_prob, torch.tensor([99.0]), config)[0].tolist() == pytest.approx(
        expected
    )


def bandit(policy, seed, count=64):
    """One step; only action 2 pays where the first entry is positive, only action 0 elsewhere."""
    rng = np.random.default_rng(seed)
    history = History(
        torch.from_numpy(rng.normal(size=(count, 1, 1, 2)).astype(np.float32)), torch.zeros(count, 1, 0).long()
    )
    with torch.no_grad():
        log_probs = policy(history).logits.log_softmax(-1)
    actions = torch.multinomial(log_probs[:, 0].exp(), 1, generator=torch.Generator().manual_seed(seed))
    best = torch.where(history.observations[:, 0, 0, 0] > 0, 2, 0)
    rewards = (actions[:, 0] == best).float()[:, None]
    zero = torch.zeros(count, 1)
    return RolloutBatch(
        history, actions, log_probs[:, 0].gather(1, actions), rewards, zero, zero + 1, torch.zeros(count)
    )


def test_ppo_solves_a_bandit():
    policy, config = make_policy(num_actions=3), PPOConfig(lr=3e-3)
    optimizer = make_optimizer(policy, config)
    before = float(bandit(policy, 999, 512).rewards.mean())
    for seed in range(60):
        ppo_update(policy, optimizer, bandit(policy, seed), config, seed)
    after = float(bandit(policy, 999, 512).rewards.mean())
    assert before < 0.45
    assert after > 0.85


def test_padding_changes_nothing():
    """Whatever the padding holds, the policy is the same."""
    weights = []
    for fill in (0.0, 50.0):
        policy, config = make_policy(num_actions=3), PPOConfig()
        batch = bandit(policy, 1)
        history = History(
            torch.cat([batch.history.observations, batch.history.observations + fill], 1),
            batch.history.actions.repeat(1, 2, 1),
        )
        doubled = [torch.cat([x, x + fill], 1) for x in (batch.log_probs, batch.rewards, batch.continue_prob)]
        actions, reach_prob = batch.actions.repeat(1, 2), torch.cat([batch.reach_prob, batch.reach_prob * 0], 1)
        padded = RolloutBatch(history, actions, *doubled, reach_prob, batch.last_value)
        padded.continue_prob[:, 0] = 0
        ppo_update(policy, make_optimizer(policy, config), padded, config, 1)
        weights.append(torch.cat([weight.flatten() for weight in policy.parameters()]))
    unpadded = make_policy(num_actions=3)
    ppo_update(unpadded, make_optimizer(unpadded, PPOConfig()), bandit(unpadded, 1), PPOConfig(), 1)
    assert torch.equal(weights[0], weights[1])
    assert torch.equal(weights[0], torch.cat([weight.flatten() for weight in unpadded.parameters()]))


def test_a_batch_from_real_episodes_masks_padding_and_terminations(corridor):
    policy, config = make_policy(), PPOConfig(discount=0.9)
    episodes = [
        *record_episodes(corridor, sampling_policy(policy, 1), 4, 1),
        *record_episodes(corridor, lambda trajectory: 0, 1, 1),  # truncated after 20 steps
    ]
    batch = batch_from_episodes(policy, episodes, config)
    assert batch.rewards.shape == (5, 20)
    for i, episode in enumerate(episodes):
        L = episode.steps
        assert batch.reach_prob[i].tolist() == [1.0] * L + [0.0] * (20 - L)
        assert batch.continue_prob[i, L - 1] == 0
        assert batch.continue_prob[i, : L - 1].min() == 1 if L > 1 else True
        observations = torch.from_numpy(episode.observations)
        assert torch.equal(batch.history.observations[i, :L, 0], observations[:L])
        log_probs = policy(History(observations[:L, None], torch.zeros(L, 0).long())).logits.log_softmax(-1)
        torch.testing.assert_close(
            batch.log_probs[i, :L], log_probs.gather(1, torch.from_numpy(episode.actions)[:, None])[:, 0]
        )
        final = History(observations[L:, None], torch.zeros(1, 0).long())
        bootstrap = 0.0 if episode.terminated else 0.9 * policy(final).value[0].item()
        assert float(batch.rewards[i, L - 1]) == pytest.approx(float(episode.rewards[-1]) + bootstrap, abs=1e-6)


def test_ppo_solves_the_corridor(corridor):
    policy, config = make_policy(), PPOConfig(discount=0.9, lr=3e-3)
    optimizer = make_optimizer(policy, config)
    policy.fit_scales(record_episodes(corridor, sampling_policy(policy, 0), 20, 0), config.discount)
    before = np.mean(episode_returns(corridor, sampling_policy(policy, 77), 30, 77))
    for number in range(15):
        batch = batch_from_episodes(
            policy, record_episodes(corridor, sampling_policy(policy, number), 12, number), config
        )
        ppo_update(policy, optimizer, batch, config, number)
    assert before < 0.7
    assert np.mean(episode_returns(corridor, greedy_policy(policy), 30, 77)) > 0.85


def test_a_clipped_ratio_has_no_gradient():
    """Where the ratio has left the clip range in the direction of the advantage, there is no gradient."""
    policy, config = make_policy(num_actions=3), PPOConfig(entropy_coef=0.0, epochs=1, minibatches=1)
    batch = bandit(policy, 1)
    moved_batch = batch._replace(
        log_probs=batch.log_probs - torch.where(batch.rewards > batch.rewards.mean(), 1.0, -1.0)
    )
    before = [weight.clone() for weight in policy.actor.parameters()]
    clip_fraction = ppo_update(
        policy, make_optimizer(policy, config), moved_batch._replace(rewards=batch.rewards * 2 - 1), config, 1
    )
    assert clip_fraction == pytest.approx(1.0)
    assert all(torch.equal(old, new) for old, new in zip(before, policy.actor.parameters(), strict=True))


@pytest.mark.parametrize(
    ("name", "value"), [("discount", 1.0), ("gae_lambda", 1.5), ("clip_range", 0.0), ("entropy_coef", -1.0)]
)
def test_wrong_hyperparameters_are_refused(name, value):
    with pytest.raises(ValueError, match=f"{name.replace('_', '-')} must be"):
        PPOConfig(**{name: value})
