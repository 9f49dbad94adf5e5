"""A tracker holds every step of metrics.jsonl once, whatever happens to the run; and no run depends on a tracker."""

import json
import os
import shutil
import signal
import sys
import time
from pathlib import Path
from threading import Event

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard import train
from regard.cli import main
from regard.training import trackers, tracking
from regard.training.file_job import FileJob
from regard.training.tracking import MetricsReader
from regard.validate import TrackingWarning

sys.path += [str(Path(__file__).parent), str(Path(__file__).parents[2] / "benchmarks")]
from kill import fork_child  # noqa: E402
from tracker_readers import READERS  # noqa: E402

STEPS = 30
HOW = f"--steps {STEPS} --evals 3 --batch-tokens 300 --threads 1"
LINES = [
    *({"step": n, "epoch": 0, "loss": 1 / n, "lr": 0.1, "grad_norm": 1.0, "count": 8, "seconds": 0.5} for n in (1, 2)),
    {"step": 2, "valid": {"loss": 0.5, "bleu": 10.0}, "samples": [{"source": "a|b", "prediction": "c\nd"}]},
    {"step": 2, "total_steps": 4, "seconds_per_step": 0.5},
    {"step": 3, "epoch": 0, "skipped": True, "seconds": 0.5},
    {"step": 4, "epoch": 1, "loss": 0.2, "lr": 0.1, "grad_norm": 1.0, "count": 8, "seconds": 0.5},
    {"step": 4, "round": 1, "mean_return": 12.0},
    {"step": 4, "test": {"bleu": 11.0}},
]
CONTENT = "".join(json.dumps(line) + "\n" for line in LINES).encode()


class Recorder:
    """A tracker in memory."""

    rows: list
    location = "memory"
    last_step = 0

    def __init__(self, run):
        self.run = run

    def write(self, steps):
        Recorder.rows += steps

    def close(self):
        pass


@pytest.fixture
def recorder(monkeypatch):
    Recorder.rows = []
    monkeypatch.setitem(trackers.TRACKERS, "tensorboard", Recorder)
    return Recorder


@pytest.fixture
def command(pairs_file, small, tmp_path):
    return ["train", "translate", "--data", str(pairs_file), "-o", str(tmp_path / "run"), *HOW.split(), *small]


@pytest.fixture(params=READERS)
def tracker(request, tmp_path, monkeypatch):
    """The name of a real tracker, which stores in a temporary folder, without network."""
    pytest.importorskip(request.param)
    for variable in ("WANDB_MODE", "WANDB_DIR", "WANDB_API_KEY", "TRACKIO_SPACE_ID"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))  # no login
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path}/mlflow.db")
    monkeypatch.setenv("TRACKIO_DIR", str(tmp_path / "trackio"))
    monkeypatch.chdir(tmp_path)
    return request.param


def lines_of(folder):
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


def assert_complete(history, folder):
    """Losses and validation scores are those of metrics.jsonl, at the same steps, once and in order."""
    lines = lines_of(folder)
    losses = [(line["step"], line["loss"]) for line in lines if "loss" in line]
    scores = [(line["step"], line["valid"]["bleu"]) for line in lines if "valid" in line]
    for tag, values in (("train/loss", losses), ("valid/bleu", scores)):
        assert [step for step, _ in history[tag]] == [step for step, _ in values]
        assert [value for _, value in history[tag]] == pytest.approx([value for _, value in values], rel=1e-6)


@given(st.lists(st.integers(0, len(CONTENT)), max_size=6))
def test_a_file_that_grows_gives_the_steps_of_the_whole_file(tmp_path_factory, cuts):
    file = tmp_path_factory.getbasetemp() / "growing.jsonl"
    file.write_bytes(CONTENT)
    whole = MetricsReader(file).read(is_ended=True)
    assert [step.number for step in whole] == [1, 2, 3, 4]
    file.write_bytes(b"")
    reader, steps = MetricsReader(file), []
    for cut in sorted(cuts):
        file.write_bytes(CONTENT[:cut])
        steps += reader.read(is_ended=False)
    file.write_bytes(CONTENT)
    assert steps + reader.read(is_ended=True) == whole


def test_a_step_has_the_numbers_of_all_its_lines(tmp_path):
    (tmp_path / "metrics.jsonl").write_bytes(CONTENT)
    first, second, skipped, last = MetricsReader(tmp_path / "metrics.jsonl").read(is_ended=True)
    assert first.scalars["train/throughput"] == 16
    assert "train/step" not in first.scalars
    assert {"train/loss", "valid/bleu", "train/total_steps"} <= second.scalars.keys()
    assert second.samples == LINES[2]["samples"]
    assert skipped.scalars["train/skipped"] == 1
    assert "train/loss" not in skipped.scalars
    assert last.scalars["round/mean_return"] == 12
    assert last.scalars["test/bleu"] == 11


def test_a_table_keeps_its_rows_and_columns():
    table = trackers.as_table([{"source": "a|b", "prediction": "c\nd"}, {"source": "e"}])
    assert [line.replace("\\|", "").count("|") for line in table.splitlines()] == [3, 3, 3, 3]


def test_a_run_is_sent_once_over_a_stop_and_a_resume(recorder, command, tmp_path, monkeypatch):
    """The run stops after its last step, before the test: the tracker gets that step when the run has ended."""
    original = FileJob.finish
    monkeypatch.setattr(FileJob, "finish", lambda job: signal.raise_signal(signal.SIGINT))
    with pytest.raises(KeyboardInterrupt):
        for _ in train("translate", **options(command), log="tensorboard", test=options(command)["data"]):
            pass
    assert [step.number for step in recorder.rows] == [*range(1, STEPS)]
    monkeypatch.setattr(FileJob, "finish", original)
    monkeypatch.setattr(recorder, "last_step", STEPS - 1)
    assert main(["train", "translate", "--resume", "-o", str(tmp_path / "run")]) == 0
    assert [step.number for step in recorder.rows] == [*range(1, STEPS + 1)]
    assert "test/bleu" in recorder.rows[-1].scalars


