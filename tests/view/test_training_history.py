"""The training tab shows what a run has logged, in at most MAX_POINTS points."""

import json
import math
import os
from statistics import mean

import pytest

from regard.check.golden_answers import recorded_samples
from regard.training.run_folder import RunFolder
from regard.view.training_history import MAX_POINTS, training_tab


def logged(folder, count: int, every: int):
    """A run whose numbers follow from the step; the gradient of the parts is measured every so many steps."""
    run = RunFolder(folder)
    for step in range(1, count + 1):
        norms = {"module_grad_norms": {"body.blocks.0": step / 10, "head": 1.0}} if (step - 1) % every == 0 else {}
        run.log(step=step, loss=1 / step, lr=step * 1e-5, grad_norm=float(step), **norms)
    return training_tab(folder)


def test_the_tab_has_every_step_and_every_evaluation(small_run) -> None:
    tab = json.loads(json.dumps(training_tab(small_run)))
    lines = RunFolder(small_run).metrics()
    steps = [line for line in lines if "loss" in line]
    assert tab["kind"] == "training"
    assert tab["steps"] == [*range(1, 41)]
    for key, name in (("loss", "loss"), ("lr", "lr"), ("gradNorm", "grad_norm")):
        assert tab[key] == [line[name] for line in steps]
    assert [check["step"] for check in tab["valid"]] == [20, 40]
    assert all({"loss", "bleu"} <= {*check} for check in tab["valid"])
    assert {"body.tokens", "body.encoder.0", "body.decoder.0", "head"} <= {*tab["moduleNorms"]}
    for grad_norm, *parts in zip(tab["gradNorm"], *tab["moduleNorms"].values(), strict=True):
        assert math.hypot(*parts) == pytest.approx(grad_norm, rel=1e-3)


@pytest.mark.parametrize("count", [1, MAX_POINTS, MAX_POINTS + 1, 2 * MAX_POINTS, 2345])
def test_a_long_run_is_downsampled(count: int, tmp_path) -> None:
    tab = logged(tmp_path, count, every=7)
    wide = math.ceil(count / MAX_POINTS)
    assert len(tab["steps"]) == math.ceil(count / wide) <= MAX_POINTS
    assert tab["steps"][-1] == count
    begins = [1, *(step + 1 for step in tab["steps"][:-1])]
    for i, (begin, end) in enumerate(zip(begins, tab["steps"], strict=True)):
        assert tab["loss"][i] == pytest.approx(mean(1 / step for step in range(begin, end + 1)), abs=1e-6)
        assert tab["lr"][i] == end * 1e-5
        assert tab["gradNorm"][i] == pytest.approx((begin + end) / 2)
        newest = end - (end - 1) % 7
        assert tab["moduleNorms"]["body.blocks.0"][i] == newest / 10
    assert tab["moduleNorms"]["head"] == [1.0] * len(tab["steps"])


def test_a_run_of_an_older_version_has_no_module_norms(tmp_path) -> None:
    RunFolder(tmp_path).log(step=1, loss=2.0, lr=0.1, grad_norm=3.0)
    assert training_tab(tmp_path)["moduleNorms"] == {}


def test_a_folder_without_a_log_has_no_tab(tmp_path) -> None:
    assert training_tab(tmp_path) is None


@pytest.mark.parametrize(
    ("create", "message"),
    [
        (os.mkfifo, "a pipe or a device"),
        (lambda file: file.symlink_to("/dev/zero"), "a pipe or a device"),
        (lambda file: file.symlink_to("/etc/passwd"), "a link out of its folder"),
        (lambda file: (file.touch(), os.truncate(file, 2**31)), "at most 67,108,864 are read"),
    ],
)
@pytest.mark.parametrize("reader", [training_tab, lambda folder: recorded_samples(folder, None)], ids=["look", "check"])
def test_an_unsafe_log_file_is_refused(create, message, reader, tmp_path) -> None:
    create(tmp_path / "metrics.jsonl")
    with pytest.raises(ValueError, match=f"metrics.jsonl .*{message}"):
        reader(tmp_path)
