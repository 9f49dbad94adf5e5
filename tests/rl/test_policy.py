"""Policies: histories, rescaling that keeps the outputs, saving and loading."""

import numpy as np
import pytest
import torch

from regard.rl.environment import Trajectory, random_policy, record_episodes
from regard.rl.policy import (
    NO_ACTION,
    History,
    Policy,
    PolicyConfig,
    greedy_policy,
    history_at,
    latest_history,
    sampling_policy,
)


def make_policy(history_length=3, observation_dim=2, num_actions=3):
    torch.manual_seed(2)
    policy = Policy(PolicyConfig(observation_dim, num_actions, history_length, hidden=16))
    torch.nn.init.normal_(policy.actor[-1].weight)  # its initial weights are almost 0
    return policy


def test_histories_are_padded_with_the_first_observation_and_no_action():
    observations = np.arange(8, dtype=np.float32).reshape(4, 2)
    history = history_at(observations, np.array([1, 0, 2]), 3, np.array([0, 1, 3]))
    assert history.observations[:, :, 0].tolist() == [[0, 0, 0], [0, 0, 2], [2, 4, 6]]
    assert history.actions.tolist() == [[NO_ACTION, NO_ACTION], [NO_ACTION, 1], [0, 2]]


@pytest.mark.parametrize("history_length", [1, 2, 4])
def test_the_history_in_play_equals_that_of_the_recorded_episode(corridor, history_length):
    (episode, *_) = record_episodes(corridor, random_policy(corridor, 1), 1, 1)
    histories = history_at(episode.observations, episode.actions, history_length, np.arange(episode.steps + 1))
    for t in range(episode.steps + 1):
        trajectory = Trajectory([*episode.observations[: t + 1]], episode.actions[:t].tolist())
        latest = latest_history(trajectory, history_length)
        assert latest.observations.tolist() == histories.observations[t].tolist()
        assert latest.actions.tolist() == histories.actions[t].tolist()


def test_only_the_history_counts():
    policy = make_policy(history_length=2)
    observations, actions = torch.randn(1, 5, 2), torch.randint(3, (1, 4))
    changed = observations.clone()
    changed[:, :3] = 9.0
    histories = [History(o[:, -2:], actions[:, -1:]) for o in (observations, changed)]
    assert torch.equal(policy(histories[0]).logits, policy(histories[1]).logits)
    assert not torch.allclose(
        policy(histories[0]).logits, policy(History(observations[:, -2:] + 1, actions[:, -1:])).logits
    )
    assert not torch.allclose(
        policy(histories[0]).logits, policy(History(observations[:, -2:], (actions[:, -1:] + 1) % 3)).logits
    )


def test_new_scales_change_neither_logits_nor_value(corridor):
    policy = make_policy(history_length=3, num_actions=2)
    episodes = record_episodes(corridor, random_policy(corridor, 1), 9, 1)
    history = history_at(episodes[0].observations, episodes[0].actions, 3, np.arange(episodes[0].steps))
    before = policy(history)
    policy.fit_scales(episodes, 0.9)
    assert policy.std[0] != 1.0
    assert float(policy.value_scale) == pytest.approx(
        np.abs(np.concatenate([e.rewards for e in episodes])).mean() / 0.1
    )
    for old, new in zip(before, policy(history), strict=True):
        torch.testing.assert_close(new, old, rtol=1e-4, atol=1e-4)


def test_a_constant_entry_is_not_divided_by_almost_nothing(corridor):
    policy = make_policy(history_length=2, num_actions=2, observation_dim=3)
    episodes = [
        episode._replace(observations=np.insert(episode.observations, 2, 0.1, 1))
        for episode in record_episodes(corridor, random_policy(corridor, 1), 9, 1)
    ]
    policy.fit_scales(episodes, 0.9)
    assert (policy.std[2], policy.delta_std[2]) == (1.0, 1.0)
    features = policy.features(History(torch.tensor([[0.0, 0.0, 0.1], [0.0, 0.0, 1.1]]), torch.tensor([0])))
    assert features.abs().max() < 10, "a constant entry that changes later must not dominate"


def test_sampled_actions_have_the_policys_frequencies():
    policy = make_policy(history_length=1)
    trajectory = Trajectory([np.array([0.3, -1.0], np.float32)])
    probs = policy(latest_history(trajectory, 1)).logits.softmax(-1)
    policy_fn, counts = sampling_policy(policy, 3), torch.zeros(3)
    for number in range(3000):
        trajectory.number = number
        counts[policy_fn(trajectory)] += 1
    torch.testing.assert_close(counts / 3000, probs, atol=0.03, rtol=0)
    assert greedy_policy(policy)(trajectory) == int(probs.argmax())


def test_a_policy_survives_saving_and_loading(tmp_path):
    policy = make_policy()
    policy.std += 1
    policy.save(tmp_path / "policy", env="CartPole-v1", hide=[1])
    restored, metadata = Policy.load(tmp_path / "policy")
    history = History(torch.randn(4, 3, 2), torch.randint(3, (4, 2)))
    assert metadata == {"env": "CartPole-v1", "hide": [1]}
    assert torch.equal(restored(history).logits, policy(history).logits)
    assert torch.equal(restored(history).value, policy(history).value)


def test_an_incomplete_policy_folder_is_refused_by_name(tmp_path):
    with pytest.raises(ValueError, match="holds no policy: train one"):
        Policy.load(tmp_path)
    make_policy().save(tmp_path)
    config = tmp_path / "config.json"
    original = config.read_text()
    config.write_text(original.replace('"history_length": 3', '"history_length": "many"'))
    with pytest.raises(ValueError, match=r"config.json: history_length must be a size, not 'many'"):
        Policy.load(tmp_path)
    config.write_text(original.replace('"history_length": 3', '"history_length": 4'))
    with pytest.raises(ValueError, match=r"model.safetensors: actor.0.weight does not match .*config.json"):
        Policy.load(tmp_path)
    (tmp_path / "model.safetensors").write_bytes(b"nothing")
    with pytest.raises(ValueError, match=r"model.safetensors cannot be read"):
        Policy.load(tmp_path)


@pytest.mark.parametrize("name", ["observation_dim", "num_actions", "history_length", "hidden"])
def test_sizes_are_at_least_1(name):
    with pytest.raises(ValueError, match=f"{name.replace('_', '-')} must be at least 1, not 0"):
        PolicyConfig(**{"observation_dim": 2, "num_actions": 2, "history_length": 1, "hidden": 4} | {name: 0})
