"""Ctrl-C and SIGTERM: the run saves and prints how to resume, and the resumed run equals the uninterrupted one."""

import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from regard import train
from regard.cli import main
from regard.training.file_job import FileJob

sys.path.append(str(Path(__file__).parents[1] / "benchmarks"))
from kill import fork_child  # noqa: E402

STEPS = 60
HOW = f"--steps {STEPS} --evals 3 --batch-tokens 300 --dropout 0.2 --threads 1"


def same_run(first, second):
    """The best weights and the newest checkpoint are equal bit for bit, and every loss."""
    losses = [
        [json.loads(line).get("loss") for line in (run / "metrics.jsonl").read_text().splitlines()]
        for run in (first, second)
    ]
    files = ("model.safetensors", f"step-{STEPS}/state.safetensors", f"step-{STEPS}/state.json")
    return losses[0] == losses[1] and all((first / f).read_bytes() == (second / f).read_bytes() for f in files)


def at_step(number, act):
    """`FileJob.train`, which calls `act` after this step: no race with another process."""
    original = FileJob.train

    def train(job):
        for step in original(job):
            if step.number == number:
                act()
            yield step

    return train


def kill_after_a_checkpoint(command, folder, monkeypatch):
    """SIGKILL in the middle of the second third of the run."""
    with monkeypatch.context() as patched:
        patched.setattr(FileJob, "train", at_step(STEPS // 2, lambda: os.kill(os.getpid(), signal.SIGKILL)))
        child = fork_child(lambda: main(command))
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL
    assert (folder / "LATEST").read_text() == f"step-{STEPS // 3}\n"


@pytest.fixture(scope="module")
def uninterrupted(pairs_file, small, tmp_path_factory):
    folder = tmp_path_factory.mktemp("whole") / "run"
    assert (
        main(["train", "translate", "--data", str(pairs_file), "--output-dir", str(folder), *HOW.split(), *small]) == 0
    )
    return folder


@pytest.mark.parametrize(("sent", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_saves_and_the_resumed_run_is_the_same(
    sent, code, uninterrupted, pairs_file, small, tmp_path, monkeypatch, capsys
):
    folder = tmp_path / "run"
    command = ["train", "translate", "--data", str(pairs_file), "--output-dir", str(folder), *HOW.split(), *small]
    with monkeypatch.context() as patched:
        patched.setattr(FileJob, "train", at_step(STEPS // 2, lambda: signal.raise_signal(sent)))
        assert main(command) == code
    resume = shlex.split(capsys.readouterr().out.splitlines()[-1])
    assert resume[0] == "regard"
    assert (folder / "LATEST").read_text() == f"step-{STEPS // 2}\n"
    assert main(resume[1:]) == 0
    assert same_run(folder, uninterrupted)


STUCK = """
import ctypes, sys
from regard.cli import main
from regard.tasks.translate import Translate
from regard.training.file_job import FileJob
loss, calls, training = Translate.loss, 0, sys.argv.pop(1) == "step"
mutex = ctypes.create_string_buffer(64)

def stuck(self, model, *args, **named):
    global calls
    calls += is_begun and model.training == training
    if calls == 12 if training else calls == 2:
        print("stuck", flush=True)
        for _ in range(2):  # the second blocks forever: like a long operation, it runs no Python
            ctypes.CDLL(None).pthread_mutex_lock(mutex)
    return loss(self, model, *args, **named)

def begin(job):
    global is_begun  # before, a few steps are timed
    is_begun = True
    return steps_to_end(job)

is_begun, steps_to_end = False, FileJob.steps_to_end
Translate.loss, FileJob.steps_to_end = stuck, begin
sys.exit(main(sys.argv[1:]))
"""


@pytest.mark.parametrize("where", ["step", "validation"])
def test_a_signal_during_a_long_operation_saves_the_last_step(where, uninterrupted, pairs_file, small, tmp_path):
    folder = tmp_path / "run"
    command = ["train", "translate", "--data", str(pairs_file), "--output-dir", str(folder), *HOW.split(), *small]
    process = subprocess.Popen([sys.executable, "-c", STUCK, where, *command], stdout=subprocess.PIPE, text=True)
    while process.stdout.readline() not in ("stuck\n", ""):
        pass
    process.send_signal(signal.SIGTERM)
    err = process.communicate(timeout=120)[0]
    assert process.returncode == 143
    assert "without waiting" in err
    assert (folder / "LATEST").read_text() == ("step-11\n" if where == "step" else "step-40\n")
    assert main(["run", str(folder), "--num-beams", "1", "tea and water"]) == 0, "the weights so far can be used"
    assert main(shlex.split(err.splitlines()[-1])[1:]) == 0
    assert same_run(folder, uninterrupted)


def test_a_run_without_an_evaluation_prints_how_to_resume(small_run, tmp_path, capsys):
    folder = shutil.copytree(small_run, tmp_path / "run")
    (folder / "model.safetensors").unlink()
    assert main(["run", str(folder), "tea"]) == 2
    assert f"regard train translate --resume --output-dir {folder}" in capsys.readouterr().err
    for save in folder.glob("step-*"):
        shutil.rmtree(save)
    assert main(["run", str(folder), "tea"]) == 2
    assert "resume with the command that started it" in capsys.readouterr().err


def test_a_killed_run_resumes_from_its_newest_checkpoint(uninterrupted, pairs_file, small, tmp_path, monkeypatch):
    folder = tmp_path / "run"
    command = ["train", "translate", "--data", str(pairs_file), "--output-dir", str(folder), *HOW.split(), *small]
    kill_after_a_checkpoint(command, folder, monkeypatch)
    assert main(["train", "translate", "--resume", "--output-dir", str(folder)]) == 0
    assert same_run(folder, uninterrupted)


def test_a_folder_in_use_is_refused_with_its_process(small_run, pairs_file, capsys, tmp_path):
    folder = shutil.copytree(small_run, tmp_path / "run")
    before = {f: f.read_bytes() for f in folder.rglob("*") if f.is_file() and f.name != ".lock"}
    code = "import sys; from pathlib import Path; from regard.training.run_folder import RunLock; "
    code += "lock = RunLock(Path(sys.argv[1])); print('locked', flush=True); input()"
    holder = subprocess.Popen(
        [sys.executable, "-c", code, str(folder)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert holder.stdout.readline() == "locked\n"
    for options in (["--resume"], ["--overwrite", "--steps", "1", "--data", str(pairs_file)]):
        assert main(["train", "translate", "--output-dir", str(folder), *options]) == 2
        assert str(holder.pid) in capsys.readouterr().err
    holder.kill()
    holder.wait()
    assert before == {f: f.read_bytes() for f in folder.rglob("*") if f.is_file() and f.name != ".lock"}
    assert main(["train", "translate", "--resume", "--output-dir", str(folder)]) == 0, "the lock ends with its process"


@pytest.mark.parametrize("length", ["--minutes 0.03", "--epochs 6"])
def test_a_run_of_minutes_or_epochs_resumes(length, pairs_file, small, tmp_path, capsys):
    folder = tmp_path / "run"
    options = [*length.split(), "--evals", "2", "--batch-tokens", "300", "--threads", "1"]
    assert main(["train", "translate", "--data", str(pairs_file), "--output-dir", str(folder), *options, *small]) == 0
    steps = json.loads((folder / "train.json").read_text())["steps"]
    newest = sorted(folder.glob("step-*"), key=lambda f: int(f.name[5:]))[-1]
    shutil.rmtree(newest)
    assert main(["train", "translate", "--resume", "--output-dir", str(folder)]) == 0
    assert f"--steps {steps}" in capsys.readouterr().out
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    lrs = [line["lr"] for line in lines if "lr" in line]
    assert lrs[-1] <= 0.02 * max(lrs), "the schedule is complete"
    assert (folder / f"step-{len(lrs)}").exists()
    assert len(lrs) == steps or "--minutes" in length, "the remaining time may fit another number of steps"


def test_patience_survives_a_resume(pairs_file, small, tmp_path):
    folder = tmp_path / "run"
    options = ["--steps", "50", "--evals", "10", "--lr", "1e-9", "--patience", "2", "--threads", "1"]
    assert main(["train", "translate", "--data", str(pairs_file), "--output-dir", str(folder), *options, *small]) == 0
    assert (folder / "LATEST").read_text() == "step-15\n"
    assert main(["train", "translate", "--resume", "--output-dir", str(folder)]) == 0
    assert (folder / "LATEST").read_text() == "step-15\n"


def test_a_resumed_run_keeps_its_settings_and_its_data(small_run, pairs_file, tmp_path, capsys):
    folder = shutil.copytree(small_run, tmp_path / "run")
    assert main(["train", "translate", "--resume", "--output-dir", str(folder), "--steps", "80"]) == 2
    assert "--steps" in capsys.readouterr().err
    settings = json.loads((folder / "train.json").read_text())
    shorter = tmp_path / "shorter.tsv"
    shorter.write_text("".join(pairs_file.read_text().splitlines(keepends=True)[:-1]))
    (folder / "train.json").write_text(json.dumps(settings | {"data": [str(shorter)]}))
    assert main(["train", "translate", "--resume", "--output-dir", str(folder)]) == 2
    err = capsys.readouterr().err
    assert "under different conditions" in err
    assert "the rows of the data have changed" in err


def test_a_truncated_line_of_metrics_is_ignored(small_run, tmp_path):
    folder = shutil.copytree(small_run, tmp_path / "run")
    with (folder / "metrics.jsonl").open("a") as stream:
        stream.write('{"step": 41, "lo')
    assert main(["train", "translate", "--resume", "--output-dir", str(folder)]) == 0


def test_bad_data_does_not_replace_a_run(small_run, tmp_path):
    folder = shutil.copytree(small_run, tmp_path / "run")
    before = {f: f.read_bytes() for f in folder.rglob("*") if f.is_file() and f.name != ".lock"}
    assert (
        main(["train", "translate", "--output-dir", str(folder), "--overwrite", "--data", str(tmp_path / "none.tsv")])
        == 2
    )
    assert before == {f: f.read_bytes() for f in folder.rglob("*") if f.is_file() and f.name != ".lock"}


def test_a_full_disk_is_one_message(pairs_file, small, tmp_path, monkeypatch, capsys):
    from safetensors import SafetensorError

    from regard.hub import folder as hub

    def full(tensors, file, metadata):
        raise SafetensorError("No space left on device")

    folder = tmp_path / "run"
    options = ["--data", str(pairs_file), "--output-dir", str(folder), "--steps", "2", "--evals", "1", *small]
    monkeypatch.setattr(hub, "save_file", full)
    assert main(["train", "translate", *options]) == 2
    assert "No space left" in capsys.readouterr().err


# The same command again.


def test_the_same_command_resumes_its_run(uninterrupted, pairs_file, small, tmp_path, capsys, monkeypatch):
    folder = tmp_path / "run"
    command = ["train", "translate", "--data", str(pairs_file), "--output-dir", str(folder), *HOW.split(), *small]
    kill_after_a_checkpoint(command, folder, monkeypatch)
    assert main(command) == 0
    assert "resuming from step" in capsys.readouterr().out
    assert same_run(folder, uninterrupted)
    assert main(command) == 0, "a finished run has nothing left to do"
    assert same_run(folder, uninterrupted)


def test_another_command_is_refused_with_the_differences(small_run, pairs_file, small, tmp_path, capsys):
    folder = shutil.copytree(small_run, tmp_path / "run")
    before = {f: f.read_bytes() for f in folder.rglob("*") if f.is_file()}
    options = [
        "--data",
        str(pairs_file),
        "--output-dir",
        str(folder),
        "--steps",
        "40",
        "--batch-tokens",
        "300",
        "--lr",
        "0.03",
    ]
    assert main(["train", "translate", *options, "--evals", "2", *small]) == 2
    err = capsys.readouterr().err
    assert "--lr 0.02 in the folder, 0.03 in this command" in err
    assert "--steps" not in err
    assert "--overwrite" in err
    assert before == {f: f.read_bytes() for f in folder.rglob("*") if f.is_file()}


def test_a_run_that_was_killed_before_its_first_checkpoint_restarts(uninterrupted, pairs_file, small, tmp_path):
    folder = tmp_path / "run"
    command = ["train", "translate", "--data", str(pairs_file), "--output-dir", str(folder), *HOW.split(), *small]
    folder.mkdir()
    for name in (".lock", "config.json", ".task.json"):  # killed while it wrote these
        (folder / name).write_text("{")
    assert main(command) == 0
    assert same_run(folder, uninterrupted)
    (folder / "README.md").unlink()
    for save in folder.glob("step-*"):
        shutil.rmtree(save)
    assert main(command) == 0
    assert same_run(folder, uninterrupted)


def test_a_finished_run_without_checkpoints_is_not_trained_again(small_run, tmp_path, capsys):
    folder = shutil.copytree(small_run, tmp_path / "run")
    for save in folder.glob("step-*"):
        shutil.rmtree(save)
    requested = json.loads((folder / "train.json").read_text())["requested_options"]
    options = {name: value for name, value in requested.items() if value is not None}
    before = {f: f.read_bytes() for f in folder.rglob("*") if f.is_file() and f.name != ".lock"}
    with pytest.raises(ValueError, match="start again with --overwrite"):
        list(train(**options | {"output_dir": str(folder)}))
    assert before == {f: f.read_bytes() for f in folder.rglob("*") if f.is_file() and f.name != ".lock"}


# Provenance.


def edited(folder, name, value):
    file = folder / "train.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {name: value}))


CHANGES = {
    "a setting": (lambda folder: edited(folder, "lr", 0.5), "--lr was 0.02, and is 0.5"),
    "the seed": (lambda folder: edited(folder, "seed", 7), "--seed was 1, and is 7"),
    "the tokenizer": (
        lambda folder: (folder / "tokenizer.json").write_text((folder / "tokenizer.json").read_text() + " "),
        "tokenizer.json has changed",
    ),
    "the config": (
        lambda folder: (folder / "config.json").write_text((folder / "config.json").read_text() + "\n"),
        "config.json has changed",
    ),
    "the task": (
        lambda folder: (folder / "task.json").write_text((folder / "task.json").read_text() + "\n"),
        "task.json has changed",
    ),
}


@pytest.mark.parametrize("kind", CHANGES)
def test_a_change_since_the_checkpoint_is_refused(kind, small_run, tmp_path, capsys):
    folder = shutil.copytree(small_run, tmp_path / "run")
    change, message = CHANGES[kind]
    change(folder)
    before = {f: f.read_bytes() for f in folder.rglob("*") if f.is_file() and f.name != ".lock"}
    assert main(["train", "translate", "--resume", "--output-dir", str(folder)]) == 2
    err = capsys.readouterr().err
    assert message in err
    assert "--allow-changed" in err
    assert err.count("\n  ") == 1, "and nothing else"
    assert before == {f: f.read_bytes() for f in folder.rglob("*") if f.is_file() and f.name != ".lock"}
    assert main(["train", "translate", "--resume", "--allow-changed", "--output-dir", str(folder)]) == 0


def test_another_version_is_refused(small_run, tmp_path, capsys, monkeypatch):
    from regard.training import provenance

    folder = shutil.copytree(small_run, tmp_path / "run")
    monkeypatch.setattr(provenance, "__version__", "99.0")
    assert main(["train", "translate", "--resume", "--output-dir", str(folder)]) == 2
    assert "and is 99.0" in capsys.readouterr().err


def test_a_checkpoint_that_does_not_fit_is_not_started(small_run, pairs_file, small, tmp_path, capsys, monkeypatch):
    from collections import namedtuple

    from regard.training import checkpoint

    folder = shutil.copytree(small_run, tmp_path / "run")
    newest = folder / (folder / "LATEST").read_text().strip()
    shutil.rmtree(newest)
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(checkpoint.shutil, "disk_usage", lambda _: usage(10**9, 10**9, 10_000))
    before = {f: f.read_bytes() for f in folder.rglob("*") if f.parent.name.startswith("step-")}
    assert main(["train", "translate", "--resume", "--output-dir", str(folder)]) == 2
    err = capsys.readouterr().err
    assert "not enough space for a checkpoint" in err
    assert before == {f: f.read_bytes() for f in folder.rglob("*") if f.parent.name.startswith("step-")}
