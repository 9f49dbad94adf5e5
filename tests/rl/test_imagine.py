"""Imagination: step by step is what the model says of each window at once, and what never was is not seen."""

import numpy as np
import pytest
import torch

from regard.data.moments import Moments
from regard.models.world import World, WorldConfig
from regard.rl.dynamics_model import Lived, Remembering, as_world, rescaled, take_up, unscaled
from regard.rl.environment import by_chance, record
from regard.rl.imagine import imagine, predicted, some_of, starts_in
from regard.rl.policy import NOTHING, Policy, PolicyConfig, Seen
from regard.training.loop import Plan, Progress, learn

C = 3  # steps that the model sees


@pytest.fixture
def episodes(corridor):
    return record(corridor, by_chance(corridor, 1), 12, 1)


def made(observation=2, actions=2, context=C):
    """A model that says something, though it has learnt nothing."""
    torch.manual_seed(5)
    task = unscaled(observation, actions)
    model = task.head(
        World(WorldConfig(observation, 1, actions, context=context, dim=16, layers=2, heads=2, hidden=24))
    )
    for weight in model.head.parameters():
        torch.nn.init.normal_(weight, std=0.3)
    return task, model.eval()


def policy_of(memory):
    torch.manual_seed(6)
    policy = Policy(PolicyConfig(2, 2, memory, hidden=8))
    torch.nn.init.normal_(policy.choice[-1].weight)
    return policy


