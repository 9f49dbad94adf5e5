"""Predict: rollouts repeat one-step predictions, scores equal their formula, misfits are named by file and episode."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from regard.cli import main
from regard.data.episodes import Episode, EpisodeRow, episode_row, observed
from regard.data.rows import Row
from regard.load import load
from regard.modalities.protocols import FitOptions, Target
from regard.modalities.synthetic import bouncing_balls
from regard.modalities.trajectory.episode_files import read_episodes, write_episodes
from regard.modalities.trajectory.modality import TrajectoryModality
from regard.models.world_model import WorldModel, WorldModelConfig
from regard.tasks.predict import Forecast
from regard.tasks.rollout import predict_step, roll_out, rollout_episodes, rollout_errors
from regard.training.file_job import FileJob
from regard.training.start import make_settings
from regard.training.train import train

SMALL: dict[str, Any] = {"dim": 16, "layers": 1, "heads": 2, "hidden": 24, "device": "cpu", "threads": 1}


def spring(steps: int, seed: int) -> Episode:
    """A mass on a spring, pushed left or right; the reward is minus the distance, and |x| > 2 ends the episode."""
    draw = np.random.default_rng(seed)
    x, v = draw.normal(size=2)
    observations, actions, rewards = [(x, v)], [], []
    for _ in range(steps):
        push = int(draw.integers(2))
        v += 0.2 * (2 * push - 1) - 0.1 * x
        x += 0.2 * v
        observations.append((x, v))
        actions.append(push)
        rewards.append(-abs(x))
        if abs(x) > 2:
            break
    terminated = bool(abs(x) > 2)
    return Episode(np.array(observations, np.float32), np.array(actions), np.array(rewards, np.float32), terminated)


def as_rows(episodes: list[Episode], file: str = "spring") -> list[EpisodeRow]:
    return [episode_row(episode, file, number) for number, episode in enumerate(episodes, 1)]


@pytest.fixture(scope="module")
def springs() -> list[Episode]:
    return [spring(30, seed) for seed in range(60)]


def perturb(task: Forecast, body: WorldModel) -> Any:
    """An untrained model whose head has nonzero weights."""
    model = task.head(body)
    torch.manual_seed(2)
    with torch.no_grad():
        for weight in model.parameters():
            weight.add_(torch.randn_like(weight) * 0.1)
    return model.eval()


def fit_task(episodes: list[Episode]) -> Forecast:
    rows = as_rows(episodes)
    return Forecast.fit(rows, TrajectoryModality().fit(rows, FitOptions(Target.NEXT)), None)


def fit_model(episodes: list[Episode], context: int = 4) -> tuple[Forecast, Any]:
    task = fit_task(episodes)
    torch.manual_seed(1)
    body = WorldModel(WorldModelConfig(**task.sizes(), context=context, dim=16, layers=2, heads=2, hidden=24))
    return task, perturb(task, body)


def test_a_rollout_repeats_one_step_predictions(springs: list[Episode]) -> None:
    task, model = fit_model(springs)
    row = springs[0]
    [rollout] = rollout_episodes(model, task.norm, [row], 6, 9)
    observations, actions = torch.from_numpy(row.as_float(0, 6))[None], torch.from_numpy(row.actions)[None]
    with torch.inference_mode():
        for step in range(9):
            predicted = predict_step(model, task.norm, observations, actions[:, : 6 + step])
            assert np.allclose(rollout.prediction[step], predicted.observation[0], atol=1e-5)
            observations = torch.cat((observations, predicted.observation[:, None]), 1)


def test_a_prediction_depends_on_the_context_only_and_on_all_of_it(springs: list[Episode]) -> None:
    task, model = fit_model(springs, context=4)
    observations, actions = (
        torch.from_numpy(springs[0].as_float(0, 9))[None],
        torch.from_numpy(springs[0].actions[:9])[None],
    )
    predicted = predict_step(model, task.norm, observations, actions).observation
    assert torch.equal(predict_step(model, task.norm, observations[:, -4:], actions[:, -4:]).observation, predicted)
    changed = observations.clone()
    changed[:, -4] += 1
    assert not torch.equal(predict_step(model, task.norm, changed, actions).observation, predicted)


def test_rollouts_do_not_depend_on_the_batch(springs: list[Episode]) -> None:
    """Some episodes are shorter than the context, some end before the horizon."""
    task, model = fit_model(springs)
    rows = [*springs[:5], spring(2, 99), spring(3, 98)]
    for start_at in (None, 3):
        for row, rollout in zip(rows, rollout_episodes(model, task.norm, rows, start_at, 7), strict=True):
            [alone] = rollout_episodes(model, task.norm, [row], start_at, 7)
            assert rollout.episode is row
            assert np.allclose(rollout.prediction, alone.prediction, atol=1e-5)
            assert len(rollout.prediction) == min(7, row.steps + 1 - rollout.num_observed)
            assert np.array_equal(rollout.target, row.observations[rollout.num_observed : rollout.num_observed + 7])
            assert len(rollout_errors(task.preprocessor, rollout)[0]) == len(rollout.target)


def test_scores_equal_one_step_predictions_from_a_full_context() -> None:
    """Predictions are clipped to the range of a pixel."""
    films = bouncing_balls.balls(2, 9, seed=3)
    rows = [*map(observed, films.frames)]
    task, model = fit_model(rows, context=3)
    errors, copies = [], []
    with torch.inference_mode():
        for row in rows:
            for t in range(8):
                observations = torch.from_numpy(row.as_float(0, t + 1))[None]
                predicted = predict_step(model, task.norm, observations).observation[0].numpy()
                errors.append(((predicted - row.as_float(t + 1, t + 2)[0]) ** 2).sum())
                copies.append(((row.as_float(t, t + 1)[0] - row.as_float(t + 1, t + 2)[0]) ** 2).sum())
    scores = task.score(model, as_rows(rows))
    assert scores["error"] == pytest.approx(np.mean(errors), rel=1e-4)
    assert scores["copy"] == pytest.approx(np.mean(copies), rel=1e-4)
    assert scores["loss"] >= scores["error"]
    assert "reward_error" not in scores
    assert scores["error_at_5"] > 0
    assert "error_at_10" not in scores, "no video is that long"


def test_the_loss_of_frames_is_the_squared_error_of_pixels() -> None:
    films = bouncing_balls.balls(3, 6, seed=3)
    rows = [*map(observed, films.frames)]
    task, _ = fit_model(rows, context=5)
    untrained = task.head(WorldModel(WorldModelConfig(**task.sizes(), context=5, dim=16, layers=1, heads=2, hidden=24)))
    examples = task.encode(as_rows(rows), 5)
    loss = task.loss(untrained, task.collate(examples, np.concatenate(examples.epoch(10**6, 1, 0))))
    frames = films.frames / 255
    assert loss.count == 15
    assert loss.total.item() == pytest.approx((np.diff(frames, axis=1) ** 2).sum(), rel=1e-4)


def test_padding_changes_no_loss(springs: list[Episode]) -> None:
    task, model = fit_model(springs, context=8)
    rows = [spring(3, 90), spring(8, 91)]
    examples = task.encode(as_rows(rows), 8)
    both = task.collate(examples, np.array([0, 3]))
    assert both.inputs.mask is not None
    alone = [task.collate(task.encode(as_rows([row]), 8), np.array([0])) for row in rows]
    parts = [task.loss(model, item) for item in alone]
    whole = task.loss(model, both)
    assert whole.total.item() == pytest.approx(sum(part.total.item() for part in parts), rel=1e-5)
    assert whole.count == sum(part.count for part in parts)


def test_training_on_episodes_beats_copying(springs: list[Episode], tmp_path: Path) -> None:
    write_episodes(tmp_path / "train.npz", springs)
    write_episodes(tmp_path / "valid.jsonl", [spring(30, seed) for seed in range(100, 120)])
    where = {"data": tmp_path / "train.npz", "valid": tmp_path / "valid.jsonl", "output_dir": tmp_path / "run"}
    *_, last = train("predict", **where, **SMALL, steps=400, evals=1)
    assert last.scores["copy"] == pytest.approx(1, abs=0.5)
    assert last.scores["error"] < 0.2 * last.scores["copy"]
    assert last.scores["end_accuracy"] > 95
    rewards = np.concatenate([item.rewards for item in springs])
    assert last.scores["reward_error"] < 0.3 * rewards.var()


def test_actions_change_predictions(springs: list[Episode], tmp_path: Path) -> None:
    """From the same state, a push to the right moves the mass to the right."""
    write_episodes(tmp_path / "train.npz", springs)
    *_, last = train("predict", data=tmp_path / "train.npz", output_dir=tmp_path / "run", **SMALL, steps=200, evals=1)
    loaded = load(tmp_path / "run")
    task: Any = loaded.task
    observations = torch.from_numpy(np.stack([springs[3].as_float(0, 4)] * 2))
    actions = torch.from_numpy(np.stack([springs[3].actions[:4]] * 2))
    actions[:, -1] = torch.tensor([0, 1])
    with torch.inference_mode():
        left, right = predict_step(loaded.model, task.norm, observations, actions).observation[:, 1]
    assert right - left == pytest.approx(0.4, abs=0.1)


def test_training_on_videos_beats_copying(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("regard.modalities.trajectory.modality.VIDEOS", {"train": 60, "valid": 4, "test": 4})
    options = {"dim": 32, "layers": 2, "heads": 2, "hidden": 64, "context": 3, "device": "cpu", "threads": 1}
    *_, last = train("predict", output_dir=tmp_path / "run", **options, steps=450, evals=1, batch_tokens=900)
    assert last.scores["copy"] == pytest.approx(11.86, abs=3)
    assert last.scores["error"] < 0.75 * last.scores["copy"]


@pytest.fixture(scope="module")
def balls_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of two training steps, and videos."""
    at = tmp_path_factory.mktemp("balls")
    np.savez(at / "videos.npz", videos=bouncing_balls.balls(4, 12).frames)
    where = {"data": str(at / "videos.npz"), "valid": str(at / "videos.npz"), "output_dir": str(at / "run"), "steps": 2}
    list(train("predict", **where, **SMALL, evals=1))
    return at


