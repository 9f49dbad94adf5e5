"""SequencePolicy: its inputs equal those of training, and a batch of episodes equals single ones."""

import numpy as np
import pytest
import torch

from regard.data.episodes import episode_row
from regard.modalities.synthetic.cart import MAX_STEPS, carts
from regard.modalities.trajectory.preprocessor import TrajectoryPreprocessor
from regard.models.world_model import WorldModel, WorldModelConfig
from regard.rl.cartpole import CartPole
from regard.rl.environment import Trajectory, episode_returns, random_policy, record_episodes
from regard.rl.sequence_policy import SequencePolicy, play_in_parallel
from regard.tasks.decide import Decide, DecideOptions

CONTEXT = 4
EPISODES = carts(20)


def fit_task(returns=False):
    rows = [episode_row(episode, "cart", line) for line, episode in enumerate(EPISODES, 1)]
    return Decide.fit(rows, TrajectoryPreprocessor(**TrajectoryPreprocessor.scales(rows)), None, returns=returns)


def row_keys(episodes):
    return [episode_row(episode, "", 1).row_key for episode in episodes]


def make_model(task):
    torch.manual_seed(1)
    model = task.head(
        WorldModel(WorldModelConfig(context=CONTEXT, dim=16, layers=2, heads=2, hidden=24, **task.sizes()))
    )
    with torch.no_grad():
        for weight in model.parameters():
            weight.add_(torch.randn_like(weight) * 0.3)
    return model.eval()


class InputRecorder(SequencePolicy):
    """It records the inputs of the model."""

    def act(self, trajectories):
        original = self.task.action_log_probs
        self.inputs = []
        self.task.action_log_probs = lambda *args: self.inputs.append(args[1:]) or original(*args)
        try:
            return super().act(trajectories)
        finally:
            del self.task.action_log_probs


@pytest.mark.parametrize("with_returns", [False, True])
def test_inputs_in_play_equal_those_of_training(with_returns):
    """An episode of the training data, replayed: the same inputs at every position of the window."""
    task = fit_task(with_returns)
    episode = EPISODES[0]
    inputs, previous_actions = task.history(episode, float(episode.rewards.sum()))
    target_return = float(episode.rewards.sum()) if with_returns else None
    policy_fn = InputRecorder(make_model(task), task, DecideOptions(target_return=target_return))
    for t in (0, 1, CONTEXT - 1, CONTEXT, 13):
        policy_fn(
            Trajectory([*episode.observations[: t + 1]], episode.actions[:t].tolist(), episode.rewards[:t].tolist())
        )
        [(model_inputs, model_actions)] = policy_fn.inputs
        start = max(0, t + 1 - CONTEXT)
        np.testing.assert_allclose(model_inputs[0], inputs[start : t + 1], atol=1e-6)
        assert model_actions[0].tolist() == previous_actions[start : t + 1].tolist()


def test_parallel_episodes_equal_sequential_ones():
    task = fit_task(True)
    policy_fn = SequencePolicy(make_model(task), task, DecideOptions())
    parallel = play_in_parallel([CartPole() for _ in range(6)], policy_fn, seed=3)
    sequential = record_episodes(CartPole(), policy_fn, 6, seed=3)
    assert row_keys(parallel) == row_keys(sequential)
    assert len({episode.steps for episode in parallel}) > 1


def test_the_seed_determines_sampled_actions():
    task = fit_task()
    model = make_model(task)

    def digests(temperature, seed):
        policy = SequencePolicy(model, task, DecideOptions(temperature=temperature), seed)
        return row_keys(play_in_parallel([CartPole() for _ in range(3)], policy, seed=1))

    assert digests(2.0, 1) == digests(2.0, 1)
    assert digests(2.0, 1) != digests(2.0, 2)
    assert digests(1e-4, 5) == digests(DecideOptions().temperature, 1), "almost 0 is greedy"


def test_the_bundled_cartpole_terminates_and_is_deterministic():
    [episode] = record_episodes(CartPole(), lambda trajectory: len(trajectory.actions) % 2, 1, seed=1)
    assert episode.terminated
    assert episode.steps < MAX_STEPS
    repeated = record_episodes(CartPole(), lambda trajectory: len(trajectory.actions) % 2, 1, seed=1)[0]
    assert row_keys([episode]) == row_keys([repeated])
    assert 15 < np.mean(episode_returns(CartPole(), random_policy(CartPole(), 1), 50, 1)) < 35


def test_the_time_limit_truncates_an_episode():
    """A policy that balances is truncated at the time limit."""
    [episode] = record_episodes(
        CartPole(), lambda trajectory: int(trajectory.observations[-1] @ [0.05, 0.1, 1, 0.5] > 0), 1, seed=1
    )
    assert (episode.steps, episode.terminated) == (MAX_STEPS, False)


def test_an_environment_with_other_spaces_is_refused():
    task = fit_task()
    other = CartPole()
    other.visible = [0, 2]
    with pytest.raises(
        ValueError, match=r"cart has 2 observation entries and 2 actions, but this model was trained on"
    ):
        play_in_parallel([other], SequencePolicy(make_model(task), task, DecideOptions()), 1)
