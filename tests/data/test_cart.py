"""The cart: the physics of gymnasium's CartPole-v1, and players whose skill differs."""

import numpy as np
import pytest

from regard.data.bundled.cart import MAX_STEPS, PLAYERS, SHARES, carts, has_fallen, initial_states, split, step_dynamics


@pytest.fixture(scope="module")
def episodes():
    return carts()


def by_player(episodes):
    ten = [name for name, share in SHARES.items() for _ in range(share)]
    return {name: [one for one in episodes if ten[(one.line - 1) % 10] == name] for name in PLAYERS}


def test_a_push_does_what_it_does_in_gymnasium():
    gymnasium = pytest.importorskip("gymnasium")
    world, draw = gymnasium.make("CartPole-v1").unwrapped, np.random.default_rng(0)
    world.reset(seed=0)
    for _ in range(50):
        cart, action = draw.uniform(-0.2, 0.2, 4), int(draw.integers(2))
        world.state, world.steps_beyond_terminated = tuple(cart), None
        found, _, terminated, _, _ = world.step(action)
        mine = step_dynamics(cart[None], np.array([action]))
        np.testing.assert_allclose(mine[0], found, rtol=1e-6, atol=1e-7)
        assert bool(has_fallen(mine)[0]) == terminated


def test_every_step_follows_from_the_one_before_and_nothing_goes_on_after_the_end(episodes):
    for one in episodes[:20]:
        told = step_dynamics(one.observations[:-1].astype(np.float64), one.actions)
        np.testing.assert_allclose(told, one.observations[1:], atol=1e-5)
        assert not has_fallen(one.observations[:-1]).any()
        assert one.terminated == bool(has_fallen(one.observations[-1:])[0])
        assert one.terminated or one.steps == MAX_STEPS
        assert (one.rewards == 1).all()


def test_players_differ_in_skill(episodes):
    means = {name: np.mean([one.steps for one in some]) for name, some in by_player(episodes).items()}
    assert means["careful"] > 450
    assert means["blind"] < 30 < means["late"] < 60
    assert 100 < means["drifting"] < 300


def test_the_careful_ones_are_few(episodes):
    """Whoever clones all of it learns mostly from others."""
    steps = {name: sum(one.steps for one in some) for name, some in by_player(episodes).items()}
    assert steps["careful"] < 0.5 * sum(steps.values())


def test_the_same_seed_gives_the_same_and_every_set_has_every_player(episodes):
    again = carts(30)
    assert [one.said for one in again] == [one.said for one in carts(30)]
    assert carts(30, seed=1)[0].said != again[0].said
    sets = {split(one) for one in episodes}
    assert sets == {"train", "valid", "test"}
    for name in sets:
        assert all(by_player([one for one in episodes if split(one) == name]).values())


def test_carts_stand_at_first():
    start = initial_states(100, np.random.default_rng(1))
    assert np.abs(start).max() <= 0.05
    assert not has_fallen(start).any()
