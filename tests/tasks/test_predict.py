"""Predict learns what comes next, looks far ahead step by step, and says what does not fit by file and episode."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from regard.cli import main
from regard.data.bundled import ball
from regard.data.episodes import Episode, read_episodes, video, write_episodes
from regard.load import load
from regard.models.world import World, WorldConfig
from regard.tasks.predict import Predict
from regard.tasks.rollout import foresee, missed, roll, rolled
from regard.training.settings import start
from regard.training.train import carry_out, planned, prepare, train

SMALL: dict[str, Any] = {"dim": 16, "layers": 1, "heads": 2, "hidden": 24, "device": "cpu", "threads": 1}


def spring(steps: int, seed: int) -> Episode:
    """A weight on a spring, pushed to one side or the other; it ends when it is far out, and far out is bad."""
    draw = np.random.default_rng(seed)
    x, v = draw.normal(size=2)
    seen, done, rewards = [(x, v)], [], []
    for _ in range(steps):
        push = int(draw.integers(2))
        v += 0.2 * (2 * push - 1) - 0.1 * x
        x += 0.2 * v
        seen.append((x, v))
        done.append(push)
        rewards.append(-abs(x))
        if abs(x) > 2:
            break
    ended = bool(abs(x) > 2)
    return Episode(np.array(seen, np.float32), np.array(done), np.array(rewards, np.float32), ended, "spring", seed + 1)


@pytest.fixture(scope="module")
def springs() -> list[Episode]:
    return [spring(30, seed) for seed in range(60)]


def learnt(task: Predict, body: World, rows: list[Episode]) -> Any:
    """A model that nobody has trained, but whose head says something."""
    model = task.head(body)
    torch.manual_seed(2)
    with torch.no_grad():
        for weight in model.parameters():
            weight.add_(torch.randn_like(weight) * 0.1)
    return model.eval()


def made(rows: list[Episode], context: int = 4) -> tuple[Predict, Any]:
    task = Predict.fit(rows, "foresees", {}, {}, patch=None)
    torch.manual_seed(1)
    body = World(WorldConfig(**task.sizes(), context=context, dim=16, layers=2, heads=2, hidden=24))
    return task, learnt(task, body, rows)


def test_a_roll_out_is_repeated_single_predictions(springs: list[Episode]) -> None:
    task, model = made(springs)
    row = springs[0]
    [found] = rolled(model, task.senses, [row], 6, 9)
    seen, done = torch.from_numpy(row.seen(0, 6))[None], torch.from_numpy(row.actions)[None]
    with torch.inference_mode():
        for step in range(9):
            told = foresee(model, task.senses, seen, done[:, : 6 + step])
            assert np.allclose(found.told[step], told.observation[0], atol=1e-5)
            seen = torch.cat((seen, told.observation[:, None]), 1)


def test_only_the_context_is_seen_and_all_of_it(springs: list[Episode]) -> None:
    task, model = made(springs, context=4)
    seen, done = torch.from_numpy(springs[0].seen(0, 9))[None], torch.from_numpy(springs[0].actions[:9])[None]
    told = foresee(model, task.senses, seen, done).observation
    assert torch.equal(foresee(model, task.senses, seen[:, -4:], done[:, -4:]).observation, told)
    other = seen.clone()
    other[:, -4] += 1
    assert not torch.equal(foresee(model, task.senses, other, done).observation, told)


def test_roll_outs_in_company_are_those_alone(springs: list[Episode]) -> None:
    """Whatever their lengths: some are shorter than the context, some end before the horizon."""
    task, model = made(springs)
    rows = [*springs[:5], spring(2, 99), spring(3, 98)]
    for known in (None, 3):
        for row, found in zip(rows, rolled(model, task.senses, rows, known, 7), strict=True):
            [alone] = rolled(model, task.senses, [row], known, 7)
            assert found.row is row
            assert np.allclose(found.told, alone.told, atol=1e-5)
            assert len(found.told) == min(7, row.steps + 1 - found.known)
            assert np.array_equal(found.true, row.observations[found.known : found.known + 7])
            assert len(missed(task.senses, found)[0]) == len(found.true)


def test_a_step_is_scored_from_all_before_it_that_fit_the_context() -> None:
    """As if each were asked for alone; clipped to what a pixel can be."""
    films = ball.balls(2, 9, seed=3)
    rows = [video(frames, "ball", line) for line, frames in enumerate(films.frames, 1)]
    task, model = made(rows, context=3)
    errors, copies = [], []
    with torch.inference_mode():
        for row in rows:
            for t in range(8):
                seen = torch.from_numpy(row.seen(0, t + 1))[None]
                told = foresee(model, task.senses, seen).observation[0].numpy()
                errors.append(((told - row.seen(t + 1, t + 2)[0]) ** 2).sum())
                copies.append(((row.seen(t, t + 1)[0] - row.seen(t + 1, t + 2)[0]) ** 2).sum())
    scores = task.score(model, rows)
    assert scores["error"] == pytest.approx(np.mean(errors), rel=1e-4)
    assert scores["copy"] == pytest.approx(np.mean(copies), rel=1e-4)
    assert scores["loss"] >= scores["error"]
    assert "reward_error" not in scores
    assert scores["error_at_5"] > 0
    assert "error_at_10" not in scores, "no video is that long"


def test_the_loss_of_frames_is_the_error_of_their_pixels() -> None:
    films = ball.balls(3, 6, seed=3)
    rows = [video(frames, "ball", line) for line, frames in enumerate(films.frames, 1)]
    task, _ = made(rows, context=5)
    untrained = task.head(World(WorldConfig(**task.sizes(), context=5, dim=16, layers=1, heads=2, hidden=24)))
    examples = task.prepare(rows, 5)
    loss = task.loss(untrained, task.batch(examples, np.concatenate(examples.epoch(10**6, 1, 0))))
    frames = films.frames / 255
    assert loss.count == 15
    assert loss.total.item() == pytest.approx((np.diff(frames, axis=1) ** 2).sum(), rel=1e-4)


def test_padding_is_invisible(springs: list[Episode]) -> None:
    task, model = made(springs, context=8)
    rows = [spring(3, 90), spring(8, 91)]
    examples = task.prepare(rows, 8)
    both = task.batch(examples, np.array([0, 3]))
    assert both.mask is not None
    alone = [task.batch(task.prepare([row], 8), np.array([0])) for row in rows]
    parts = [task.loss(model, one) for one in alone]
    whole = task.loss(model, both)
    assert whole.total.item() == pytest.approx(sum(part.total.item() for part in parts), rel=1e-5)
    assert whole.count == sum(part.count for part in parts)


def test_episodes_are_learnt_better_than_that_nothing_changes(springs: list[Episode], tmp_path: Path) -> None:
    write_episodes(tmp_path / "train.npz", springs)
    write_episodes(tmp_path / "valid.jsonl", [spring(30, seed) for seed in range(100, 120)])
    given = {"data": tmp_path / "train.npz", "valid": tmp_path / "valid.jsonl", "out": tmp_path / "run"}
    *_, last = train("predict", **given, **SMALL, steps=400, checks=1)
    assert last.scores["copy"] == pytest.approx(1, abs=0.5)
    assert last.scores["error"] < 0.2 * last.scores["copy"]
    assert last.scores["end_accuracy"] > 95
    rewards = np.concatenate([one.rewards for one in springs])
    assert last.scores["reward_error"] < 0.3 * rewards.var()


def test_what_is_done_matters(springs: list[Episode], tmp_path: Path) -> None:
    """Of two springs in the same state, that which is pushed to the right moves to the right."""
    write_episodes(tmp_path / "train.npz", springs)
    *_, last = train("predict", data=tmp_path / "train.npz", out=tmp_path / "run", **SMALL, steps=200, checks=1)
    loaded = load(tmp_path / "run")
    task: Any = loaded.task
    seen = torch.from_numpy(np.stack([springs[3].seen(0, 4)] * 2))
    done = torch.from_numpy(np.stack([springs[3].actions[:4]] * 2))
    done[:, -1] = torch.tensor([0, 1])
    with torch.inference_mode():
        left, right = foresee(loaded.model, task.senses, seen, done).observation[:, 1]
    assert right - left == pytest.approx(0.4, abs=0.1)


def test_the_ball_is_foreseen_better_than_by_copying(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("regard.tasks.predict.VIDEOS", {"train": 60, "valid": 4, "test": 4})
    how = {"dim": 32, "layers": 2, "heads": 2, "hidden": 64, "context": 3, "device": "cpu", "threads": 1}
    *_, last = train("predict", out=tmp_path / "run", **how, steps=450, checks=1, batch_tokens=900)
    assert last.scores["copy"] == pytest.approx(11.86, abs=3)
    assert last.scores["error"] < 0.75 * last.scores["copy"]


@pytest.fixture(scope="module")
def seen_balls(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that has learnt for two steps, and videos."""
    at = tmp_path_factory.mktemp("balls")
    np.savez(at / "videos.npz", videos=ball.balls(4, 12).frames)
    given = {"data": str(at / "videos.npz"), "valid": str(at / "videos.npz"), "out": str(at / "run"), "steps": 2}
    list(carry_out(planned(prepare(start("predict", **given, **SMALL, checks=1)))))
    return at


