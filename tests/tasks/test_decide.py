"""Decide: no action is seen by its own prediction, returns to go are sums, only the best are kept, errors are named."""

import json

import numpy as np
import pytest
import torch

from regard.data.episodes import Episode, video, write_episodes
from regard.data.lines import Bad
from regard.hub.files import read_json
from regard.models.world import World, WorldConfig
from regard.tasks.decide import NOTHING, Decide, Wishes
from regard.tasks.steps import the_best, to_go
from regard.training.train import train

CONTEXT = 6
AIM = {"best": 1.0, "returns": False, "patch": None}


def episode(steps, line=1, shape=(3,), kinds=4):
    draw = np.random.default_rng(line)
    seen = draw.normal(size=(steps + 1, *shape)).astype(np.float32)
    done, rewards = draw.integers(0, kinds, steps), draw.normal(size=steps).astype(np.float32)
    return Episode(seen, done, rewards, bool(line % 2), "made.npz", line)


ROWS = [episode(steps, line) for line, steps in enumerate((9, 4, 1, 14, 6), 1)]


def fitted(rows=ROWS, **aim):
    return Decide.fit(rows, "foresees", {}, {}, **AIM | aim)


def model_of(task, context=CONTEXT):
    torch.manual_seed(1)
    config = WorldConfig(context=context, dim=16, layers=2, heads=2, hidden=24, **task.sizes())
    made = task.head(World(config)).eval()
    with torch.no_grad():
        for weight in made.parameters():
            weight.add_(torch.randn_like(weight) * 0.1)
    return made


@pytest.mark.parametrize("returns", [False, True])
@pytest.mark.parametrize("shape", [(3,), (2, 4), (2, 4, 2)])
@torch.no_grad()
def test_an_action_is_told_by_what_came_before_it_and_by_nothing_else(returns, shape):
    rows = [episode(CONTEXT, 1, shape), episode(CONTEXT, 2, shape)]
    task = fitted(rows, returns=returns)
    model = model_of(task)
    before = logits(task, model, rows)
    for t in range(CONTEXT):
        done = [row.actions.copy() for row in rows]
        for some in done:
            some[t] = (some[t] + 1) % task.kinds
        after = logits(task, model, [row._replace(actions=some) for row, some in zip(rows, done, strict=True)])
        assert torch.equal(after[:, : t + 1], before[:, : t + 1]), "its own action, or one after it, is seen"
        if t + 1 < CONTEXT:
            assert ((after - before)[:, t + 1 :].abs().amax(-1) > 1e-6).all(), "what was done is remembered"
        seen = [row.observations.copy() for row in rows]
        for some in seen:
            some[t] += 1
        after = logits(task, model, [row._replace(observations=some) for row, some in zip(rows, seen, strict=True)])
        assert torch.equal(after[:, :t], before[:, :t])
        assert ((after - before)[:, t:].abs().amax(-1) > 1e-6).all()


def logits(task, model, rows):
    examples = task.prepare(rows, CONTEXT)
    batch = task.batch(examples, examples.in_order())
    return task.logits(model, batch.seen, batch.before)


def test_what_is_to_go_is_the_sum_of_the_rewards_that_come():
    for row in ROWS:
        told = to_go(row.rewards, float(row.rewards.sum(dtype=np.float64)))
        assert told.shape == (row.steps + 1, 2)
        for t in range(row.steps + 1):
            assert told[t, 0] == pytest.approx(sum(float(reward) for reward in row.rewards[t:]), abs=1e-5)
            assert told[t, 1] == t
    assert to_go(np.array([1.0, 2.0], np.float32), 10.0)[:, 0].tolist() == [10.0, 9.0, 7.0], "what is wished goes down"


@pytest.mark.parametrize(("share", "count"), [(1.0, 20), (0.5, 10), (0.1, 2), (0.11, 3), (0.001, 1)])
def test_exactly_the_best_share_is_kept_in_order(share, count):
    rows = [episode(5, line) for line in range(1, 21)]
    bad = Bad("made.npz", 21, "empty", "nothing in it")
    kept = list(the_best([*rows, bad], share))
    assert kept.pop() == bad, "what is wrong is still told"
    assert len(kept) == count
    assert [one.line for one in kept] == sorted(one.line for one in kept)
    worst, left = min(one.rewards.sum() for one in kept), {one.line for one in kept}
    assert all(one.rewards.sum() <= worst for one in rows if one.line not in left)