def options(command):
    """The options of a command, for `regard.train`."""
    words = ["--output-dir" if word == "-o" else word for word in command[2:]]
    pairs = zip(words[::2], words[1::2], strict=True)
    return {name[2:].replace("-", "_"): int(value) if value.isdigit() else value for name, value in pairs}


@pytest.mark.parametrize("method", ["__init__", "write", "close"])
def test_a_tracker_that_fails_costs_one_warning(method, recorder, command, tmp_path, monkeypatch, capsys):
    def fail(*_):
        raise ConnectionError("no route to host")

    monkeypatch.setattr(recorder, method, fail)
    with pytest.warns(TrackingWarning, match="no route to host.*regard log .* --to tensorboard") as caught:
        steps = [*train("translate", **options(command), log=["tensorboard"])]
    assert len(caught) == 1
    assert len(steps) == STEPS
    assert (tmp_path / "run" / "README.md").exists()


def test_a_tracker_that_fails_afterwards_is_an_error_of_one_line(recorder, small_run, tmp_path, monkeypatch, capsys):
    class ServerError(Exception):
        """Of a foreign library."""

    def fail(*_):
        raise ServerError("status 503")

    monkeypatch.setattr(recorder, "write", fail)
    shutil.copy(small_run / "metrics.jsonl", tmp_path)
    assert main(["log", str(tmp_path), "--to", "tensorboard"]) == 2
    assert capsys.readouterr().err == "regard: tensorboard did not take the metrics: ServerError: status 503\n"


def test_a_tracker_that_does_not_answer_does_not_keep_the_run(recorder, command, tmp_path, monkeypatch):
    hanging = Event()
    monkeypatch.setattr(tracking, "CLOSE_SECONDS", 0.05)
    monkeypatch.setattr(recorder, "write", lambda *_: hanging.wait())
    with pytest.warns(TrackingWarning, match="does not answer"):
        assert len([*train("translate", **options(command), log=["tensorboard"])]) == STEPS
    hanging.set()


def test_a_killed_run_that_resumes_has_every_step_once(tracker, command, tmp_path, monkeypatch):
    folder, kind, train_steps = tmp_path / "run", trackers.TRACKERS[tracker], FileJob.train
    written, write = [0], kind.write

    def recorded_write(self, steps):
        write(self, steps)
        written.append(steps[-1].number)

    def killed(job):
        for step in train_steps(job):
            while step.number == 25 and written[-1] < 22:  # beyond the checkpoint of step 20
                time.sleep(0.01)
            if step.number == 25:
                os.kill(os.getpid(), signal.SIGKILL)
            yield step

    with monkeypatch.context() as patched:
        patched.setattr(tracking, "POLL_SECONDS", 0.02)
        patched.setattr(kind, "write", recorded_write)
        patched.setattr(FileJob, "train", killed)
        child = fork_child(lambda: main([*command, "--log", tracker]))
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL
    assert (folder / "LATEST").read_text() == "step-20\n"
    assert main(command) == 0, "the same command resumes, and logs as before"
    assert_complete(READERS[tracker](folder), folder)
    tag = trackers.tracking_id(folder)
    assert main(["log", str(folder), "--to", tracker]) == 0
    assert trackers.tracking_id(folder) == tag
    assert_complete(READERS[tracker](folder), folder)


def test_the_log_of_a_run_is_sent_afterwards_from_its_metrics_alone(tracker, small_run, tmp_path, capsys):
    folder = tmp_path / "copy"
    folder.mkdir()
    shutil.copy(small_run / "metrics.jsonl", folder)
    for _ in range(2):
        assert main(["log", str(folder), "--to", tracker]) == 0
        assert f"up to step {lines_of(folder)[-1]['step']}" in capsys.readouterr().out
        assert_complete(READERS[tracker](folder), folder)


def test_tensorboard_shows_settings_and_samples(small_run, tmp_path):
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    folder = tmp_path / "copy"
    shutil.copytree(small_run, folder)
    tracking.send(folder, "tensorboard")
    events = accumulator.EventAccumulator(str(folder / "tensorboard"))
    events.Reload()
    [settings] = events.Tensors("settings/text_summary")
    assert b"| batch_tokens | " in settings.tensor_proto.string_val[0]
    samples = events.Tensors("samples/text_summary")
    assert [event.step for event in samples] == [line["step"] for line in lines_of(folder) if "valid" in line]


def test_a_new_run_in_the_folder_is_a_new_run_of_the_tracker(recorder, command, tmp_path):
    ids = set()
    for _ in range(2):
        [*train("translate", **options(command), log="tensorboard", overwrite=True)]
        ids.add(trackers.tracking_id(tmp_path / "run"))
    assert len(ids) == 2
    assert len(recorder.rows) == 2 * STEPS


@pytest.mark.parametrize("name", trackers.TRACKERS)
def test_a_missing_library_is_named_with_its_extra(name, command, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(trackers, "find_spec", lambda _: None)
    for arguments in ([*command, "--log", name], ["log", str(tmp_path), "--to", name]):
        assert main(arguments) == 2
        assert f'{name} is not installed: pip install "regard[{name}]"' in capsys.readouterr().err
    assert not (tmp_path / "run").exists()