@pytest.mark.parametrize("ending", ["gif", "png", "npz", "jsonl"])
def test_the_command_saves_a_rollout(balls_folder: Path, ending: str, capsys: Any) -> None:
    file = balls_folder / f"rollout.{ending}"
    input_name = f"{balls_folder / 'videos.npz'}:2"
    assert main(["run", str(balls_folder / "run"), input_name, "--horizon", "5", "--save", str(file), "--json"]) == 0
    [answer] = json.loads(capsys.readouterr().out)["predictions"]
    assert answer["text"].startswith("5 steps ahead: error ")
    assert len(answer["errors"]) == len(answer["baseline_errors"]) == 5
    predicted = np.array(answer["observations"])
    if ending == "gif":
        with Image.open(file) as film:
            assert film.n_frames == 5 + 5
    elif ending == "png":
        with Image.open(file) as strip:
            assert strip.width > strip.height
    else:
        [saved] = read_episodes([file])
        assert np.allclose(saved.input.as_float(1), predicted, atol=1e-6)


def test_errors_beyond_the_last_frame_are_none(balls_folder: Path) -> None:
    loaded = load(balls_folder / "run")
    [[answer]] = loaded.generate([f"{balls_folder / 'videos.npz'}:1"], ahead=True, horizon=3)
    assert answer.text == "3 steps ahead"
    assert answer.extra["errors"] == [None] * 3
    assert np.array(answer.extra["observations"]).shape == (3, 30, 30)


