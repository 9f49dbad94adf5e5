"""Policies: what they see, that new scales change nothing, and that a folder holds all of one."""

import numpy as np
import pytest
import torch

from regard.rl.environment import Past, by_chance, record
from regard.rl.policy import NOTHING, Policy, PolicyConfig, Seen, drawn, greedy, newest, seen_at


def policy_of(memory=3, observation=2, actions=3):
    torch.manual_seed(2)
    policy = Policy(PolicyConfig(observation, actions, memory, hidden=16))
    torch.nn.init.normal_(policy.choice[-1].weight)  # it begins with almost no opinion
    return policy


def test_before_the_beginning_there_was_the_first_observation_and_no_action():
    told = np.arange(8, dtype=np.float32).reshape(4, 2)
    seen = seen_at(told, np.array([1, 0, 2]), 3, np.array([0, 1, 3]))
    assert seen.observations[:, :, 0].tolist() == [[0, 0, 0], [0, 0, 2], [2, 4, 6]]
    assert seen.actions.tolist() == [[NOTHING, NOTHING], [NOTHING, 1], [0, 2]]


@pytest.mark.parametrize("memory", [1, 2, 4])
def test_who_plays_sees_what_a_record_shows(corridor, memory):
    (episode, *_) = record(corridor, by_chance(corridor, 1), 1, 1)
    whole = seen_at(episode.observations, episode.actions, memory, np.arange(episode.steps + 1))
    for t in range(episode.steps + 1):
        past = Past([*episode.observations[: t + 1]], episode.actions[:t].tolist())
        now = newest(past, memory)
        assert now.observations.tolist() == whole.observations[t].tolist()
        assert now.actions.tolist() == whole.actions[t].tolist()


def test_only_what_is_remembered_counts():
    policy = policy_of(memory=2)
    far, near = torch.randn(1, 5, 2), torch.randint(3, (1, 4))
    other = far.clone()
    other[:, :3] = 9.0
    seen = [Seen(one[:, -2:], near[:, -1:]) for one in (far, other)]
    assert torch.equal(policy(seen[0]).logits, policy(seen[1]).logits)
    assert not torch.allclose(policy(seen[0]).logits, policy(Seen(far[:, -2:] + 1, near[:, -1:])).logits)
    assert not torch.allclose(policy(seen[0]).logits, policy(Seen(far[:, -2:], (near[:, -1:] + 1) % 3)).logits)


def test_new_scales_change_neither_choice_nor_value(corridor):
    policy = policy_of(memory=3, actions=2)
    episodes = record(corridor, by_chance(corridor, 1), 9, 1)
    seen = seen_at(episodes[0].observations, episodes[0].actions, 3, np.arange(episodes[0].steps))
    before = policy(seen)
    policy.fit_scales(episodes, 0.9)
    assert policy.spread[0] != 1.0
    assert float(policy.unit) == pytest.approx(np.abs(np.concatenate([e.rewards for e in episodes])).mean() / 0.1)
    for old, new in zip(before, policy(seen), strict=True):
        torch.testing.assert_close(new, old, rtol=1e-4, atol=1e-4)


def test_a_number_that_never_changed_is_no_reason_to_divide_by_almost_nothing(corridor):
    policy = policy_of(memory=2, actions=2, observation=3)
    episodes = [
        one._replace(observations=np.insert(one.observations, 2, 0.1, 1))
        for one in record(corridor, by_chance(corridor, 1), 9, 1)
    ]
    policy.fit_scales(episodes, 0.9)
    assert (policy.spread[2], policy.change[2]) == (1.0, 1.0)
    other = policy.features(Seen(torch.tensor([[0.0, 0.0, 0.1], [0.0, 0.0, 1.1]]), torch.tensor([0])))
    assert other.abs().max() < 10, "when it changes after all, it is one number of many"


def test_what_is_drawn_comes_by_its_chance():
    policy = policy_of(memory=1)
    past = Past([np.array([0.3, -1.0], np.float32)])
    chances = policy(newest(past, 1)).logits.softmax(-1)
    player, counts = drawn(policy, 3), torch.zeros(3)
    for number in range(3000):
        past.number = number
        counts[player(past)] += 1
    torch.testing.assert_close(counts / 3000, chances, atol=0.03, rtol=0)
    assert greedy(policy)(past) == int(chances.argmax())


def test_a_folder_holds_all_of_a_policy(tmp_path):
    policy = policy_of()
    policy.spread += 1
    policy.save(tmp_path / "policy", env="CartPole-v1", hide=[1])
    back, told = Policy.load(tmp_path / "policy")
    seen = Seen(torch.randn(4, 3, 2), torch.randint(3, (4, 2)))
    assert told == {"env": "CartPole-v1", "hide": [1]}
    assert torch.equal(back(seen).logits, policy(seen).logits)
    assert torch.equal(back(seen).value, policy(seen).value)


def test_a_folder_without_a_whole_policy_is_refused_by_name(tmp_path):
    with pytest.raises(ValueError, match="holds no policy: train one"):
        Policy.load(tmp_path)
    policy_of().save(tmp_path)
    config = tmp_path / "config.json"
    right = config.read_text()
    config.write_text(right.replace('"memory": 3', '"memory": "many"'))
    with pytest.raises(ValueError, match=r"config.json: memory must be a size, not 'many'"):
        Policy.load(tmp_path)
    config.write_text(right.replace('"memory": 3', '"memory": 4'))
    with pytest.raises(ValueError, match=r"model.safetensors: choice.0.weight is not what"):
        Policy.load(tmp_path)
    (tmp_path / "model.safetensors").write_bytes(b"nothing")
    with pytest.raises(ValueError, match=r"model.safetensors cannot be read"):
        Policy.load(tmp_path)


@pytest.mark.parametrize("name", ["observation", "actions", "memory", "hidden"])
def test_sizes_are_at_least_1(name):
    with pytest.raises(ValueError, match=f"{name} must be at least 1, not 0"):
        PolicyConfig(**{"observation": 2, "actions": 2, "memory": 1, "hidden": 4} | {name: 0})
