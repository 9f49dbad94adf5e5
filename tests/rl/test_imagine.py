"""Imagined rollouts: step by step equals the model on each window, and padding has no effect."""

import numpy as np
import pytest
import torch

from regard.data.episode_windows import EpisodeWindows
from regard.models.world_model import WorldModel, WorldModelConfig
from regard.rl.dynamics_model import (
    BurnInTask,
    ReplayBuffer,
    absorb_scales,
    as_transition_model,
    refit_scales,
    unfitted_task,
)
from regard.rl.environment import random_policy, record_episodes
from regard.rl.imagine import imagine, predicted_return, sample_starts, start_states
from regard.rl.policy import NO_ACTION, History, Policy, PolicyConfig
from regard.training.loop import Progress, TrainOptions, train_steps

C = 3  # context of the model


@pytest.fixture
def episodes(corridor):
    return record_episodes(corridor, random_policy(corridor, 1), 12, 1)


def make_model(observation_dim=2, num_actions=2, context=C):
    """An untrained model whose head is not 0."""
    torch.manual_seed(5)
    task = unfitted_task(observation_dim, num_actions)
    model = task.head(
        WorldModel(
            WorldModelConfig(observation_dim, 1, num_actions, context=context, dim=16, layers=2, heads=2, hidden=24)
        )
    )
    for weight in model.head.parameters():
        torch.nn.init.normal_(weight, std=0.3)
    return task, model.eval()


def make_policy(history_length):
    torch.manual_seed(6)
    policy = Policy(PolicyConfig(2, 2, history_length, hidden=8))
    torch.nn.init.normal_(policy.actor[-1].weight)
    return policy


