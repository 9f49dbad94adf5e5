"""Environments: hidden entries, recording, replay, and refusals."""

import sys
from itertools import islice

import numpy as np
import pytest

from regard.cli.act import PlayOptions, play
from regard.data.episodes import episode_row
from regard.data.rows import Row
from regard.modalities.trajectory.episode_files import read_episodes, write_episodes
from regard.rl.environment import (
    MAX_EPISODE_STEPS,
    Environment,
    Trajectory,
    episode_returns,
    play_episodes,
    random_policy,
    record_episodes,
    rollout,
)


def move_right(trajectory):
    return 1


def row_keys(episodes):
    return [episode_row(episode, "", 1).row_key for episode in episodes]


def test_hidden_entries_are_not_observed():
    full, partial = Environment("CartPole-v1"), Environment("CartPole-v1", (1, 3))
    assert (full.observation_dim, full.num_actions, full.max_episode_steps) == (4, 2, 500)
    observation = full.reset(7)
    assert partial.reset(7).tolist() == observation[[0, 2]].tolist()
    assert partial.full_observation.tolist() == observation.tolist()
    assert partial.step(1).observation.tolist() == full.step(1).observation[[0, 2]].tolist()


def test_an_episode_has_one_observation_more_than_actions_and_ends_at_the_termination(corridor):
    for episode in record_episodes(corridor, move_right, 8, seed=3):
        first = int(episode.observations[0, 0])
        assert episode.terminated
        assert episode.observations[:, 0].tolist() == list(range(first, 6))
        assert episode.actions.tolist() == [1] * (5 - first)
        assert episode.rewards.tolist() == [np.float32(-0.05)] * (4 - first) + [1.0]


def test_a_truncated_episode_is_not_terminated(corridor):
    (episode,) = record_episodes(corridor, lambda trajectory: 0, 1, seed=3)
    assert (episode.steps, episode.terminated) == (20, False)


def test_an_environment_without_a_time_limit_gets_the_default(corridor):
    unlimited = Environment("Unlimited-v0")
    assert (unlimited.max_episode_steps, corridor.max_episode_steps) == (MAX_EPISODE_STEPS, 20)
    left, right = (record_episodes(unlimited, lambda trajectory, action=a: action, 1, seed=3)[0] for a in (0, 1))
    assert (left.steps, left.terminated) == (MAX_EPISODE_STEPS, False)
    assert right.steps < 6
    assert right.terminated, "a termination is not a truncation"


def test_play_prints_a_note_on_the_default_time_limit(corridor, monkeypatch, capsys):
    monkeypatch.setattr("regard.rl.environment.MAX_EPISODE_STEPS", 30)
    for environment in (Environment("Unlimited-v0"), corridor):
        assert play(environment, lambda trajectory: 0, PlayOptions(episodes=1)) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "Unlimited-v0 has no time limit: regard truncates an episode after 30 steps"
    assert [line.split(" in ")[1] for line in lines if line.startswith("episode")] == ["30 steps", "20 steps"]
    assert len(lines) == 5, "no note on an environment with a time limit"


def test_the_seed_determines_the_episodes(corridor):
    def digests(seed):
        return row_keys(record_episodes(corridor, random_policy(corridor, seed), 6, seed))

    assert digests(1) == digests(1) != digests(2)
    assert len(set(digests(1))) > 3


def test_returns_are_sums_of_rewards(corridor):
    episodes = record_episodes(corridor, random_policy(corridor, 5), 6, seed=5)
    assert episode_returns(corridor, random_policy(corridor, 5), 6, seed=5) == pytest.approx(
        [e.rewards.sum() for e in episodes]
    )


def test_recorded_episodes_are_read_back(corridor, tmp_path):
    episodes = record_episodes(corridor, random_policy(corridor, 5), 6, seed=5)
    for name in ("a.npz", "a.jsonl"):
        write_episodes(tmp_path / name, episodes)
        restored = [row for row in read_episodes([tmp_path / name]) if isinstance(row, Row)]
        assert [row.row_key for row in restored] == row_keys(episodes)


@pytest.mark.parametrize("steps", [7, 30, 33])
def test_a_resumed_rollout_equals_an_uninterrupted_one(corridor, steps):
    """No state of the environment is saved: replaying the actions restores it."""

    def summary(trajectories):
        return [(trajectory.number, len(trajectory.actions), trajectory.episode_return) for trajectory in trajectories]

    policy_fn = random_policy(corridor, 4)
    expected = summary(islice(rollout(corridor, policy_fn, 9), 60))
    last = [*islice(rollout(corridor, policy_fn, 9), steps)][-1]
    resumed = Trajectory.from_episode(last.to_episode(), last.number, ongoing=not last.done)
    fresh = Environment("Corridor-v0")
    assert summary(islice(rollout(fresh, policy_fn, 9, resumed), 60 - steps)) == expected[steps:]


def test_a_nondeterministic_environment_is_refused_on_resume():
    environment = Environment("Nondeterministic-v0")
    trajectory = next(rollout(environment, move_right, 1))
    trajectory.terminated = False
    with pytest.raises(ValueError, match="Nondeterministic-v0 is not deterministic: .* --overwrite"):
        next(rollout(environment, move_right, 1, trajectory))


def test_played_episodes_are_complete(corridor):
    assert all(trajectory.done for trajectory in play_episodes(corridor, random_policy(corridor, 1), 5, 1))


@pytest.mark.parametrize(
    ("name", "hide", "message"),
    [
        ("CartPol-v1", (), "no environment named 'CartPol-v1': did you mean CartPole-v1"),
        ("zzzzzzzz", (), "no environment named 'zzzzzzzz'"),
        ("no.such:Module-v0", (), "cannot make the environment no.such:Module-v0"),
        ("Pendulum-v1", (), "Pendulum-v1 has the action space Box.*Discrete"),
        ("FrozenLake-v1", (), "FrozenLake-v1 has the observation space Discrete.*one-dimensional Box"),
        ("CartPole-v1", (4,), "0 to 3, not 4"),
        ("CartPole-v1", (-1,), "0 to 3, not -1"),
        ("CartPole-v1", (0, 1, 2, 3), "leaves nothing"),
    ],
)
def test_unsupported_environments_are_refused_by_name(name, hide, message):
    with pytest.raises(ValueError, match=message):
        Environment(name, hide)


def test_without_gymnasium_the_message_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "gymnasium", None)
    with pytest.raises(ValueError, match=r'pip install "regard\[world\]"'):
        Environment("CartPole-v1")


@pytest.mark.parametrize(("field", "message"), [("observation", "is not finite"), ("reward", "not a finite number")])
def test_non_finite_observations_and_rewards_are_refused(corridor, field, message):
    corridor.reset(1)
    inner = corridor.env.unwrapped
    if field == "observation":
        inner.observation = lambda: np.array([np.nan, 0.0], np.float32)
    else:
        inner.step = lambda action: (inner.observation(), np.nan, False, False, {})
    with pytest.raises(ValueError, match=message):
        corridor.step(1)
