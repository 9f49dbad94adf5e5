"""CartPole episodes have the dynamics of gymnasium's CartPole-v1 and policies of different skill."""

import numpy as np
import pytest

from regard.data.episodes import episode_row
from regard.modalities.synthetic.cart import (
    EPISODES_OF_TEN,
    MAX_STEPS,
    POLICIES,
    carts,
    has_fallen,
    initial_states,
    split,
    step_dynamics,
)


@pytest.fixture(scope="module")
def episodes():
    return carts()


def by_player(episodes):
    """Of numbered episodes."""
    ten = [name for name, share in EPISODES_OF_TEN.items() for _ in range(share)]
    return {name: [episode for i, episode in episodes if ten[i % 10] == name] for name in POLICIES}


def test_the_dynamics_equal_those_of_gymnasium():
    gymnasium = pytest.importorskip("gymnasium")
    world, draw = gymnasium.make("CartPole-v1").unwrapped, np.random.default_rng(0)
    world.reset(seed=0)
    for _ in range(50):
        cart, action = draw.uniform(-0.2, 0.2, 4), int(draw.integers(2))
        world.state, world.steps_beyond_terminated = tuple(cart), None
        observation, _, terminated, _, _ = world.step(action)
        predicted = step_dynamics(cart[None], np.array([action]))
        np.testing.assert_allclose(predicted[0], observation, rtol=1e-6, atol=1e-7)
        assert bool(has_fallen(predicted)[0]) == terminated


def test_every_step_follows_from_the_one_before_until_termination(episodes):
    for episode in episodes[:20]:
        predicted = step_dynamics(episode.observations[:-1].astype(np.float64), episode.actions)
        np.testing.assert_allclose(predicted, episode.observations[1:], atol=1e-5)
        assert not has_fallen(episode.observations[:-1]).any()
        assert episode.terminated == bool(has_fallen(episode.observations[-1:])[0])
        assert episode.terminated or episode.steps == MAX_STEPS
        assert (episode.rewards == 1).all()


def test_policies_differ_in_skill(episodes):
    means = {
        name: np.mean([episode.steps for episode in subset])
        for name, subset in by_player([*enumerate(episodes)]).items()
    }
    assert means["careful"] > 450
    assert means["blind"] < 30 < means["late"] < 60
    assert 100 < means["drifting"] < 300


def test_careful_episodes_are_few(episodes):
    """Whoever clones all of it learns mostly from others."""
    steps = {
        name: sum(episode.steps for episode in subset) for name, subset in by_player([*enumerate(episodes)]).items()
    }
    assert steps["careful"] < 0.5 * sum(steps.values())


def test_the_same_seed_gives_the_same_episodes_and_each_set_all_policies(episodes):
    def keys(repeated):
        return [episode_row(episode, "", i).row_key for i, episode in enumerate(repeated, 1)]

    assert keys(carts(30)) == keys(carts(30))
    assert keys(carts(30, seed=1))[0] != keys(carts(30))[0]
    sets = {split(i) for i in range(len(episodes))}
    assert sets == {"train", "valid", "test"}
    for name in sets:
        assert all(by_player([(i, episode) for i, episode in enumerate(episodes) if split(i) == name]).values())


def test_initial_states_are_near_the_origin():
    start = initial_states(100, np.random.default_rng(1))
    assert np.abs(start).max() <= 0.05
    assert not has_fallen(start).any()