def test_numbers_are_scaled_by_what_was_learnt_from():
    task = fitted(returns=True)
    examples = task.prepare(ROWS, CONTEXT)
    numbers = examples.arrays[0]
    assert numbers.shape == (sum(row.steps for row in ROWS), 1, 5)
    np.testing.assert_allclose(numbers[:, 0, 3:].mean(0), 0, atol=1e-5)
    np.testing.assert_allclose(numbers[:, 0, 3:].std(0), 1, atol=1e-5)
    every = np.concatenate([row.observations for row in ROWS])
    np.testing.assert_allclose(
        numbers[:9, 0, :3], (ROWS[0].observations[:-1] - every.mean(0)) / every.std(0), rtol=1e-4
    )
    assert task.highest == pytest.approx(max(row.rewards.sum() for row in ROWS))
    assert task.sizes() == {"observation": 5, "places": 1, "actions": 4}


def test_a_number_that_never_changes_is_no_reason_to_divide_by_nothing():
    still = [row._replace(observations=np.concatenate((row.observations, row.observations * 0 + 7), 1)) for row in ROWS]
    task = fitted(still)
    assert task.senses.spread[3:] == [1.0] * 3
    assert np.isfinite(task.prepare(still, CONTEXT).arrays[0]).all()


def test_a_frame_is_given_in_patches():
    rows = [episode(5, line, (4, 6)) for line in (1, 2)]
    task = fitted(rows, patch=2, returns=True)
    assert task.sizes() == {"observation": 4 + 2, "places": 6, "actions": 4}
    assert task.prepare(rows, CONTEXT).arrays[0].shape == (10, 6, 6)


def test_what_is_no_step_counts_nothing():
    task = fitted()
    model, examples = model_of(task).double(), task.prepare(ROWS, CONTEXT)
    numbers = examples.in_order()
    whole = task.loss(model, doubled(task.batch(examples, numbers)))
    alone = [task.loss(model, doubled(task.batch(examples, numbers[i : i + 1]))) for i in range(len(numbers))]
    assert whole.count == sum(loss.count for loss in alone) == sum(row.steps for row in ROWS)
    assert whole.total.item() == pytest.approx(sum(loss.total.item() for loss in alone), rel=1e-10)
    wanted = task.batch(examples, numbers).wanted
    assert (wanted == NOTHING).any()


def doubled(batch):
    return batch._replace(seen=batch.seen.double())


def test_the_next_action_of_a_file_is_that_of_each_episode_alone(tmp_path):
    task = fitted(returns=True)
    model, file = model_of(task), tmp_path / "some.npz"
    write_episodes(file, ROWS)
    [[best]] = task.predict(model, [str(file)], Wishes(wish=3.0))
    asked = [
        json.dumps(
            {"observations": r.observations.tolist(), "actions": r.actions.tolist(), "rewards": r.rewards.tolist()}
        )
        for r in ROWS
    ]
    alone = [found[0] for found in task.predict(model, asked, Wishes(wish=3.0))]
    assert best.text == " ".join(one.text for one in alone)
    assert best.logp == pytest.approx(sum(one.logp for one in alone), abs=1e-5)


def test_a_wish_changes_what_is_likely_and_is_refused_where_it_was_not_learnt():
    asked = [json.dumps({"observations": [[0.1, 0.2, 0.3]]})]
    task = fitted(returns=True)
    model = model_of(task)
    one, other, best = (
        next(task.predict(model, asked, Wishes(num_return=4, wish=wish)))[0].logp for wish in (-9.0, 9.0, None)
    )
    assert one != other
    assert best == next(task.predict(model, asked, Wishes(wish=task.highest)))[0].logp
    task = fitted(returns=False)
    with pytest.raises(ValueError, match="did not learn from returns.*--returns"):
        list(task.predict(model_of(task), asked, Wishes(wish=9.0)))


def test_one_episode_of_a_file_may_be_named(tmp_path):
    task = fitted()
    model, file = model_of(task), str(tmp_path / "some.npz")
    write_episodes(file, ROWS)
    [[whole]], [[one]] = (list(task.predict(model, [name], Wishes())) for name in (file, f"{file}:2"))
    assert whole.text.split()[1] == one.text
    with pytest.raises(ValueError, match="some.npz: there is no episode 9"):
        list(task.predict(model, [f"{file}:9"], Wishes()))


