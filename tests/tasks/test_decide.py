"""Decide: predictions depend on earlier steps only, returns-to-go are sums, top episodes are selected."""

import json

import numpy as np
import pytest
import torch

from regard.data.episodes import Episode, episode_row, observed
from regard.data.lines import BadRow
from regard.json_files import read_json
from regard.modalities.protocols import FitOptions, Target
from regard.modalities.trajectory.episode_files import write_episodes
from regard.modalities.trajectory.modality import TrajectoryModality, top_episodes
from regard.modalities.trajectory.preprocessor import DemonstrationOptions, FrameOptions
from regard.models.world_model import WorldModel, WorldModelConfig
from regard.options import OptionGroups
from regard.tasks.decide import PADDING, Decide, DecideOptions, returns_to_go
from regard.training.train import train

CONTEXT = 6


def episode(steps, line=1, shape=(3,), num_actions=4):
    draw = np.random.default_rng(line)
    observations = draw.normal(size=(steps + 1, *shape)).astype(np.float32)
    actions, rewards = draw.integers(0, num_actions, steps), draw.normal(size=steps).astype(np.float32)
    return episode_row(Episode(observations, actions, rewards, bool(line % 2)), "made.npz", line)


def changed(row, **fields):
    return episode_row(row.input._replace(**fields), row.file, row.line)


ROWS = [episode(steps, line) for line, steps in enumerate((9, 4, 1, 14, 6), 1)]
EPISODES = [row.input for row in ROWS]


def fit_task(rows=ROWS, patch_size=None, top_fraction=1.0, returns=False):
    groups = OptionGroups(FrameOptions(patch_size), DemonstrationOptions(top_fraction))
    preprocessor = TrajectoryModality().fit(rows, FitOptions(Target.ACTION, groups))
    return Decide.fit(rows, preprocessor, None, returns=returns)


def make_model(task, context=CONTEXT):
    torch.manual_seed(1)
    config = WorldModelConfig(context=context, dim=16, layers=2, heads=2, hidden=24, **task.sizes())
    model = task.head(WorldModel(config)).eval()
    with torch.no_grad():
        for weight in model.parameters():
            weight.add_(torch.randn_like(weight) * 0.1)
    return model


@pytest.mark.parametrize("returns", [False, True])
@pytest.mark.parametrize("shape", [(3,), (2, 4), (2, 4, 2)])
@torch.no_grad()
def test_an_action_depends_on_earlier_steps_only(returns, shape):
    rows = [episode(CONTEXT, 1, shape), episode(CONTEXT, 2, shape)]
    task = fit_task(rows, returns=returns)
    model = make_model(task)
    before = all_logits(task, model, rows)
    for t in range(CONTEXT):
        actions = [row.input.actions.copy() for row in rows]
        for values in actions:
            values[t] = (values[t] + 1) % task.num_actions
        after = all_logits(
            task, model, [changed(row, actions=values) for row, values in zip(rows, actions, strict=True)]
        )
        assert torch.equal(after[:, : t + 1], before[:, : t + 1]), "a later action changes an earlier prediction"
        if t + 1 < CONTEXT:
            assert ((after - before)[:, t + 1 :].abs().amax(-1) > 1e-6).all(), "an action has no effect"
        observations = [row.input.observations.copy() for row in rows]
        for values in observations:
            values[t] += 1
        after = all_logits(
            task, model, [changed(row, observations=values) for row, values in zip(rows, observations, strict=True)]
        )
        assert torch.equal(after[:, :t], before[:, :t])
        assert ((after - before)[:, t:].abs().amax(-1) > 1e-6).all()


def all_logits(task, model, rows):
    examples = task.encode(rows, CONTEXT)
    batch = task.collate(examples, examples.sequential())
    return task.logits(model, batch.inputs.x, batch.previous_actions)


def test_returns_to_go_are_sums_of_later_rewards():
    for row in EPISODES:
        returns = returns_to_go(row.rewards, float(row.rewards.sum(dtype=np.float64)))
        assert returns.shape == (row.steps + 1, 2)
        for t in range(row.steps + 1):
            assert returns[t, 0] == pytest.approx(sum(float(reward) for reward in row.rewards[t:]), abs=1e-5)
            assert returns[t, 1] == t
    assert returns_to_go(np.array([1.0, 2.0], np.float32), 10.0)[:, 0].tolist() == [10.0, 9.0, 7.0]