@pytest.mark.parametrize("ending", ["gif", "png", "npz", "jsonl"])
def test_the_command_keeps_what_it_foresees(seen_balls: Path, ending: str, capsys: Any) -> None:
    file = seen_balls / f"told.{ending}"
    asked = f"{seen_balls / 'videos.npz'}:2"
    assert main(["run", str(seen_balls / "run"), asked, "--horizon", "5", "--save", str(file), "--json"]) == 0
    [answer] = json.loads(capsys.readouterr().out)["answers"]
    assert answer["text"].startswith("5 steps ahead of 1 video: error ")
    assert len(answer["errors"]) == len(answer["without_change"]) == 5
    told = np.array(answer["foreseen"])
    if ending == "gif":
        with Image.open(file) as film:
            assert film.n_frames == 5 + 5
    elif ending == "png":
        with Image.open(file) as strip:
            assert strip.width > strip.height
    else:
        [kept] = read_episodes([file])
        assert np.allclose(kept.seen(1), told, atol=1e-6)


def test_beyond_the_last_frame_there_is_no_truth(seen_balls: Path) -> None:
    loaded = load(seen_balls / "run")
    [[answer]] = loaded.generate([f"{seen_balls / 'videos.npz'}:1"], ahead=True, horizon=3)
    assert answer.text == "3 steps ahead of 1 video"
    assert answer.more["errors"] == [None] * 3
    assert np.array(answer.more["foreseen"]).shape == (3, 30, 30)