def refusal(balls_folder: Path, name: str, **options: Any) -> str:
    with pytest.raises(ValueError) as error:  # noqa: PT011
        list(load(balls_folder / "run").generate([name], **options))
    return str(error.value)


def test_misfits_are_named_by_file_and_episode(balls_folder: Path, springs: list[Episode], tmp_path: Path) -> None:
    changed = tmp_path / "springs.jsonl"
    write_episodes(changed, springs[:2])
    np.savez(tmp_path / "large.npz", videos=np.zeros((2, 3, 60, 60), np.uint8))
    message = refusal(balls_folder, str(tmp_path / "large.npz"))
    assert "large.npz:1: observations of shape [60, 60], but the training data have [30, 30]" in message
    assert "springs.jsonl:1: observations of shape [2]" in refusal(balls_folder, str(changed))
    assert "videos.npz has no episode 9" in refusal(balls_folder, f"{balls_folder / 'videos.npz'}:9")
    assert "no such file" in refusal(balls_folder, "nowhere.npz")
    assert "did you mean .gif?" in refusal(balls_folder, str(balls_folder / "videos.npz"), save="a.gift")


def test_unseen_actions_are_refused(springs: list[Episode]) -> None:
    task, _ = fit_model(springs)
    with pytest.raises(ValueError, match="spring:1: action 2, but the training data have 0 to 1"):
        task.encode(as_rows([springs[0]._replace(actions=springs[0].actions + 1)]), 4)
    with pytest.raises(ValueError, match="spring:1: the episode has no actions, but the training data have actions"):
        task.encode(as_rows([springs[0]._replace(actions=None)]), 4)