@pytest.mark.parametrize(("fraction", "count"), [(1.0, 20), (0.5, 10), (0.1, 2), (0.11, 3), (0.001, 1)])
def test_top_episodes_are_the_best_fraction_in_order(fraction, count):
    rows = [episode(5, line) for line in range(1, 21)]
    bad = BadRow("made.npz", 21, "empty", "nothing in it")
    top = list(top_episodes([*rows, bad], fraction))
    assert top.pop() == bad, "bad rows are passed on"
    assert len(top) == count
    assert [row.line for row in top] == sorted(row.line for row in top)
    worst, lines = min(row.input.rewards.sum() for row in top), {row.line for row in top}
    assert all(row.input.rewards.sum() <= worst for row in rows if row.line not in lines)


def test_inputs_are_scaled_by_the_training_data():
    task = fit_task(returns=True)
    examples = task.encode(ROWS, CONTEXT)
    inputs = examples.arrays[0]
    assert inputs.shape == (sum(row.steps for row in EPISODES), 1, 5)
    np.testing.assert_allclose(inputs[:, 0, 3:].mean(0), 0, atol=1e-5)
    np.testing.assert_allclose(inputs[:, 0, 3:].std(0), 1, atol=1e-5)
    every = np.concatenate([row.observations for row in EPISODES])
    np.testing.assert_allclose(
        inputs[:9, 0, :3], (EPISODES[0].observations[:-1] - every.mean(0)) / every.std(0), rtol=1e-4
    )
    assert task.max_return == pytest.approx(max(row.rewards.sum() for row in EPISODES))
    assert task.sizes() == {"observation_dim": 5, "observation_tokens": 1, "num_actions": 4}


def test_a_constant_entry_has_std_1():
    still = [
        changed(row, observations=np.concatenate((row.input.observations, row.input.observations * 0 + 7), 1))
        for row in ROWS
    ]
    task = fit_task(still)
    assert task.preprocessor.norm.std[3:] == [1.0] * 3
    assert np.isfinite(task.encode(still, CONTEXT).arrays[0]).all()


def test_frames_are_patchified():
    rows = [episode(5, line, (4, 6)) for line in (1, 2)]
    task = fit_task(rows, patch_size=2, returns=True)
    assert task.sizes() == {"observation_dim": 4 + 2, "observation_tokens": 6, "num_actions": 4}
    assert task.encode(rows, CONTEXT).arrays[0].shape == (10, 6, 6)


def test_padded_steps_do_not_count():
    task = fit_task()
    model, examples = make_model(task).double(), task.encode(ROWS, CONTEXT)
    rows_in_order = examples.sequential()
    whole = task.loss(model, to_double(task.collate(examples, rows_in_order)))
    alone = [
        task.loss(model, to_double(task.collate(examples, rows_in_order[i : i + 1]))) for i in range(len(rows_in_order))
    ]
    assert whole.count == sum(loss.count for loss in alone) == sum(row.steps for row in EPISODES)
    assert whole.total.item() == pytest.approx(sum(loss.total.item() for loss in alone), rel=1e-10)
    targets = task.collate(examples, rows_in_order).targets
    assert (targets == PADDING).any()


def to_double(batch):
    return batch._replace(inputs=batch.inputs._replace(x=batch.inputs.x.double()))


def test_a_file_is_predicted_as_its_episodes_alone(tmp_path):
    task = fit_task(returns=True)
    model, file = make_model(task), tmp_path / "some.npz"
    write_episodes(file, EPISODES)
    [[best]] = task.predict(model, [str(file)], DecideOptions(target_return=3.0))
    inputs = [
        json.dumps(
            {"observations": r.observations.tolist(), "actions": r.actions.tolist(), "rewards": r.rewards.tolist()}
        )
        for r in EPISODES
    ]
    alone = [ranked[0] for ranked in task.predict(model, inputs, DecideOptions(target_return=3.0))]
    assert best.text == " ".join(prediction.text for prediction in alone)
    assert best.logprob == pytest.approx(sum(prediction.logprob for prediction in alone), abs=1e-5)


def test_a_target_return_changes_predictions_and_needs_return_conditioning():
    inputs = [json.dumps({"observations": [[0.1, 0.2, 0.3]]})]
    task = fit_task(returns=True)
    model = make_model(task)
    low, high, best = (
        next(task.predict(model, inputs, DecideOptions(num_return=4, target_return=target)))[0].logprob
        for target in (-9.0, 9.0, None)
    )
    assert low != high
    assert best == next(task.predict(model, inputs, DecideOptions(target_return=task.max_return)))[0].logprob
    task = fit_task(returns=False)
    with pytest.raises(ValueError, match="not conditioned on returns.*--returns"):
        list(task.predict(make_model(task), inputs, DecideOptions(target_return=9.0)))


def test_an_input_may_name_a_single_episode(tmp_path):
    task = fit_task()
    model, file = make_model(task), str(tmp_path / "some.npz")
    write_episodes(file, EPISODES)
    [[whole]], [[single]] = (list(task.predict(model, [name], DecideOptions())) for name in (file, f"{file}:2"))
    assert whole.text.split()[1] == single.text
    with pytest.raises(ValueError, match="some.npz has no episode 9"):
        list(task.predict(model, [f"{file}:9"], DecideOptions()))


