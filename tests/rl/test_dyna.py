"""Dyna: a short run beats a random policy, an interrupted one resumes bit-exactly, wrong options are refused."""

import json
import shlex
import shutil
import signal
import sys
from itertools import islice

import numpy as np
import pytest

import regard
from regard.cli import main
from regard.data.rows import Row
from regard.modalities.trajectory.episode_files import read_episodes
from regard.rl import dyna_job
from regard.rl.dyna_job import DynaJob
from regard.rl.dynamics_model import ReplayBuffer
from regard.rl.environment import Environment, episode_returns, random_policy
from regard.rl.policy import Policy, greedy_policy
from regard.tasks.predict import Forecast
from regard.training.run_folder import RunFolder

TINY = {"dim": 16, "heads": 2, "hidden": 24, "layers": 1, "threads": 1}
FLAGS = [word for name, value in TINY.items() for word in (f"--{name}", str(value))]


def shorten(monkeypatch, **counts):
    """Make rounds faster."""
    for name, value in counts.items():
        monkeypatch.setattr(dyna_job, name, value)


BRIEF = {
    "FIRST_STEPS": 100, "ROUND_STEPS": 50, "FIRST_FIT_STEPS": 12, "FIT_STEPS": 6, "POLICY_UPDATES": 2,
    "IMAGINED_ROWS": 16, "HORIZON": 5, "EVAL_ROWS": 2, "MAX_EVAL_STEPS": 20,
}  # fmt: skip


@pytest.fixture
def brief(monkeypatch):
    shorten(monkeypatch, **BRIEF)


@pytest.fixture(scope="module")
def brief_run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("rl") / "brief"
    with pytest.MonkeyPatch.context() as monkeypatch:
        shorten(monkeypatch, **BRIEF)
        command = [
            "train",
            "predict",
            "--env",
            "CartPole-v1",
            "--real-steps",
            "200",
            "--output-dir",
            str(folder),
            *FLAGS,
        ]
        assert main(command) == 0
    return folder


def test_a_short_run_beats_a_random_policy(tmp_path, monkeypatch):
    """600 real steps; a random policy has a return of about 22."""
    shorten(monkeypatch, FIRST_FIT_STEPS=200, FIT_STEPS=60, POLICY_UPDATES=10, IMAGINED_ROWS=48, EVAL_ROWS=2)
    folder, environment = tmp_path / "run", Environment("CartPole-v1")
    small = {"dim": 48, "layers": 1, "heads": 2, "hidden": 96, "threads": 1}
    steps = list(regard.train("predict", env="CartPole-v1", real_steps=600, seed=1, output_dir=folder, **small))
    rounds = [step.scores for step in steps if step.scores]
    assert [scores["real_steps"] for scores in rounds] == [300.0, 500.0, 600.0]
    assert "predicted_return" not in rounds[0]
    assert all(np.isfinite(scores["predicted_return"]) for scores in rounds[1:])
    policy, metadata = Policy.load(folder / "policy")
    assert metadata == {"env": "CartPole-v1", "hide": []}
    trained_return = np.mean(episode_returns(environment, greedy_policy(policy), 10, 123))
    random_return = np.mean(episode_returns(environment, random_policy(environment, 5), 10, 123))
    assert trained_return > 2 * random_return, f"{trained_return} against {random_return}"
    rows = [row for row in read_episodes([folder / "episodes.npz"]) if isinstance(row, Row)]
    assert sum(row.input.steps for row in rows) == 600


def test_the_training_steps_use_burn_in(brief, tmp_path, monkeypatch):
    """Every batch that the model is fitted to masks the first step of the windows that do not start an episode."""
    windows, masks, take, loss = [], [], ReplayBuffer.take, Forecast.loss

    def record_windows(buffer, starts):
        windows.append(buffer.locate(starts)[1] == 0)
        return take(buffer, starts)

    def record_mask(task, model, batch):
        masks.append(batch.real[:, 0].tolist())
        return loss(task, model, batch)

    monkeypatch.setattr(ReplayBuffer, "take", record_windows)
    monkeypatch.setattr(Forecast, "loss", record_mask)
    steps = [*regard.train("predict", env="CartPole-v1", real_steps=100, output_dir=tmp_path / "run", **TINY)]
    assert len(steps) == len(masks) == BRIEF["FIRST_FIT_STEPS"] + BRIEF["FIT_STEPS"]
    assert masks == [initial.tolist() for initial in windows]
    assert all(0 < sum(mask) < len(mask) for mask in masks)