@pytest.mark.parametrize("history_length", [1, 2, 5])
def test_rollouts_equal_the_model_on_each_window(episodes, history_length):
    (task, model), policy, T = make_model(), make_policy(history_length), 6
    starts = sample_starts(start_states(episodes, max(C, history_length)), 20, 0.5, 1)
    rollouts = imagine(as_transition_model(task, model), policy, starts, T, seed=4)
    assert rollouts.actions.shape == rollouts.rewards.shape == (20, T)
    observations = torch.cat(
        [starts.observations[:, -C:], rollouts.history.observations[:, 1:, -1]], 1
    )  # the model's input
    actions = torch.cat([starts.actions[:, starts.actions.size(1) - C + 1 :], rollouts.actions], 1)
    for b in range(20):
        for t in range(T):
            real = actions[b, t : t + C] != NO_ACTION
            window, taken = observations[b, t : t + C][real], actions[b, t : t + C][real]  # one row, no padding
            output = model.head(model.body(window[None, :, None], taken[None]))
            assert float(rollouts.rewards[b, t]) == pytest.approx(float(output.reward[0, -1]), abs=1e-5)
            assert float(rollouts.continue_prob[b, t]) == pytest.approx(
                1 - float(output.end[0, -1].sigmoid()), abs=1e-5
            )
            if t + 1 < T:
                expected = window[-1] + output.change[0, -1, 0]
                torch.testing.assert_close(rollouts.history.observations[b, t + 1, -1], expected, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("history_length", [1, 4])
def test_rollouts_hold_the_inputs_and_actions_of_the_policy(episodes, history_length):
    (task, model), policy = make_model(), make_policy(history_length)
    starts = sample_starts(start_states(episodes, 4), 30, 0.5, 1)
    rollouts = imagine(as_transition_model(task, model), policy, starts, 5, seed=4)
    output = policy(rollouts.history)
    log_probs = output.logits.log_softmax(-1).gather(-1, rollouts.actions[..., None])[..., 0]
    torch.testing.assert_close(rollouts.log_probs, log_probs)
    for t in range(1, 5):
        assert torch.equal(rollouts.history.observations[:, t, :-1], rollouts.history.observations[:, t - 1, 1:])
        assert history_length == 1 or torch.equal(rollouts.history.actions[:, t, -1], rollouts.actions[:, t - 1])
    torch.testing.assert_close(rollouts.reach_prob[:, 0], torch.ones(30))
    torch.testing.assert_close(rollouts.reach_prob[:, 3], rollouts.continue_prob[:, :3].prod(1))
    assert predicted_return(rollouts) == pytest.approx(
        float((rollouts.reach_prob * rollouts.rewards).sum() / 30), rel=1e-5
    )


def test_actions_are_sampled_from_the_policy_and_follow_from_the_seed(episodes):
    (task, model), policy = make_model(), make_policy(1)
    starts = start_states(episodes, C)
    repeated = History(starts.observations[:1].repeat(4000, 1, 1), starts.actions[:1].repeat(4000, 1))
    rollouts, same_seed, other_seed = (
        imagine(as_transition_model(task, model), policy, repeated, 1, seed) for seed in (1, 1, 2)
    )
    assert torch.equal(rollouts.actions, same_seed.actions)
    assert not torch.equal(rollouts.actions, other_seed.actions)
    prob = policy(History(repeated.observations[:1, -1:], repeated.actions[:1, :0])).logits.softmax(-1)[0, 1]
    assert float(rollouts.actions.float().mean()) == pytest.approx(float(prob), abs=0.03)
    best = imagine(as_transition_model(task, model), policy, repeated, 1, 1, greedy=True)
    assert best.actions.unique().tolist() == [int(prob > 0.5)]


def test_starts_are_states_with_an_action(episodes):
    starts = start_states(episodes, C)
    assert len(starts.observations) == sum(episode.steps for episode in episodes)
    initial_states = {tuple(episode.observations[0].tolist()) for episode in episodes}
    initial = sample_starts(starts, 40, 1.0, 1)
    assert (initial.actions == NO_ACTION).all()
    assert {tuple(state.tolist()) for state in initial.observations[:, -1]} <= initial_states
    assert 0.2 < float((sample_starts(starts, 400, 0.25, 1).actions[:, -1] == NO_ACTION).float().mean()) < 0.6


def test_new_scales_keep_the_predictions(episodes):
    task, model = make_model()
    progress = Progress.new(model, TrainOptions(steps=1, lr=0.1, warmup_steps=0, ema=0.9))
    progress.ema.means[0].add_(0.1)  # the average is another model
    starts = sample_starts(start_states(episodes, C), 9, 0.5, 1)
    inputs = starts.observations, torch.cat([starts.actions, torch.ones(9, 1).long()], 1)

    def predictions(task):
        with torch.no_grad():
            current = as_transition_model(task, model).predict(*inputs)
            with progress.ema.average_parameters():
                return *current, *as_transition_model(task, model).predict(*inputs)

    before = predictions(task)
    new = refit_scales(task, progress, episodes)
    assert new.norm.mean[0] != 0.0
    assert new.norm.std[0] != 1.0
    assert new.preprocessor.reward[1] != 1.0
    for old, current in zip(before, predictions(new), strict=True):
        torch.testing.assert_close(current, old, atol=1e-4, rtol=1e-4)
    absorb_scales(model, task, new)  # a second time
    assert not torch.allclose(predictions(new)[0], before[0], atol=1e-3)


def test_the_replay_buffer_takes_the_same_windows(episodes):
    buffer, moments = ReplayBuffer(episodes, C, 2), EpisodeWindows(episodes, C, 2)
    starts = moments.overlapping(1)[0]
    for actual, expected in zip(buffer.take(starts), moments.take(starts), strict=True):
        real = np.arange(C + 1) <= moments.take(starts).lengths[:, None]
        if expected.ndim == 3:
            assert np.array_equal(actual[real], expected[real])
        elif expected.ndim == 2:
            assert np.array_equal(actual * real[:, 1:], expected)
        else:
            assert np.array_equal(actual, expected)


def test_burn_in_masks_the_first_step_unless_the_episode_starts_there(episodes):
    task, model = make_model()
    examples = ReplayBuffer(episodes, C, 2)
    starts = examples.overlapping(1)[0]
    initial = examples.locate(starts)[1] == 0
    batch, full_batch = BurnInTask.from_task(task).collate(examples, starts), task.collate(examples, starts)
    assert batch.real[:, 0].tolist() == initial.tolist()
    assert 0 < initial.sum() < len(initial)
    assert torch.equal(batch.real[:, 1:], full_batch.real[:, 1:])
    changed = batch._replace(
        change=batch.change
        + 5 * torch.from_numpy(~initial)[:, None, None, None] * (torch.arange(C) == 0)[:, None, None]
    )
    assert task.loss(model, changed).total == task.loss(model, batch).total


def test_terminations_are_oversampled(corridor):
    episodes = record_episodes(corridor, lambda trajectory: len(trajectory.actions) % 3 > 0, 6, 1)
    examples = ReplayBuffer(episodes, C, 2)
    (batch,) = examples.epoch(64 * C * 2, 1, 0)
    assert len(batch) == 64
    assert examples.take(batch).ends.sum() >= 8
    assert not np.array_equal(batch, examples.epoch(64 * C * 2, 1, 1)[0])
    unterminated = ReplayBuffer(
        [episode for episode in episodes if not episode.terminated] or [episodes[0]._replace(terminated=False)], C, 2
    )
    assert unterminated.take(unterminated.epoch(64 * C * 2, 1, 0)[0]).ends.sum() == 0


def test_a_model_learns_the_corridor(corridor, episodes):
    """A trained model predicts observation, reward and termination."""
    task, model = make_model()
    train_options = TrainOptions(steps=250, lr=0.01, warmup_steps=10, batch_tokens=400, ema=0.0)
    progress = Progress.new(model, train_options)
    task = refit_scales(task, progress, record_episodes(corridor, random_policy(corridor, 3), 40, 3))
    examples = ReplayBuffer(record_episodes(corridor, random_policy(corridor, 3), 40, 3), C, 2)
    losses = [step.loss for step in train_steps(progress, task, examples, train_options)]
    assert np.mean(losses[-20:]) < 0.2 * np.mean(losses[:5])
    starts = History(torch.tensor([[[2.0, 2.0]] * C, [[4.0, 4.0]] * C]), torch.full((2, C - 1), NO_ACTION))
    with torch.no_grad():
        transition = as_transition_model(task, model.eval()).predict(
            starts.observations, torch.cat([starts.actions, torch.ones(2, 1).long()], 1)
        )
    assert transition.observation[:, 0].tolist() == pytest.approx([3.0, 5.0], abs=0.4)
    assert transition.reward.tolist() == pytest.approx([-0.05, 1.0], abs=0.2)
    assert transition.continue_prob[0] > 0.8
    assert transition.continue_prob[1] < 0.2