def refusal(seen_balls: Path, name: str, **how: Any) -> str:
    with pytest.raises(ValueError) as error:  # noqa: PT011
        list(load(seen_balls / "run").generate([name], **how))
    return str(error.value)


def test_what_does_not_fit_is_named(seen_balls: Path, springs: list[Episode], tmp_path: Path) -> None:
    other = tmp_path / "springs.jsonl"
    write_episodes(other, springs[:2])
    np.savez(tmp_path / "large.npz", videos=np.zeros((2, 3, 60, 60), np.uint8))
    says = refusal(seen_balls, str(tmp_path / "large.npz"))
    assert "large.npz:1: observations of shape [60, 60], but the model learnt from those of [30, 30]" in says
    assert "springs.jsonl:1: observations of shape [2]" in refusal(seen_balls, str(other))
    assert "there is no episode 9" in refusal(seen_balls, f"{seen_balls / 'videos.npz'}:9")
    assert "no such file" in refusal(seen_balls, "nowhere.npz")
    assert "did you mean .gif?" in refusal(seen_balls, str(seen_balls / "videos.npz"), save="a.gift")


def test_actions_that_were_never_seen_are_refused(springs: list[Episode]) -> None:
    task, _ = made(springs)
    with pytest.raises(ValueError, match="spring:1: action 2, but the model learnt from those up to 1"):
        task.prepare([springs[0]._replace(actions=springs[0].actions + 1)], 4)
    with pytest.raises(ValueError, match="spring:1: it has no actions, but what the model learnt from has some"):
        task.prepare([springs[0]._replace(actions=None)], 4)


