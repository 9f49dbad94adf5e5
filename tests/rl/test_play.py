"""Trained `decide` models and imitated policies act: better than random, by target return, from the command line."""

import signal

import numpy as np
import pytest

from regard.cli import main
from regard.data.rows import Row
from regard.load import load
from regard.modalities.trajectory.episode_files import read_episodes
from regard.rl.cartpole import CartPole
from regard.rl.environment import episode_returns, random_policy
from regard.rl.policy import Policy
from regard.rl.sequence_policy import SequencePolicy, play_in_parallel
from regard.tasks.decide import DecideOptions
from regard.training.train import train

SMALL = {"context": 4, "dim": 32, "layers": 2, "heads": 2, "hidden": 64, "device": "cpu", "evals": 2}


@pytest.fixture(scope="module")
def decision_run(tmp_path_factory):
    """A Decision Transformer of the bundled CartPole, trained for a few seconds."""
    folder = tmp_path_factory.mktemp("decide") / "run"
    for _ in train("decide", returns=True, steps=250, output_dir=folder, seed=1, **SMALL):
        pass
    return folder


def mean_return(folder, target_return, count=20):
    loaded = load(folder, "cpu")
    policy = SequencePolicy(loaded.model, loaded.task, DecideOptions(target_return=target_return))
    episodes = play_in_parallel([CartPole() for _ in range(count)], policy, seed=5)
    return float(np.mean([episode.rewards.sum() for episode in episodes]))


def test_a_decision_transformer_beats_a_random_policy(decision_run):
    random_return = np.mean(episode_returns(CartPole(), random_policy(CartPole(), 1), 20, 5))
    assert mean_return(decision_run, 500) > 4 * random_return


def test_a_higher_target_return_gives_a_higher_return(decision_run):
    assert mean_return(decision_run, 40) < 0.5 * mean_return(decision_run, 500)


def test_the_command_plays_and_records(decision_run, tmp_path, capsys):
    file = tmp_path / "mine.jsonl"
    assert (
        main(["run", str(decision_run), "--play", "--episodes", "3", "--target-return", "40", "--record", str(file)])
        == 0
    )
    out = capsys.readouterr().out
    assert out.count("episode ") == 3
    assert "of 3 episodes" in out
    rows = list(read_episodes([file]))
    assert len(rows) == 3
    assert all(isinstance(row, Row) and row.input.observations.shape[1:] == (4,) for row in rows)
    assert main(["run", str(decision_run), str(file)]) == 0
    assert len(capsys.readouterr().out.split()) == 3, "one action for each"
    assert main(["train", "decide", "--data", str(file), "--output-dir", str(tmp_path / "run"), "--steps", "1"]) == 0


def test_the_command_plays_in_gymnasium(decision_run, capsys):
    pytest.importorskip("gymnasium")
    assert (
        main(["run", str(decision_run), "--play", "--episodes", "2", "--env", "CartPole-v1", "--target-return", "20"])
        == 0
    )
    assert "of 2 episodes" in capsys.readouterr().out
    assert main(["run", str(decision_run), "--play", "--env", "Acrobot-v1"]) == 2
    assert "Acrobot-v1 has 6 observation entries and 3 actions, but this model was trained" in capsys.readouterr().err
    assert main(["run", str(decision_run), "--play", "--env", "CartPol-v1"]) == 2
    assert "CartPole-v1" in capsys.readouterr().err


def test_a_wrong_temperature_is_refused(decision_run, capsys):
    assert main(["run", str(decision_run), "--play", "--temperature", "-1"]) == 2
    assert "temperature" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--record", "mine.npz"], "--record goes with --play"),
        (["--gif", "mine.gif"], "--gif goes with --play"),
        (["--episodes", "3"], "--episodes goes with --play"),
        (["--env", "CartPole-v1"], "--env goes with --play"),
        (["--play", "some.npz"], "a text does not go with --play"),
        (["--play", "--json"], "--json does not go with --play"),
        (["--play", "--num-return", "2"], "--num-return does not go with --play"),
    ],
)
def test_options_without_effect_are_refused(decision_run, arguments, message, capsys):
    assert main(["run", str(decision_run), *arguments]) == 2
    assert message in capsys.readouterr().err


def test_an_interrupted_imitation_keeps_the_policy_of_the_round(tmp_path, capsys, monkeypatch):
    folder = tmp_path / "policy"
    original = Policy.save

    def save(*args, **metadata):
        original(*args, **metadata)
        signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(Policy, "save", save)
    assert (
        main(["imitate", "--steps", "1000", "--round-steps", "50", "--hidden", "8", "--output-dir", str(folder)]) == 130
    )
    out = capsys.readouterr().out
    assert "round 1 " in out
    assert "round 2 " not in out
    assert f"wrote the policy to {folder}" in out
    assert Policy.load(folder)[1] == {"env": "cart"}


def test_the_command_imitates(tmp_path, capsys):
    folder = tmp_path / "policy"
    assert (
        main(["imitate", "--steps", "300", "--round-steps", "100", "--episodes", "2", "--output-dir", str(folder)]) == 0
    )
    out = capsys.readouterr().out
    assert "expert episodes of" in out
    assert "round 2  steps" in out
    assert "discriminator accuracy" in out
    assert "cart: mean return" in out
    policy, metadata = Policy.load(folder)
    assert policy.config.observation_dim == 4
    assert metadata == {"env": "cart"}
    assert main(["run", str(folder), "--play", "--episodes", "2", "--record", str(tmp_path / "its.npz")]) == 0
    assert "of 2 episodes" in capsys.readouterr().out
    assert len(list(read_episodes([tmp_path / "its.npz"]))) == 2
    assert main(["run", str(folder), "what now?"]) == 2
    assert "--play" in capsys.readouterr().err
    assert main(["run", str(folder), "what now?", "--play"]) == 2
    assert "a text does not go with --play" in capsys.readouterr().err
    assert main(["imitate", "--output-dir", str(folder)]) == 2
    assert "exists: choose another --output-dir" in capsys.readouterr().err


def test_a_bad_expert_file_is_named(tmp_path, capsys):
    file = tmp_path / "a.jsonl"
    file.write_text('{"observations": [[1], [2]], "actions": [0], "rewards": [1]}\n')
    assert main(["imitate", "--data", str(file), "--output-dir", str(tmp_path / "run")]) == 2
    assert f"{file}:1" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()