def test_the_folder_is_a_model_like_any_other(brief_run, capsys):
    names = {file.name for file in brief_run.iterdir()}
    expected = (
        "config.json model.safetensors task.json train.json metrics.jsonl README.md policy episodes.npz returns.png"
    )
    assert {*expected.split(), "LATEST"} <= names
    loaded = regard.load(brief_run)
    scores = loaded.task.score(loaded.model, loaded.rows([str(brief_run / "episodes.npz")]))
    assert np.isfinite(scores["error"])
    lines = [json.loads(line) for line in (brief_run / "metrics.jsonl").read_text().splitlines()]
    assert [line["round"] for line in lines if "round" in line] == [1, 2, 3]
    capsys.readouterr()
    assert main(["run", str(brief_run), str(brief_run / "episodes.npz"), "--horizon", "3"]) == 0
    assert "3 steps ahead" in capsys.readouterr().out


def test_play_prints_each_return_and_their_mean(brief_run, capsys, tmp_path):
    record, gif = tmp_path / "kept.npz", tmp_path / "cart.gif"
    capsys.readouterr()
    command = ["run", str(brief_run), "--play", "--episodes", "3", "--record", str(record), "--gif", str(gif)]
    assert main(command) == 0
    lines = capsys.readouterr().out.splitlines()
    returns = [float(line.split(": ")[1].split()[0]) for line in lines[:3]]
    assert lines[3].startswith(
        f"mean {np.mean(returns):.1f}, worst {min(returns):g}, best {max(returns):g} of 3 episodes"
    )
    rows = [row for row in read_episodes([record]) if isinstance(row, Row)]
    assert [row.input.rewards.sum() for row in rows] == returns
    assert gif.read_bytes().startswith(b"GIF8")
    policy, _ = Policy.load(brief_run / "policy")
    assert returns == episode_returns(Environment("CartPole-v1"), greedy_policy(policy), 3, 1)


