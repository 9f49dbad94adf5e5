"""Deciders: what was told step by step is what training told, many at once play as one alone, and wishes count."""

import numpy as np
import pytest
import torch

from regard.data.bundled.cart import LIMIT, carts
from regard.models.world import World, WorldConfig
from regard.rl.cartpole import Track
from regard.rl.environment import Past, by_chance, record, returns
from regard.rl.sequence_policy import Decider, together
from regard.tasks.decide import Decide, Wishes

CONTEXT = 4
EPISODES = carts(20)


def fitted(returns=False):
    return Decide.fit(EPISODES, "foresees", {}, {}, best=1.0, returns=returns, patch=None)


def model_of(task):
    torch.manual_seed(1)
    made = task.head(World(WorldConfig(context=CONTEXT, dim=16, layers=2, heads=2, hidden=24, **task.sizes())))
    with torch.no_grad():
        for weight in made.parameters():
            weight.add_(torch.randn_like(weight) * 0.3)
    return made.eval()


class Watched(Decider):
    """It keeps what it was told."""

    def all(self, pasts):
        right = self.task.chances
        self.told = []
        self.task.chances = lambda *args: self.told.append(args[1:]) or right(*args)
        try:
            return super().all(pasts)
        finally:
            del self.task.chances


@pytest.mark.parametrize("with_returns", [False, True])
def test_what_is_told_in_play_is_what_was_told_in_training(with_returns):
    """An episode of the training data, played again: the same numbers, wherever its window has slid to."""
    task = fitted(with_returns)
    row = EPISODES[0]
    seen, before = task.history(row, float(row.rewards.sum()))
    wish = float(row.rewards.sum()) if with_returns else None
    player = Watched(model_of(task), task, Wishes(wish=wish))
    for t in (0, 1, CONTEXT - 1, CONTEXT, 13):
        player(Past([*row.observations[: t + 1]], row.actions[:t].tolist(), row.rewards[:t].tolist()))
        [(numbers, done)] = player.told
        start = max(0, t + 1 - CONTEXT)
        np.testing.assert_allclose(numbers[0], seen[start : t + 1], atol=1e-6)
        assert done[0].tolist() == before[start : t + 1].tolist()


def test_many_at_once_play_as_one_alone():
    task = fitted(True)
    player = Decider(model_of(task), task, Wishes())
    found = together([Track() for _ in range(6)], player, seed=3)
    alone = record(Track(), player, 6, seed=3)
    assert [one.said for one in found] == [one.said for one in alone]
    assert len({one.steps for one in found}) > 1


def test_drawn_actions_follow_from_the_seed():
    task = fitted()
    model, how = model_of(task), Wishes(temperature=2.0)

    def played(seed):
        return [one.said for one in together([Track() for _ in range(3)], Decider(model, task, how, seed), seed=1)]

    assert played(1) == played(1)
    assert played(1) != played(2)
    greedy = [one.said for one in together([Track() for _ in range(3)], Decider(model, task, Wishes()), seed=1)]
    cold = Decider(model, task, Wishes(temperature=1e-4), 5)
    assert [one.said for one in together([Track() for _ in range(3)], cold, seed=1)] == greedy


def test_the_track_is_the_cart():
    [one] = record(Track(), lambda past: len(past.actions) % 2, 1, seed=1)
    assert one.ended
    assert one.steps < LIMIT
    again = record(Track(), lambda past: len(past.actions) % 2, 1, seed=1)[0]
    assert one.said == again.said
    assert 15 < np.mean(returns(Track(), by_chance(Track(), 1), 50, 1)) < 35


def test_nothing_goes_on_for_ever():
    """A careful player is cut off when the time is up."""
    [one] = record(Track(), lambda past: int(past.observations[-1] @ [0.05, 0.1, 1, 0.5] > 0), 1, seed=1)
    assert (one.steps, one.ended) == (LIMIT, False)


def test_a_world_that_does_not_fit_is_refused():
    task = fitted()
    other = Track()
    other.shown = [0, 2]
    with pytest.raises(ValueError, match=r"cart shows 2 numbers and knows 2 actions, but this model learnt"):
        together([other], Decider(model_of(task), task, Wishes()), 1)
