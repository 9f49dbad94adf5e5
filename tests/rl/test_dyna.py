"""Learning to act: a short run beats chance, a stopped one goes on as if nothing had been, wrong options are told."""

import json
import shlex
import shutil
import signal
import sys
from itertools import islice

import numpy as np
import pytest

import regard
from regard.cli import act, main
from regard.data.episodes import Episode, read_episodes
from regard.rl import dyna, session
from regard.rl.environment import Environment, by_chance, returns
from regard.rl.policy import Policy, greedy
from regard.training.run import Run

TINY = {"dim": 16, "heads": 2, "hidden": 24, "layers": 1, "threads": 1}
FLAGS = [word for name, value in TINY.items() for word in (f"--{name}", str(value))]


def shortened(monkeypatch, **counts):
    """Rounds that take less time."""
    for name, value in counts.items():
        for place in (session, dyna):
            if hasattr(place, name):
                monkeypatch.setattr(place, name, value)


BRIEF = {"FIRST": 100, "ROUND": 50, "FIT": 12, "REFIT": 6, "UPDATES": 2, "DREAMS": 16, "HORIZON": 5, "FORETOLD": 2}


@pytest.fixture
def brief(monkeypatch):
    shortened(monkeypatch, **BRIEF, LONGEST=20)


@pytest.fixture(scope="module")
def brief_run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("acting") / "brief"
    with pytest.MonkeyPatch.context() as patched:
        shortened(patched, **BRIEF, LONGEST=20)
        command = ["train", "predict", "--env", "CartPole-v1", "--real-steps", "200", "--out", str(folder), *FLAGS]
        assert main(command) == 0
    return folder


def test_a_short_run_beats_chance(tmp_path, monkeypatch):
    """Six hundred real steps; what chance makes of an episode is about 22."""
    shortened(monkeypatch, FIT=200, REFIT=60, UPDATES=10, DREAMS=48, FORETOLD=2)
    folder, environment = tmp_path / "run", Environment("CartPole-v1")
    small = {"dim": 48, "layers": 1, "heads": 2, "hidden": 96, "threads": 1}
    steps = list(regard.train("predict", env="CartPole-v1", real_steps=600, seed=1, out=folder, **small))
    rounds = [step.scores for step in steps if step.scores]
    assert [told["real_steps"] for told in rounds] == [300.0, 500.0, 600.0]
    assert "imagined" not in rounds[0]
    assert all(np.isfinite(told["imagined"]) for told in rounds[1:])
    policy, told = Policy.load(folder / "policy")
    assert told == {"env": "CartPole-v1", "hide": []}
    learnt = np.mean(returns(environment, greedy(policy), 10, 123))
    chance = np.mean(returns(environment, by_chance(environment, 5), 10, 123))
    assert learnt > 2 * chance, f"{learnt} against {chance}"
    lived = [one for one in read_episodes([folder / "episodes.npz"]) if isinstance(one, Episode)]
    assert sum(one.steps for one in lived) == 600


def test_the_folder_is_a_model_like_any_other(brief_run, capsys):
    found = {file.name for file in brief_run.iterdir()}
    wanted = (
        "config.json model.safetensors task.json train.json metrics.jsonl README.md policy episodes.npz returns.png"
    )
    assert {*wanted.split(), "LATEST"} <= found
    loaded = regard.load(brief_run)
    scores = loaded.task.score(loaded.model, loaded.rows([str(brief_run / "episodes.npz")]))
    assert np.isfinite(scores["error"])
    lines = [json.loads(line) for line in (brief_run / "metrics.jsonl").read_text().splitlines()]
    assert [line["round"] for line in lines if "round" in line] == [1, 2, 3]
    capsys.readouterr()
    assert main(["run", str(brief_run), str(brief_run / "episodes.npz"), "--horizon", "3"]) == 0
    assert "3 steps ahead" in capsys.readouterr().out


def test_play_tells_each_return_and_their_mean(brief_run, capsys, tmp_path):
    record, gif = tmp_path / "kept.npz", tmp_path / "cart.gif"
    capsys.readouterr()
    asked = ["run", str(brief_run), "--play", "--episodes", "3", "--record", str(record), "--gif", str(gif)]
    assert main(asked) == 0
    said = capsys.readouterr().out.splitlines()
    got = [float(line.split(": ")[1].split()[0]) for line in said[:3]]
    assert said[3].startswith(f"mean {np.mean(got):.1f}, worst {min(got):g}, best {max(got):g} of 3 episodes")
    kept = [one for one in read_episodes([record]) if isinstance(one, Episode)]
    assert [one.rewards.sum() for one in kept] == got
    assert gif.read_bytes().startswith(b"GIF8")
    policy, _ = Policy.load(brief_run / "policy")
    assert got == returns(Environment("CartPole-v1"), greedy(policy), 3, 1)