def test_vectors_cannot_be_saved_as_frames(springs: list[Episode], tmp_path: Path) -> None:
    task, model = fit_model(springs)
    write_episodes(tmp_path / "a.npz", springs[:2])
    options = task.decode_options(save=str(tmp_path / "a.gif"))
    with pytest.raises(ValueError, match="only frames can be drawn"):
        list(task.predict(model, [str(tmp_path / "a.npz")], options))
    with pytest.raises(ValueError, match="leave out --ahead"):
        list(task.predict(model, [str(tmp_path / "a.npz")], task.decode_options(ahead=True)))


@pytest.mark.parametrize("ending", ["npz", "jsonl"])
def test_a_rollout_ends_with_the_last_action(springs: list[Episode], tmp_path: Path, ending: str) -> None:
    """An episode shorter than the horizon; the saved file can be read."""
    task, model = fit_model(springs)
    write_episodes(tmp_path / "a.npz", [row for row in springs if row.steps < 20][:1])
    [read], saved = read_episodes([tmp_path / "a.npz"]), tmp_path / f"b.{ending}"
    [[answer]] = task.predict(model, [str(tmp_path / "a.npz")], task.decode_options(horizon=25, save=str(saved)))
    assert isinstance(read, Row)
    [reread] = read_episodes([saved])
    assert isinstance(reread, Row)
    row = read.input
    assert reread.input.actions is not None
    assert reread.input.actions.tolist() == row.actions.tolist()
    assert len(answer.extra["observations"]) == row.steps
    assert answer.extra["errors"][row.steps :] == [None] * (25 - row.steps)


def test_constant_rewards_have_std_1(springs: list[Episode]) -> None:
    alike = [row._replace(rewards=np.full(row.steps, 0.1, np.float32)) for row in springs]
    assert fit_task(alike).preprocessor.reward[1] == 1.0


def test_an_episode_without_ended_is_refused_by_line(tmp_path: Path) -> None:
    rows = [{"observations": [[1], [2]], "actions": [0], "rewards": [1], "terminated": True}] * 3
    rows[1] = {name: value for name, value in rows[1].items() if name != "terminated"}
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    with pytest.raises(ValueError, match=r"1 missing field \(first .*a\.jsonl:2: no field 'terminated'"):
        list(train("predict", data=tmp_path / "a.jsonl", output_dir=tmp_path / "run", steps=1))


def test_a_rollout_of_a_video_needs_no_actions() -> None:
    rows = [*map(observed, bouncing_balls.balls(1, 6).frames)]
    task, model = fit_model(rows)
    predicted = roll_out(model, task.norm, torch.from_numpy(rows[0].as_float(0, 2))[None], None, 3)
    assert predicted.shape == (1, 3, 30, 30)


def test_a_run_from_another_keeps_its_scales(balls_folder: Path, tmp_path: Path) -> None:
    begun = load(balls_folder / "run")
    where = {"data": str(balls_folder / "videos.npz"), "valid": str(balls_folder / "videos.npz"), "device": "cpu"}
    names = {"from_": str(balls_folder / "run"), "output_dir": str(tmp_path / "run")}
    job = FileJob.open(make_settings("predict", **names, steps=1, **where)).plan()
    for name, weight in begun.model.state_dict().items():
        assert torch.equal(weight, job.progress.model.state_dict()[name]), name
    assert job.task == begun.task
    assert [step.number for step in job.train()] == [1]


def test_look_refuses_a_world_model(balls_folder: Path, capsys: Any) -> None:
    assert main(["look", str(balls_folder / "run"), "a text"]) == 2
    assert "look shows tokens and pictures, not episodes" in capsys.readouterr().err


def test_bench_measures_a_world_model(balls_folder: Path, capsys: Any) -> None:
    assert main(["bench", str(balls_folder / "run"), "--min-time", "0", "--no-peers", "--threads", "1"]) == 0
    assert "regard" in capsys.readouterr().out


def test_check_examines_a_world_model(balls_folder: Path, capsys: Any) -> None:
    assert main(["check", str(balls_folder / "run"), "--no-peers"]) == 0
    out = capsys.readouterr().out
    assert "0 failed" in out
    assert all(name in out for name in ("causality", "cache", "batch independence", "gradient accumulation"))