def test_an_interrupted_run_resumes_bit_exactly(brief, tmp_path):
    options = {"env": "CartPole-v1", "hide": (1, 3), "real_steps": 230, "seed": 4, **TINY}
    uninterrupted, interrupted = tmp_path / "uninterrupted", tmp_path / "interrupted"
    assert len(list(regard.train("predict", output_dir=uninterrupted, **options))) == 12 + 3 * 6
    steps = regard.train("predict", output_dir=interrupted, **options)
    list(islice(steps, 12 + 6 + 3))  # in the middle of the third round
    steps.close()
    assert not (interrupted / "README.md").exists()
    assert len(list(regard.train("predict", output_dir=interrupted, **options))) == 2 * 6  # the same command again
    for name in ("model.safetensors", "task.json", "policy/model.safetensors", "policy/config.json", "episodes.npz"):
        assert (uninterrupted / name).read_bytes() == (interrupted / name).read_bytes(), name
    metrics = [
        [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
        for run in (uninterrupted, interrupted)
    ]
    timed = ("seconds", "round_seconds")
    assert [{k: v for k, v in line.items() if k not in timed} for line in metrics[0]] == [
        {k: v for k, v in line.items() if k not in timed} for line in metrics[1]
    ]


@pytest.mark.parametrize("crash", ["write_task", "save"])
def test_a_crash_between_two_files_mixes_no_rounds(crash, brief, tmp_path, monkeypatch, capsys):
    """After such a crash the root holds files of two rounds: resuming restores the last one, and until then the model
    is refused."""
    options = {"env": "CartPole-v1", "real_steps": 150, "seed": 3, **TINY}
    uninterrupted, interrupted = tmp_path / "uninterrupted", tmp_path / "interrupted"
    list(regard.train("predict", output_dir=uninterrupted, **options))
    steps, owner = regard.train("predict", output_dir=interrupted, **options), Policy if crash == "save" else dyna_job
    list(islice(steps, 12 + 6))  # all rounds but the last

    def crash_now(*_, **__):
        raise OSError("the power is gone")

    original = getattr(owner, crash)
    monkeypatch.setattr(owner, crash, crash_now)
    with pytest.raises(OSError, match="the power is gone"):
        list(steps)
    monkeypatch.setattr(owner, crash, original)
    if crash == "write_task":
        assert main(["run", str(interrupted), str(interrupted / "episodes.npz")]) == 2
        assert "has no task.json" in capsys.readouterr().err
    assert list(regard.train("predict", output_dir=interrupted, **options)) == [], "the last round is saved"
    for name in ("model.safetensors", "task.json", "policy/model.safetensors", "policy/config.json", "episodes.npz"):
        assert (uninterrupted / name).read_bytes() == (interrupted / name).read_bytes(), name


def test_another_version_of_gymnasium_is_refused(brief, tmp_path, monkeypatch):
    options = {"env": "CartPole-v1", "real_steps": 150, "output_dir": tmp_path / "run", **TINY}
    list(islice(regard.train("predict", **options), 12))
    monkeypatch.setattr(dyna_job, "gymnasium_version", lambda: "99.0")
    with pytest.raises(ValueError, match=r"gymnasium was .*, and is 99\.0"):
        regard.train("predict", **options)


def test_clearing_a_run_removes_policy_and_episodes(brief_run, tmp_path):
    folder = shutil.copytree(brief_run, tmp_path / "run")
    RunFolder(folder).clear()
    assert not {"policy", "episodes.npz", "returns.png"} & {file.name for file in folder.iterdir()}


def test_the_seed_determines_the_run(brief, tmp_path):
    weights = []
    for seed in (1, 1, 2):
        folder = tmp_path / str(len(weights))
        list(regard.train("predict", output_dir=folder, env="CartPole-v1", real_steps=150, seed=seed, **TINY))
        weights.append((folder / "policy" / "model.safetensors").read_bytes())
    assert weights[0] == weights[1] != weights[2]


@pytest.mark.parametrize(("signum", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_keeps_the_last_round_and_prints_how_to_resume(signum, code, brief, tmp_path, capsys, monkeypatch):
    """In the middle of the second round."""
    folder, original = tmp_path / "run", DynaJob.train

    def train(job):
        for number, step in enumerate(original(job), 1):
            if number == BRIEF["FIRST_FIT_STEPS"] + 3:
                signal.raise_signal(signum)
            yield step

    monkeypatch.setattr(DynaJob, "train", train)
    command = ["train", "predict", "--env", "CartPole-v1", "--real-steps", "200", "--output-dir", str(folder), *FLAGS]
    assert main(command) == code
    lines = capsys.readouterr().out.splitlines()
    assert "saved as it was after round 1" in lines[-2]
    assert shlex.split(lines[-1]) == ["regard", "train", "predict", "--resume", "--output-dir", str(folder)]
    assert (folder / "policy" / "config.json").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--env", "CartPol-v1"], "did you mean CartPole-v1"),
        (["--env", "Pendulum-v1"], "Pendulum-v1 has the action space"),
        (["--env", "CartPole-v1", "--hide", "9"], "hide must name indices"),
        (["--env", "CartPole-v1", "--data", "x.npz"], "--data does not go with --env"),
        (["--env", "CartPole-v1", "--steps", "5"], "--steps does not go with --env: --real-steps sets the length"),
        (["--env", "CartPole-v1", "--minutes", "1"], "--minutes does not go with --env: --real-steps sets the length"),
        (["--env", "CartPole-v1", "--epochs", "2"], "--epochs does not go with --env"),
        (["--env", "CartPole-v1", "--evals", "3"], "--evals does not go with --env"),
        (["--env", "CartPole-v1", "--eval-examples", "3"], "--eval-examples does not go with --env"),
        (
            ["--env", "CartPole-v1", "--valid-share", "0.5"],
            "--valid-share does not go with --env: it is for training from files",
        ),
        (["--env", "CartPole-v1", "--skip-bad"], "--skip-bad does not go with --env"),
        (["--env", "CartPole-v1", "--encoding", "cp1252"], "--encoding does not go with --env"),
        (["--env", "CartPole-v1", "--patch-size", "2"], "--patch-size does not go with --env"),
        (["--env", "CartPole-v1", "--real-steps", "5"], "real-steps must be at least 100"),
        (["--env", "CartPole-v1", "--history", "0"], "history must be 1 to 64"),
        (["--hide", "1"], "hide must be left out without --env"),
        (["--real-steps", "500"], "real-steps must be left out without --env"),
        (["--history", "2"], "history must be left out without --env"),
    ],
)
def test_wrong_options_are_refused_and_leave_no_folder(arguments, message, tmp_path, capsys):
    folder = tmp_path / "run"
    assert main(["train", "predict", "--output-dir", str(folder), *arguments]) == 2
    assert message in capsys.readouterr().err
    assert not folder.exists()


def test_hide_takes_integers(tmp_path):
    with pytest.raises(ValueError, match="hide must be one whole number or several"):
        regard.train("predict", env="CartPole-v1", hide="1", output_dir=tmp_path / "run")


def test_without_gymnasium_the_message_names_the_extra(monkeypatch, tmp_path, capsys):
    monkeypatch.setitem(sys.modules, "gymnasium", None)
    assert main(["train", "predict", "--env", "CartPole-v1", "--output-dir", str(tmp_path / "run")]) == 2
    assert 'pip install "regard[world]"' in capsys.readouterr().err


def test_a_run_without_a_policy_cannot_play(brief_run, tmp_path, capsys):
    folder = shutil.copytree(brief_run, tmp_path / "run")
    (folder / "policy" / "config.json").unlink()
    assert main(["run", str(folder), "--play"]) == 2
    assert "policy holds no policy: train one with regard train predict --env" in capsys.readouterr().err


def test_an_interrupted_play_keeps_its_episodes(brief_run, tmp_path, capsys, monkeypatch):
    file, original = tmp_path / "kept.npz", Environment.reset
    resets = []

    def reset(self, seed):
        resets.append(seed)
        if len(resets) == 2:
            signal.raise_signal(signal.SIGINT)
        return original(self, seed)

    monkeypatch.setattr(Environment, "reset", reset)
    assert main(["run", str(brief_run), "--play", "--record", str(file)]) == 130
    assert "of 2 episodes" in capsys.readouterr().out
    assert len(list(read_episodes([file]))) == 2


def test_a_missing_output_folder_is_refused_before_playing(brief_run, tmp_path, capsys):
    capsys.readouterr()
    for option, file in (("--record", "a.npz"), ("--gif", "a.gif")):
        assert main(["run", str(brief_run), "--play", option, str(tmp_path / "nowhere" / file)]) == 2
        output = capsys.readouterr()
        assert "does not exist: create it" in output.err
        assert not output.out


def test_options_without_effect_are_refused(brief_run, capsys):
    for arguments, message in (
        (["--record", "mine.npz"], "--record goes with --play"),
        (["--play", "--horizon", "3"], "--horizon does not go with --play"),
        (["--play", str(brief_run / "episodes.npz")], "a text does not go with --play"),
    ):
        assert main(["run", str(brief_run), *arguments]) == 2
        assert message in capsys.readouterr().err


def test_resuming_a_finished_run_changes_nothing(brief, brief_run, capsys):
    before = {file: file.read_bytes() for file in brief_run.rglob("*.safetensors")}
    assert main(["train", "predict", "--resume", "--output-dir", str(brief_run)]) == 0
    assert {file: file.read_bytes() for file in brief_run.rglob("*.safetensors")} == before
    assert "a finished run" in capsys.readouterr().out
