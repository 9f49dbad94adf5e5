"""What learnt from others' episodes acts: better than chance after seconds, as wished for, by the command, recorded."""

import signal

import numpy as np
import pytest

from regard.cli import main
from regard.data.episodes import Episode, read_episodes
from regard.load import load
from regard.rl.cartpole import Track
from regard.rl.environment import by_chance, returns
from regard.rl.policy import Policy
from regard.rl.sequence_policy import Decider, together
from regard.tasks.decide import Wishes
from regard.training.train import train

SMALL = {"context": 4, "dim": 32, "layers": 2, "heads": 2, "hidden": 64, "device": "cpu", "checks": 2}


@pytest.fixture(scope="module")
def learnt(tmp_path_factory):
    """By returns, from the cart that ships: some seconds."""
    folder = tmp_path_factory.mktemp("decide") / "run"
    for _ in train("decide", returns=True, steps=250, out=folder, seed=1, **SMALL):
        pass
    return folder


def played(folder, wish, count=20):
    loaded = load(folder, "cpu")
    player = Decider(loaded.model, loaded.task, Wishes(wish=wish))
    return float(np.mean([one.rewards.sum() for one in together([Track() for _ in range(count)], player, seed=5)]))


def test_it_does_better_than_chance(learnt):
    chance = np.mean(returns(Track(), by_chance(Track(), 1), 20, 5))
    assert played(learnt, 500) > 4 * chance


def test_who_wishes_for_more_gets_more(learnt):
    assert played(learnt, 40) < 0.5 * played(learnt, 500)


def test_the_command_plays_and_records(learnt, tmp_path, capsys):
    file = tmp_path / "mine.jsonl"
    assert main(["run", str(learnt), "--play", "--episodes", "3", "--wish", "40", "--record", str(file)]) == 0
    out = capsys.readouterr().out
    assert out.count("episode ") == 3
    assert "of 3 episodes" in out
    found = list(read_episodes([file]))
    assert len(found) == 3
    assert all(isinstance(one, Episode) and one.observations.shape[1:] == (4,) for one in found)
    assert main(["run", str(learnt), str(file)]) == 0
    assert len(capsys.readouterr().out.split()) == 3, "one action for each"
    assert main(["train", "decide", "--data", str(file), "--out", str(tmp_path / "run"), "--steps", "1"]) == 0


def test_it_plays_in_gymnasium_too(learnt, capsys):
    pytest.importorskip("gymnasium")
    assert main(["run", str(learnt), "--play", "--episodes", "2", "--env", "CartPole-v1", "--wish", "20"]) == 0
    assert "of 2 episodes" in capsys.readouterr().out
    assert main(["run", str(learnt), "--play", "--env", "Acrobot-v1"]) == 2
    assert "Acrobot-v1 shows 6 numbers and knows 3 actions, but this model learnt from" in capsys.readouterr().err
    assert main(["run", str(learnt), "--play", "--env", "CartPol-v1"]) == 2
    assert "CartPole-v1" in capsys.readouterr().err


def test_what_makes_no_sense_is_refused(learnt, capsys):
    assert main(["run", str(learnt), "--play", "--temperature", "-1"]) == 2
    assert "temperature" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (["--record", "mine.npz"], "--record goes with --play"),
        (["--gif", "mine.gif"], "--gif goes with --play"),
        (["--episodes", "3"], "--episodes goes with --play"),
        (["--env", "CartPole-v1"], "--env goes with --play"),
        (["--play", "some.npz"], "a text does not go with --play"),
        (["--play", "--json"], "--json does not go with --play"),
        (["--play", "--n-best", "2"], "--n-best does not go with --play"),
    ],
)
def test_what_would_change_nothing_is_refused(learnt, given, told, capsys):
    assert main(["run", str(learnt), *given]) == 2
    assert told in capsys.readouterr().err


def test_who_is_interrupted_keeps_the_policy_of_the_round(tmp_path, capsys, monkeypatch):
    folder = tmp_path / "policy"
    right = Policy.save

    def save(*args, **facts):
        right(*args, **facts)
        signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(Policy, "save", save)
    assert main(["imitate", "--steps", "1000", "--round", "50", "--hidden", "8", "--out", str(folder)]) == 130
    out = capsys.readouterr().out
    assert "round 1 " in out
    assert "round 2 " not in out
    assert f"the policy is in {folder}" in out
    assert Policy.load(folder)[1] == {"env": "cart"}


def test_the_command_imitates(tmp_path, capsys):
    folder = tmp_path / "policy"
    assert main(["imitate", "--steps", "300", "--round", "100", "--episodes", "2", "--out", str(folder)]) == 0
    out = capsys.readouterr().out
    assert "episodes of" in out
    assert "round 2  steps" in out
    assert "cart: mean return" in out
    policy, told = Policy.load(folder)
    assert policy.config.observation == 4
    assert told == {"env": "cart"}
    assert main(["run", str(folder), "--play", "--episodes", "2", "--record", str(tmp_path / "its.npz")]) == 0
    assert "of 2 episodes" in capsys.readouterr().out
    assert len(list(read_episodes([tmp_path / "its.npz"]))) == 2
    assert main(["run", str(folder), "what now?"]) == 2
    assert "--play" in capsys.readouterr().err
    assert main(["run", str(folder), "what now?", "--play"]) == 2
    assert "a text does not go with --play" in capsys.readouterr().err
    assert main(["imitate", "--out", str(folder)]) == 2
    assert "is there already" in capsys.readouterr().err


def test_an_expert_who_is_none_is_named(tmp_path, capsys):
    file = tmp_path / "a.jsonl"
    file.write_text('{"observations": [[1], [2]], "actions": [0], "rewards": [1]}\n')
    assert main(["imitate", "--data", str(file), "--out", str(tmp_path / "run")]) == 2
    assert f"{file}:1" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()