def test_a_run_that_was_stopped_goes_on_as_if_nothing_had_been(brief, tmp_path):
    how = {"env": "CartPole-v1", "hide": (1, 3), "real_steps": 230, "seed": 4, **TINY}
    whole, part = tmp_path / "whole", tmp_path / "part"
    assert len(list(regard.train("predict", out=whole, **how))) == 12 + 3 * 6
    steps = regard.train("predict", out=part, **how)
    list(islice(steps, 12 + 6 + 3))  # in the middle of the third round
    steps.close()
    assert not (part / "README.md").exists()
    assert len(list(regard.train("predict", out=part, **how))) == 2 * 6  # the same command again
    for name in ("model.safetensors", "task.json", "policy/model.safetensors", "policy/config.json", "episodes.npz"):
        assert (whole / name).read_bytes() == (part / name).read_bytes(), name
    told = [[json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()] for run in (whole, part)]
    timed = ("seconds", "round_seconds")
    assert [{k: v for k, v in line.items() if k not in timed} for line in told[0]] == [
        {k: v for k, v in line.items() if k not in timed} for line in told[1]
    ]


@pytest.mark.parametrize("crash", ["write_task", "save"])
def test_a_crash_between_two_files_leaves_no_mixture(crash, brief, tmp_path, monkeypatch, capsys):
    """Of model, scales, policy and episodes some are of the last round and some of the one before: whoever goes on has
    all of the last, and the model is not used meanwhile."""
    how = {"env": "CartPole-v1", "real_steps": 150, "seed": 3, **TINY}
    whole, part = tmp_path / "whole", tmp_path / "part"
    list(regard.train("predict", out=whole, **how))
    steps, owner = regard.train("predict", out=part, **how), Policy if crash == "save" else session
    list(islice(steps, 12 + 6))  # all rounds but the last

    def fall(*_, **__):
        raise OSError("the power is gone")

    right = getattr(owner, crash)
    monkeypatch.setattr(owner, crash, fall)
    with pytest.raises(OSError, match="the power is gone"):
        list(steps)
    monkeypatch.setattr(owner, crash, right)
    if crash == "write_task":
        assert main(["run", str(part), str(part / "episodes.npz")]) == 2
        assert "has no task.json" in capsys.readouterr().err
    assert list(regard.train("predict", out=part, **how)) == [], "the last round is saved"
    for name in ("model.safetensors", "task.json", "policy/model.safetensors", "policy/config.json", "episodes.npz"):
        assert (whole / name).read_bytes() == (part / name).read_bytes(), name


def test_what_another_gymnasium_would_change_is_told(brief, tmp_path, monkeypatch):
    how = {"env": "CartPole-v1", "real_steps": 150, "out": tmp_path / "run", **TINY}
    list(islice(regard.train("predict", **how), 12))
    monkeypatch.setattr(session, "edition", lambda: "99.0")
    with pytest.raises(ValueError, match=r"gymnasium was .*, and is 99\.0"):
        regard.train("predict", **how)


def test_nothing_of_somebody_who_acted_is_left_to_another_run(brief_run, tmp_path):
    folder = shutil.copytree(brief_run, tmp_path / "run")
    Run(folder).clear()
    assert not {"policy", "episodes.npz", "returns.png"} & {file.name for file in folder.iterdir()}


def test_seeds_make_other_runs(brief, tmp_path):
    made = []
    for seed in (1, 1, 2):
        folder = tmp_path / str(len(made))
        list(regard.train("predict", out=folder, env="CartPole-v1", real_steps=150, seed=seed, **TINY))
        made.append((folder / "policy" / "model.safetensors").read_bytes())
    assert made[0] == made[1] != made[2]


