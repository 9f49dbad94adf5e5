"""Plans for this machine: lengths, times from blocks, output. The times are measured, so no test asserts one."""

import json
from types import SimpleNamespace

import numpy as np
import pytest

from regard.cli import main
from regard.training import step_times
from regard.training.estimate import StepEstimator
from regard.training.run_plan import epoch_steps, plan_run, prepare_run, run_length
from regard.training.start import new_settings
from regard.training.step_times import StepTimes, measure_times

SMALL = {
    "model": "gpt", "dim": 16, "hidden": 32, "heads": 2, "layers": 6, "context": 24, "batch_tokens": 72,
    "tokenizer": "characters", "threads": 1, "eval_examples": 200,
}  # fmt: skip
ARGUMENTS = [word for name, value in SMALL.items() for word in (f"--{name.replace('_', '-')}", str(value))]


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    file = tmp_path_factory.mktemp("corpus") / "corpus.txt"
    file.write_text("tea and water please. " * 60)
    return str(file)


@pytest.fixture
def quick(monkeypatch):
    monkeypatch.setattr(step_times, "TIMING_SECONDS", 0.0)


def prepared(corpus, **options):
    return prepare_run(new_settings("write", data=[corpus], valid=[corpus], **SMALL | options))


def test_a_plan_has_numbers_for_a_script_and_writes_no_file(corpus, quick, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    arguments = ["plan", "write", "--data", corpus, "--valid", corpus, *ARGUMENTS, "--epochs", "3", "--price", "2"]
    assert main([*arguments, "--json"]) == 0
    plan = json.loads(capsys.readouterr().out)
    run = prepared(corpus)
    assert plan["steps"] == round(3 * epoch_steps(run, 1))
    assert plan["epochs"] == pytest.approx(3, rel=0.05)
    assert plan["flops"]["run"] == plan["steps"] * plan["flops"]["step"]
    assert plan["seconds"]["run"] > plan["steps"] * plan["seconds"]["step"] > 0
    assert plan["price"] == pytest.approx(2 * plan["seconds"]["run"] / 3600)
    assert plan["measured"] == "whole"
    assert plan["scaling"]["epochs"] == plan["epochs"]
    assert main(arguments) == 0
    out = capsys.readouterr().out
    assert f"write, gpt tiny: {plan['parameters']:,} parameters" in out
    assert f"the run: {plan['steps']:,} steps" in out
    assert not any(tmp_path.iterdir())


def test_the_task_names_of_hugging_face_work(corpus, quick, capsys):
    assert main(["plan", "text-generation", "--data", corpus, "--valid", corpus, *ARGUMENTS, "--steps", "5"]) == 0
    assert "warning: 5 steps are too few" in capsys.readouterr().out


def test_minutes_are_filled_with_steps_and_evaluations(corpus):
    run, times = prepared(corpus, minutes=10.0), StepTimes(step=0.5, evaluation=12.0, test=30.0)
    steps, evals = run_length(run, 1, times.step, times)
    assert evals == 7  # 15 % of 600 s are 90 s
    assert steps * 0.5 + evals * 12 + 30 == pytest.approx(600, rel=0.03)
    assert run_length(run, 1, None, None)[0] == 0


def test_large_models_are_extended_from_one_and_two_blocks(corpus, monkeypatch):
    """On a machine whose blocks take 3 s, and the rest of a step 10 s."""
    built = []

    def time_model(estimator, config, valid, test):
        built.append(config.layers)
        return StepTimes(10.0 + 3 * config.layers, 1.0 + config.layers, 0.0)

    monkeypatch.setattr(step_times, "time_model", time_model)
    monkeypatch.setattr(step_times, "MAX_WHOLE_FLOPS", 0)
    run = prepared(corpus)
    estimator = StepEstimator(run.settings, run.task, run.examples)
    times, is_whole = measure_times(estimator, run.config, estimator.cost(run.config), run.valid_rows, None)
    assert (built, is_whole) == ([1, 2], False)
    np.testing.assert_allclose(times, (10 + 3 * 6, 1 + 6, 0))


def test_what_does_not_fit_into_memory_is_not_measured(corpus, monkeypatch, capsys):
    for whole_flops in (0, 1e18):
        monkeypatch.setattr(step_times, "MAX_WHOLE_FLOPS", whole_flops)
        monkeypatch.setattr(step_times, "memory_bytes", lambda: 1000)
        plan = plan_run(new_settings("write", data=[corpus], valid=[corpus], **SMALL, steps=10))
        assert (plan.times, plan.seconds, plan.price(1.0)) == (None, None, None)
        assert plan.cost.parameters > 0
    monkeypatch.setattr(step_times, "memory_bytes", SimpleNamespace)  # not called with --gpus
    assert main(["plan", "write", "--data", corpus, "--valid", corpus, *ARGUMENTS, "--gpus", "L4", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["best_layout"] == 0


@pytest.mark.parametrize(("option", "message"), [("--resume", "train.json"), ("--minutes", "--minutes needs a value")])
def test_wrong_options_are_refused(option, message, corpus, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["plan", "write", option]) == 2
    assert message in capsys.readouterr().err


def test_plans_are_for_runs_on_files(capsys):
    assert main(["plan", "predict", "--env", "CartPole-v1"]) == 2
    assert "leave out --env" in capsys.readouterr().err