def test_a_file_without_episodes_is_refused(tmp_path):
    arrays = {"observations": np.zeros((0, 3)), "actions": np.zeros(0, int), "rewards": np.zeros(0)}
    np.savez(tmp_path / "none.npz", **arrays, steps=np.zeros(0, int), terminated=np.zeros(0, bool))
    task = fit_task()
    with pytest.raises(ValueError, match=r"none.npz: none of 0 lines can be used"):
        list(task.predict(make_model(task), [str(tmp_path / "none.npz")], DecideOptions()))


def test_predictions_are_all_actions_by_probability():
    task = fit_task()
    [best] = task.predict(make_model(task), ['{"observations": [[0, 0, 0]]}'], DecideOptions(num_return=9))
    assert sorted(prediction.text for prediction in best) == ["0", "1", "2", "3"]
    assert [p.logprob for p in best] == sorted((p.logprob for p in best), reverse=True)
    assert sum(prediction.score for prediction in best) == pytest.approx(1, abs=1e-5)


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (
            [episode_row(observed(np.zeros((4, 3, 3), np.float32)), "ball.npz", 7)],
            "ball.npz:7: the next action needs episodes with actions",
        ),
        (
            [changed(ROWS[0], actions=EPISODES[0].actions * 0 + 2)],
            "made.npz: every action is 2: at least two are needed",
        ),
    ],
)
def test_unusable_training_data_are_refused(rows, message):
    with pytest.raises(ValueError, match=message):
        fit_task(rows)


@pytest.mark.parametrize(
    ("row", "message"),
    [
        (episode(3, 8, (2,)), r"made.npz:8: observations of shape \[2\], but the training data have \[3\]"),
        (episode(30, 9, num_actions=9), "made.npz:9: action 8, but the training data have 0 to 3"),
        (
            episode_row(observed(np.zeros((4, 3), np.float32)), "made.npz", 3),
            "made.npz:3: the episode has no actions, but the training data have actions",
        ),
    ],
)
def test_an_episode_that_does_not_fit_is_refused(row, message):
    with pytest.raises(ValueError, match=message):
        fit_task().encode([*ROWS, row], CONTEXT)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "input:1: give a file of episodes"),
        ("{", "input:1: not an episode"),
        ('{"actions": []}', "input:1: not an episode: KeyError, 'observations'"),
        ('{"observations": [[1, 2, 3], [1, 2]]}', "input:1: not an episode"),
        ('{"observations": [[1, 2, 3]], "actions": [1]}', r"input:1: L \+ 1 observations go with L actions"),
        ('{"observations": [[1, 2, 3], [1, 2, 3]], "actions": [0.5]}', "input:1: an action must be an integer"),
        ('{"observations": [[1, 2, NaN]]}', "input:1: the episode contains NaN or infinity"),
        ('{"observations": [[1, 2]]}', r"input:1: observations of shape \[2\], but the training data have \[3\]"),
        (
            '{"observations": [[1, 2, 3], [1, 2, 3]], "actions": [4]}',
            "input:1: action 4, but the training data have 0 to 3",
        ),
        ("none.npz", "none.npz"),
    ],
)
def test_a_bad_input_is_refused(text, message):
    task = fit_task()
    with pytest.raises(ValueError, match=message):
        list(task.predict(make_model(task), [text], DecideOptions()))


@pytest.mark.parametrize(
    ("options", "message"),
    [({"top_fraction": 0.0}, "must be above 0"), ({"top_fraction": 1.5}, "top-fraction must be above 0 and at most 1")],
)
def test_a_bad_top_fraction_is_refused(options, message):
    with pytest.raises(ValueError, match=message):
        fit_task(**options)


def test_a_run_from_a_world_model_keeps_its_context(tmp_path):
    write_episodes(tmp_path / "some.npz", EPISODES)
    small = {"dim": 16, "layers": 1, "heads": 2, "hidden": 24, "context": 3}
    where = {"data": str(tmp_path / "some.npz"), "valid_share": 0.3, "steps": 1, "device": "cpu"}
    list(train("predict", output_dir=tmp_path / "world_model", **where, **small))
    list(train("decide", output_dir=tmp_path / "run", from_=tmp_path / "world_model", **where))
    assert read_json(tmp_path / "run" / "config.json")["context"] == 3


@pytest.mark.parametrize(
    ("options", "message"), [({"temperature": -1.0}, "temperature"), ({"target_return": float("nan")}, "target-return")]
)
def test_bad_decode_options_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        DecideOptions(**options)