@pytest.mark.parametrize("memory", [1, 2, 5])
def test_step_by_step_is_every_window_at_once(episodes, memory):
    (task, model), policy, T = made(), policy_of(memory), 6
    starts = some_of(starts_in(episodes, max(C, memory)), 20, 0.5, 1)
    rows = imagine(as_world(task, model), policy, starts, T, seed=4)
    assert rows.actions.shape == rows.rewards.shape == (20, T)
    seen = torch.cat([starts.observations[:, -C:], rows.seen.observations[:, 1:, -1]], 1)  # what the model had seen
    done = torch.cat([starts.actions[:, starts.actions.size(1) - C + 1 :], rows.actions], 1)
    for b in range(20):
        for t in range(T):
            known = done[b, t : t + C] != NOTHING
            window, deeds = seen[b, t : t + C][known], done[b, t : t + C][known]  # no row beside it, nothing filled up
            told = model.head(model.body(window[None, :, None], deeds[None]))
            assert float(rows.rewards[b, t]) == pytest.approx(float(told.reward[0, -1]), abs=1e-5)
            assert float(rows.goes_on[b, t]) == pytest.approx(1 - float(told.end[0, -1].sigmoid()), abs=1e-5)
            if t + 1 < T:
                after = window[-1] + told.change[0, -1, 0]
                torch.testing.assert_close(rows.seen.observations[b, t + 1, -1], after, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("memory", [1, 4])
def test_what_is_kept_is_what_the_policy_saw_and_did(episodes, memory):
    (task, model), policy = made(), policy_of(memory)
    starts = some_of(starts_in(episodes, 4), 30, 0.5, 1)
    rows = imagine(as_world(task, model), policy, starts, 5, seed=4)
    thought = policy(rows.seen)
    logp = thought.logits.log_softmax(-1).gather(-1, rows.actions[..., None])[..., 0]
    torch.testing.assert_close(rows.logp, logp)
    for t in range(1, 5):
        assert torch.equal(rows.seen.observations[:, t, :-1], rows.seen.observations[:, t - 1, 1:])
        assert memory == 1 or torch.equal(rows.seen.actions[:, t, -1], rows.actions[:, t - 1])
    torch.testing.assert_close(rows.reached[:, 0], torch.ones(30))
    torch.testing.assert_close(rows.reached[:, 3], rows.goes_on[:, :3].prod(1))
    assert predicted(rows) == pytest.approx(float((rows.reached * rows.rewards).sum() / 30), rel=1e-5)


def test_actions_are_drawn_by_their_chance_and_follow_from_the_seed(episodes):
    (task, model), policy = made(), policy_of(1)
    starts = starts_in(episodes, C)
    one = Seen(starts.observations[:1].repeat(4000, 1, 1), starts.actions[:1].repeat(4000, 1))
    rows, again, other = (imagine(as_world(task, model), policy, one, 1, seed) for seed in (1, 1, 2))
    assert torch.equal(rows.actions, again.actions)
    assert not torch.equal(rows.actions, other.actions)
    chance = policy(Seen(one.observations[:1, -1:], one.actions[:1, :0])).logits.softmax(-1)[0, 1]
    assert float(rows.actions.float().mean()) == pytest.approx(float(chance), abs=0.03)
    best = imagine(as_world(task, model), policy, one, 1, 1, greedy=True)
    assert best.actions.unique().tolist() == [int(chance > 0.5)]


def test_starts_are_states_in_which_something_was_done(episodes):
    starts = starts_in(episodes, C)
    assert len(starts.observations) == sum(one.steps for one in episodes)
    begins = {tuple(one.observations[0].tolist()) for one in episodes}
    some = some_of(starts, 40, 1.0, 1)
    assert (some.actions == NOTHING).all()
    assert {tuple(one.tolist()) for one in some.observations[:, -1]} <= begins
    assert 0.2 < float((some_of(starts, 400, 0.25, 1).actions[:, -1] == NOTHING).float().mean()) < 0.6


def test_new_scales_leave_what_the_model_says(episodes):
    task, model = made()
    progress = Progress.new(model, Plan(steps=1, rate=0.1, warmup=0, average=0.9))
    progress.average.means[0].add_(0.1)  # the average is another model
    starts = some_of(starts_in(episodes, C), 9, 0.5, 1)
    given = starts.observations, torch.cat([starts.actions, torch.ones(9, 1).long()], 1)

    def said(task):
        with torch.no_grad():
            now = as_world(task, model).foresee(*given)
            with progress.average.in_place():
                return *now, *as_world(task, model).foresee(*given)

    before = said(task)
    new = rescaled(task, progress, episodes)
    assert new.senses.mean[0] != 0.0
    assert new.senses.spread[0] != 1.0
    assert new.reward[1] != 1.0
    for old, now in zip(before, said(new), strict=True):
        torch.testing.assert_close(now, old, atol=1e-4, rtol=1e-4)
    take_up(model, task, new)  # once too often
    assert not torch.allclose(said(new)[0], before[0], atol=1e-3)


def test_windows_are_taken_at_once_as_one_by_one(episodes):
    ours, theirs = Lived(episodes, C, 2), Moments(episodes, C, 2)
    every = theirs.every()
    for one, other in zip(ours.take(every), theirs.take(every), strict=True):
        real = np.arange(C + 1) <= theirs.take(every).lengths[:, None]
        if other.ndim == 3:
            assert np.array_equal(one[real], other[real])
        elif other.ndim == 2:
            assert np.array_equal(one * real[:, 1:], other)
        else:
            assert np.array_equal(one, other)


def test_of_a_first_step_only_the_beginning_of_an_episode_is_asked(episodes):
    task, model = made()
    examples = Lived(episodes, C, 2)
    every = examples.every()
    begins = examples.at(every)[1] == 0
    batch, usual = Remembering.of(task).batch(examples, every), task.batch(examples, every)
    assert batch.real[:, 0].tolist() == begins.tolist()
    assert 0 < begins.sum() < len(begins)
    assert torch.equal(batch.real[:, 1:], usual.real[:, 1:])
    other = batch._replace(
        change=batch.change + 5 * torch.from_numpy(~begins)[:, None, None, None] * (torch.arange(C) == 0)[:, None, None]
    )
    assert task.loss(model, other).total == task.loss(model, batch).total


def test_ends_are_looked_at_more_often_than_they_come(corridor):
    episodes = record(corridor, lambda past: len(past.actions) % 3 > 0, 6, 1)
    examples = Lived(episodes, C, 2)
    (batch,) = examples.epoch(64 * C * 2, 1, 0)
    assert len(batch) == 64
    assert examples.take(batch).ends.sum() >= 8
    assert not np.array_equal(batch, examples.epoch(64 * C * 2, 1, 1)[0])
    lasting = Lived([one for one in episodes if not one.ended] or [episodes[0]._replace(ended=False)], C, 2)
    assert lasting.take(lasting.epoch(64 * C * 2, 1, 0)[0]).ends.sum() == 0


def test_a_model_learns_the_corridor(corridor, episodes):
    """After some steps it knows where a step leads, what it pays and where it ends."""
    task, model = made()
    plan = Plan(steps=250, rate=0.01, warmup=10, batch_tokens=400, average=0.0)
    progress = Progress.new(model, plan)
    task = rescaled(task, progress, record(corridor, by_chance(corridor, 3), 40, 3))
    lived = Lived(record(corridor, by_chance(corridor, 3), 40, 3), C, 2)
    losses = [step.loss for step in learn(progress, task, lived, plan)]
    assert np.mean(losses[-20:]) < 0.2 * np.mean(losses[:5])
    starts = Seen(torch.tensor([[[2.0, 2.0]] * C, [[4.0, 4.0]] * C]), torch.full((2, C - 1), NOTHING))
    with torch.no_grad():
        told = as_world(task, model.eval()).foresee(
            starts.observations, torch.cat([starts.actions, torch.ones(2, 1).long()], 1)
        )
    assert told.observation[:, 0].tolist() == pytest.approx([3.0, 5.0], abs=0.4)
    assert told.reward.tolist() == pytest.approx([-0.05, 1.0], abs=0.2)
    assert told.goes_on[0] > 0.8
    assert told.goes_on[1] < 0.2