@pytest.mark.parametrize(("sent", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_keeps_the_last_round_and_tells_how_to_go_on(sent, code, brief, tmp_path, capsys, monkeypatch):
    """In the middle of the second round."""
    folder, whole = tmp_path / "run", act.live

    def live(one):
        for number, step in enumerate(whole(one), 1):
            if number == BRIEF["FIT"] + 3:
                signal.raise_signal(sent)
            yield step

    monkeypatch.setattr(act, "live", live)
    command = ["train", "predict", "--env", "CartPole-v1", "--real-steps", "200", "--out", str(folder), *FLAGS]
    assert main(command) == code
    said = capsys.readouterr().out.splitlines()
    assert "saved as it was after round 1" in said[-2]
    assert shlex.split(said[-1]) == ["regard", "train", "predict", "--resume", "--out", str(folder)]
    assert (folder / "policy" / "config.json").exists()


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (["--env", "CartPol-v1"], "did you mean CartPole-v1"),
        (["--env", "Pendulum-v1"], "one of a few actions"),
        (["--env", "CartPole-v1", "--hide", "9"], "hide must name numbers"),
        (["--env", "CartPole-v1", "--data", "x.npz"], "--data does not go with --env"),
        (["--env", "CartPole-v1", "--steps", "5"], "--steps does not go with --env: --real-steps says how long"),
        (["--env", "CartPole-v1", "--minutes", "1"], "--minutes does not go with --env: --real-steps says how long"),
        (["--env", "CartPole-v1", "--epochs", "2"], "--epochs does not go with --env"),
        (["--env", "CartPole-v1", "--checks", "3"], "--checks does not go with --env"),
        (["--env", "CartPole-v1", "--check-examples", "3"], "--check-examples does not go with --env"),
        (
            ["--env", "CartPole-v1", "--held-out", "0.5"],
            "--held-out does not go with --env: it is for what learns from files",
        ),
        (["--env", "CartPole-v1", "--skip-bad"], "--skip-bad does not go with --env"),
        (["--env", "CartPole-v1", "--encoding", "cp1252"], "--encoding does not go with --env"),
        (["--env", "CartPole-v1", "--patch", "2"], "--patch does not go with --env"),
        (["--env", "CartPole-v1", "--real-steps", "5"], "real-steps must be at least 100"),
        (["--env", "CartPole-v1", "--memory", "0"], "memory must be 1 to 64"),
        (["--hide", "1"], "hide must be given together with --env"),
        (["--real-steps", "500"], "real-steps must be given together with --env"),
        (["--memory", "2"], "memory must be given together with --env"),
    ],
)
def test_what_makes_no_sense_is_refused_and_leaves_nothing(given, told, tmp_path, capsys):
    folder = tmp_path / "run"
    assert main(["train", "predict", "--out", str(folder), *given]) == 2
    assert told in capsys.readouterr().err
    assert not folder.exists()


def test_hidden_numbers_must_be_numbers(tmp_path):
    with pytest.raises(ValueError, match="hide must be several of: a whole number"):
        regard.train("predict", env="CartPole-v1", hide="1", out=tmp_path / "run")


def test_without_gymnasium_the_extra_is_named(monkeypatch, tmp_path, capsys):
    monkeypatch.setitem(sys.modules, "gymnasium", None)
    assert main(["train", "predict", "--env", "CartPole-v1", "--out", str(tmp_path / "run")]) == 2
    assert 'pip install "regard[world]"' in capsys.readouterr().err


def test_who_never_learnt_to_act_cannot_play(brief_run, tmp_path, capsys):
    folder = shutil.copytree(brief_run, tmp_path / "run")
    (folder / "policy" / "config.json").unlink()
    assert main(["run", str(folder), "--play"]) == 2
    assert "policy holds no policy: train one with regard train predict --env" in capsys.readouterr().err


def test_who_is_stopped_while_playing_keeps_what_was_played(brief_run, tmp_path, capsys, monkeypatch):
    file, right = tmp_path / "kept.npz", Environment.reset
    resets = []

    def reset(self, seed):
        resets.append(seed)
        if len(resets) == 2:
            signal.raise_signal(signal.SIGINT)
        return right(self, seed)

    monkeypatch.setattr(Environment, "reset", reset)
    assert main(["run", str(brief_run), "--play", "--record", str(file)]) == 130
    assert "of 2 episodes" in capsys.readouterr().out
    assert len(list(read_episodes([file]))) == 2


def test_where_nothing_can_be_kept_nothing_is_played(brief_run, tmp_path, capsys):
    capsys.readouterr()
    for option, file in (("--record", "a.npz"), ("--gif", "a.gif")):
        assert main(["run", str(brief_run), "--play", option, str(tmp_path / "nowhere" / file)]) == 2
        said = capsys.readouterr()
        assert "there is no folder" in said.err
        assert not said.out


def test_what_would_change_nothing_is_refused(brief_run, capsys):
    for given, told in (
        (["--record", "mine.npz"], "--record goes with --play"),
        (["--play", "--horizon", "3"], "--horizon does not go with --play"),
        (["--play", str(brief_run / "episodes.npz")], "a text does not go with --play"),
    ):
        assert main(["run", str(brief_run), *given]) == 2
        assert told in capsys.readouterr().err


def test_a_run_that_is_done_stays_as_it_is(brief, brief_run, capsys):
    before = {file: file.read_bytes() for file in brief_run.rglob("*.safetensors")}
    assert main(["train", "predict", "--resume", "--out", str(brief_run)]) == 0
    assert {file: file.read_bytes() for file in brief_run.rglob("*.safetensors")} == before
    assert "is finished" in capsys.readouterr().out