def test_a_file_without_episodes_is_refused_by_name(tmp_path):
    arrays = {"observations": np.zeros((0, 3)), "actions": np.zeros(0, int), "rewards": np.zeros(0)}
    np.savez(tmp_path / "none.npz", **arrays, steps=np.zeros(0, int), ended=np.zeros(0, bool))
    task = fitted()
    with pytest.raises(ValueError, match=r"none.npz: none of 0 lines can be used"):
        list(task.predict(model_of(task), [str(tmp_path / "none.npz")], Wishes()))


def test_the_best_answers_of_an_episode_are_all_actions_in_order():
    task = fitted()
    [best] = task.predict(model_of(task), ['{"observations": [[0, 0, 0]]}'], Wishes(num_return=9))
    assert sorted(answer.text for answer in best) == ["0", "1", "2", "3"]
    assert [answer.logp for answer in best] == sorted((answer.logp for answer in best), reverse=True)
    assert sum(answer.score for answer in best) == pytest.approx(1, abs=1e-5)


@pytest.mark.parametrize(
    ("rows", "says"),
    [
        ([video(np.zeros((4, 3, 3), np.float32), "ball.npz", 7)], "ball.npz:7: nobody acts here"),
        (
            [ROWS[0]._replace(actions=ROWS[0].actions * 0 + 2)],
            "made.npz: there is nothing to decide: every action is 2",
        ),
    ],
)
def test_what_nothing_can_be_decided_from_is_refused(rows, says):
    with pytest.raises(ValueError, match=says):
        fitted(rows)


@pytest.mark.parametrize(
    ("row", "says"),
    [
        (episode(3, 8, (2,)), r"made.npz:8: its observations are \[2\], those learnt from were \[3\]"),
        (episode(30, 9, kinds=9), "made.npz:9: the action 8 is none of the 4 that were learnt from"),
        (video(np.zeros((4, 3), np.float32), "made.npz", 3), "made.npz:3: nobody acts here"),
    ],
)
def test_an_episode_that_does_not_fit_is_named(row, says):
    with pytest.raises(ValueError, match=says):
        fitted().prepare([*ROWS, row], CONTEXT)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "input:1: give a file of episodes"),
        ("{", "input:1: no episode so far"),
        ('{"actions": []}', "input:1: no episode so far: KeyError, 'observations'"),
        ('{"observations": [[1, 2, 3], [1, 2]]}', "input:1: no episode so far"),
        ('{"observations": [[1, 2, 3]], "actions": [1]}', r"input:1: L \+ 1 observations go with L actions"),
        ('{"observations": [[1, 2, 3], [1, 2, 3]], "actions": [0.5]}', "input:1: an action is a whole number"),
        ('{"observations": [[1, 2, NaN]]}', "input:1: NaN or an infinite number"),
        ('{"observations": [[1, 2]]}', r"input:1: its observations are \[2\], those learnt from were \[3\]"),
        ('{"observations": [[1, 2, 3], [1, 2, 3]], "actions": [4]}', "input:1: the action 4 is none of the 4"),
        ("none.npz", "none.npz"),
    ],
)
def test_an_input_that_cannot_be_decided_on_is_refused(text, says):
    task = fitted()
    with pytest.raises(ValueError, match=says):
        list(task.predict(model_of(task), [text], Wishes()))


@pytest.mark.parametrize(
    ("what", "says"),
    [({"best": 0.0}, "best must be above 0"), ({"best": 1.5}, "best must be above 0 and at most 1")],
)
def test_a_share_that_makes_no_sense_is_refused(what, says):
    with pytest.raises(ValueError, match=says):
        fitted(**what)


def test_who_begins_with_a_model_of_a_world_sees_as_far_as_that_does(tmp_path):
    write_episodes(tmp_path / "some.npz", ROWS)
    small = {"dim": 16, "layers": 1, "heads": 2, "hidden": 24, "context": 3}
    where = {"data": str(tmp_path / "some.npz"), "held_out": 0.3, "steps": 1, "device": "cpu"}
    list(train("predict", out=tmp_path / "world", **where, **small))
    list(train("decide", out=tmp_path / "run", from_=tmp_path / "world", **where))
    assert read_json(tmp_path / "run" / "config.json")["context"] == 3


@pytest.mark.parametrize(("what", "says"), [({"temperature": -1.0}, "temperature"), ({"wish": float("nan")}, "wish")])
def test_a_wish_that_makes_no_sense_is_refused(what, says):
    with pytest.raises(ValueError, match=says):
        Wishes(**what)