def test_numbers_make_no_film(springs: list[Episode], tmp_path: Path) -> None:
    task, model = made(springs)
    write_episodes(tmp_path / "a.npz", springs[:2])
    how = task.ways(save=str(tmp_path / "a.gif"))
    with pytest.raises(ValueError, match="only frames can be seen"):
        list(task.predict(model, [str(tmp_path / "a.npz")], how))
    with pytest.raises(ValueError, match="leave out --ahead"):
        list(task.predict(model, [str(tmp_path / "a.npz")], task.ways(ahead=True)))


@pytest.mark.parametrize("ending", ["npz", "jsonl"])
def test_nothing_is_told_of_what_follows_the_last_action(springs: list[Episode], tmp_path: Path, ending: str) -> None:
    """An episode that is shorter than the horizon: what is kept is one that can be read."""
    task, model = made(springs)
    write_episodes(tmp_path / "a.npz", [row for row in springs if row.steps < 20][:1])
    [row], kept = read_episodes([tmp_path / "a.npz"]), tmp_path / f"b.{ending}"
    [[answer]] = task.predict(model, [str(tmp_path / "a.npz")], task.ways(horizon=25, save=str(kept)))
    assert isinstance(row, Episode)
    [again] = read_episodes([kept])
    assert isinstance(again, Episode)
    assert again.actions is not None
    assert again.actions.tolist() == row.actions.tolist()  # type: ignore[union-attr]
    assert len(answer.more["foreseen"]) == row.steps
    assert answer.more["errors"][row.steps :] == [None] * (25 - row.steps)


def test_rewards_that_are_all_alike_have_no_scale(springs: list[Episode]) -> None:
    alike = [row._replace(rewards=np.full(row.steps, 0.1, np.float32)) for row in springs]
    assert Predict.fit(alike, "foresees", {}, {}, patch=None).reward[1] == 1.0


def test_an_episode_without_an_end_stops_the_training_by_its_line(tmp_path: Path) -> None:
    rows = [{"observations": [[1], [2]], "actions": [0], "rewards": [1], "ended": True}] * 3
    rows[1] = {name: value for name, value in rows[1].items() if name != "ended"}
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    with pytest.raises(ValueError, match=r"1 missing field \(first .*a\.jsonl:2: no field 'ended'"):
        list(train("predict", data=tmp_path / "a.jsonl", out=tmp_path / "run", steps=1))


def test_a_roll_out_without_any_model_of_actions_needs_none() -> None:
    rows = [video(frames, "ball", 1) for frames in ball.balls(1, 6).frames]
    task, model = made(rows)
    assert roll(model, task.senses, torch.from_numpy(rows[0].seen(0, 2))[None], None, 3).shape == (1, 3, 30, 30)


def test_a_run_starts_from_another_and_keeps_its_scales(seen_balls: Path, tmp_path: Path) -> None:
    begun = load(seen_balls / "run")
    given = {"data": str(seen_balls / "videos.npz"), "valid": str(seen_balls / "videos.npz"), "device": "cpu"}
    job = planned(prepare(start("predict", from_=str(seen_balls / "run"), out=str(tmp_path / "run"), steps=1, **given)))
    for name, weight in begun.model.state_dict().items():
        assert torch.equal(weight, job.progress.model.state_dict()[name]), name
    assert job.task == begun.task
    assert [step.number for step in carry_out(job)] == [1]


@pytest.mark.parametrize("verb", ["look", "bench"])
def test_what_shows_texts_and_pictures_refuses_politely(verb: str, seen_balls: Path, capsys: Any) -> None:
    args = [str(seen_balls / "run"), *(["a text"] if verb == "look" else [])]
    assert main([verb, *args]) == 2
    assert "this one reads neither" in capsys.readouterr().err


def test_check_inspects_only_the_weights(seen_balls: Path, capsys: Any) -> None:
    assert main(["check", str(seen_balls / "run"), "--no-peers"]) == 0
    assert "only its weights were checked" in capsys.readouterr().out
