"""Ctrl-C and SIGTERM in the middle of a run: it saves, says how to go on, and going on gives the uninterrupted run."""

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
from regard.cli import train as command_line

sys.path.append(str(Path(__file__).parents[1] / "benchmarks"))
from kill import fork_child  # noqa: E402

STEPS = 60
HOW = f"--steps {STEPS} --checks 3 --batch-tokens 300 --dropout 0.2 --threads 1"


def same_run(one, other):
    """The kept weights and the whole newest state, bit for bit, and every loss."""
    losses = [
        [json.loads(line).get("loss") for line in (run / "metrics.jsonl").read_text().splitlines()]
        for run in (one, other)
    ]
    files = ("model.safetensors", f"step-{STEPS}/state.safetensors", f"step-{STEPS}/state.json")
    return losses[0] == losses[1] and all((one / f).read_bytes() == (other / f).read_bytes() for f in files)


def at_step(number, act):
    """Training as the command carries it out, which acts itself after this step: no other process has to be in time."""
    whole = command_line.carry_out

    def carry_out(job):
        for step in whole(job):
            if step.number == number:
                act()
            yield step

    return carry_out


def killed_after_a_save(command, folder, monkeypatch):
    """In the middle of the second third."""
    with monkeypatch.context() as patched:
        patched.setattr(command_line, "carry_out", at_step(STEPS // 2, lambda: os.kill(os.getpid(), signal.SIGKILL)))
        child = fork_child(lambda: main(command))
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL
    assert (folder / "LATEST").read_text() == f"step-{STEPS // 3}\n"


@pytest.fixture(scope="module")
def uninterrupted(pairs_file, small, tmp_path_factory):
    folder = tmp_path_factory.mktemp("whole") / "run"
    assert main(["train", "translate", "--data", str(pairs_file), "--out", str(folder), *HOW.split(), *small]) == 0
    return folder


@pytest.mark.parametrize(("sent", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_saves_and_the_run_goes_on_as_if_nothing_was(
    sent, code, uninterrupted, pairs_file, small, tmp_path, monkeypatch, capsys
):
    folder = tmp_path / "run"
    command = ["train", "translate", "--data", str(pairs_file), "--out", str(folder), *HOW.split(), *small]
    with monkeypatch.context() as patched:
        patched.setattr(command_line, "carry_out", at_step(STEPS // 2, lambda: signal.raise_signal(sent)))
        assert main(command) == code
    go_on = shlex.split(capsys.readouterr().out.splitlines()[-1])
    assert go_on[0] == "regard"
    assert (folder / "LATEST").read_text() == f"step-{STEPS // 2}\n"
    assert main(go_on[1:]) == 0
    assert same_run(folder, uninterrupted)


STUCK = """
import ctypes, sys
from regard.cli import main
from regard.tasks.translate import Translate
loss, calls, training = Translate.loss, 0, sys.argv.pop(1) == "step"
mutex = ctypes.create_string_buffer(64)

def stuck(self, model, *args, **named):
    global calls
    calls += model.training == training
    if calls == 12 if training else calls == 2:
        print("stuck", flush=True)
        for _ in range(2):  # the second waits for good: as in one operation of a large model, no Python runs here
            ctypes.CDLL(None).pthread_mutex_lock(mutex)
    return loss(self, model, *args, **named)

Translate.loss = stuck
sys.exit(main(sys.argv[1:]))
"""


@pytest.mark.parametrize("where", ["step", "validation"])
def test_a_signal_in_a_very_long_operation_is_honoured_while_it_lasts(
    where, uninterrupted, pairs_file, small, tmp_path
):
    folder = tmp_path / "run"
    command = ["train", "translate", "--data", str(pairs_file), "--out", str(folder), *HOW.split(), *small]
    process = subprocess.Popen([sys.executable, "-c", STUCK, where, *command], stdout=subprocess.PIPE, text=True)
    while process.stdout.readline() not in ("stuck\n", ""):
        pass
    process.send_signal(signal.SIGTERM)
    said = process.communicate(timeout=120)[0]
    assert process.returncode == 143
    assert "without waiting" in said
    assert (folder / "LATEST").read_text() == ("step-11\n" if where == "step" else "step-40\n")
    assert main(["run", str(folder), "--beam", "1", "tea and water"]) == 0, "what there is can be used"
    assert main(shlex.split(said.splitlines()[-1])[1:]) == 0
    assert same_run(folder, uninterrupted)


def test_a_run_without_a_validation_says_how_to_go_on(small_run, tmp_path, capsys):
    folder = shutil.copytree(small_run, tmp_path / "run")
    (folder / "model.safetensors").unlink()
    assert main(["run", str(folder), "tea"]) == 2
    assert f"regard train translate --resume --out {folder}" in capsys.readouterr().err
    for save in folder.glob("step-*"):
        shutil.rmtree(save)
    assert main(["run", str(folder), "tea"]) == 2
    assert "go on with the command that started it" in capsys.readouterr().err


def test_a_killed_run_goes_on_from_its_newest_save(uninterrupted, pairs_file, small, tmp_path, monkeypatch):
    folder = tmp_path / "run"
    command = ["train", "translate", "--data", str(pairs_file), "--out", str(folder), *HOW.split(), *small]
    killed_after_a_save(command, folder, monkeypatch)
    assert main(["train", "translate", "--resume", "--out", str(folder)]) == 0
    assert same_run(folder, uninterrupted)


def test_a_folder_in_use_is_refused_with_the_process_that_has_it(small_run, pairs_file, capsys, tmp_path):
    folder = shutil.copytree(small_run, tmp_path / "run")
    before = {f: f.read_bytes() for f in folder.rglob("*") if f.is_file() and f.name != ".lock"}
    code = f"from regard.training.run import *; lock = Lock(Path({str(folder)!r})); print('held', flush=True); input()"
    holder = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert holder.stdout.readline() == "held\n"
    for how in (["--resume"], ["--overwrite", "--steps", "1", "--data", str(pairs_file)]):
        assert main(["train", "translate", "--out", str(folder), *how]) == 2
        assert str(holder.pid) in capsys.readouterr().err
    holder.kill()
    holder.wait()
    assert before == {f: f.read_bytes() for f in folder.rglob("*") if f.is_file() and f.name != ".lock"}
    assert main(["train", "translate", "--resume", "--out", str(folder)]) == 0, "the lock ends with its process"


@pytest.mark.parametrize("length", ["--minutes 0.03", "--epochs 6"])
def test_a_run_that_was_not_planned_in_steps_can_be_resumed_too(length, pairs_file, small, tmp_path, capsys):
    folder = tmp_path / "run"
    how = [*length.split(), "--checks", "2", "--batch-tokens", "300", "--threads", "1"]
    assert main(["train", "translate", "--data", str(pairs_file), "--out", str(folder), *how, *small]) == 0
    steps = json.loads((folder / "train.json").read_text())["steps"]
    newest = sorted(folder.glob("step-*"), key=lambda f: int(f.name[5:]))[-1]
    shutil.rmtree(newest)
    assert main(["train", "translate", "--resume", "--out", str(folder)]) == 0
    assert f"--steps {steps}" in capsys.readouterr().out
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    rates = [line["rate"] for line in lines if "rate" in line]
    assert rates[-1] <= 0.02 * max(rates), "it ends as it was meant to"
    assert (folder / f"step-{len(rates)}").exists()
    assert len(rates) == steps or "--minutes" in length, "the time that is left may have room for other steps"


def test_patience_goes_on_where_it_was(pairs_file, small, tmp_path):
    folder = tmp_path / "run"
    how = ["--steps", "50", "--checks", "10", "--rate", "1e-9", "--patience", "2", "--threads", "1"]
    assert main(["train", "translate", "--data", str(pairs_file), "--out", str(folder), *how, *small]) == 0
    assert (folder / "LATEST").read_text() == "step-15\n"
    assert main(["train", "translate", "--resume", "--out", str(folder)]) == 0
    assert (folder / "LATEST").read_text() == "step-15\n"


def test_a_resumed_run_keeps_its_settings_and_its_data(small_run, pairs_file, tmp_path, capsys):
    folder = shutil.copytree(small_run, tmp_path / "run")
    assert main(["train", "translate", "--resume", "--out", str(folder), "--steps", "80"]) == 2
    assert "--steps" in capsys.readouterr().err
    settings = json.loads((folder / "train.json").read_text())
    other = tmp_path / "other.tsv"
    other.write_text("".join(pairs_file.read_text().splitlines(keepends=True)[:-1]))
    (folder / "train.json").write_text(json.dumps(settings | {"data": [str(other)]}))
    assert main(["train", "translate", "--resume", "--out", str(folder)]) == 2
    said = capsys.readouterr().err
    assert "not what" in said
    assert "the rows of the data are others" in said


def test_a_torn_line_in_the_metrics_does_not_stop_a_resumed_run(small_run, tmp_path):
    folder = shutil.copytree(small_run, tmp_path / "run")
    with (folder / "metrics.jsonl").open("a") as stream:
        stream.write('{"step": 41, "lo')
    assert main(["train", "translate", "--resume", "--out", str(folder)]) == 0


def test_bad_data_leaves_a_run_that_was_to_be_overwritten_as_it_was(small_run, tmp_path):
    folder = shutil.copytree(small_run, tmp_path / "run")
    before = {f: f.read_bytes() for f in folder.rglob("*") if f.is_file() and f.name != ".lock"}
    assert main(["train", "translate", "--out", str(folder), "--overwrite", "--data", str(tmp_path / "none.tsv")]) == 2
    assert before == {f: f.read_bytes() for f in folder.rglob("*") if f.is_file() and f.name != ".lock"}


def test_a_full_disk_gets_one_message_and_the_old_save_stays(pairs_file, small, tmp_path, monkeypatch, capsys):
    from safetensors import SafetensorError

    from regard.hub import folder as hub

    def full(tensors, file, metadata):
        raise SafetensorError("No space left on device")

    folder = tmp_path / "run"
    how = ["--data", str(pairs_file), "--out", str(folder), "--steps", "2", "--checks", "1", *small]
    monkeypatch.setattr(hub, "save_file", full)
    assert main(["train", "translate", *how]) == 2
    assert "No space left" in capsys.readouterr().err


# The same command once more.


def test_the_same_command_goes_on_with_what_it_began(uninterrupted, pairs_file, small, tmp_path, capsys, monkeypatch):
    folder = tmp_path / "run"
    command = ["train", "translate", "--data", str(pairs_file), "--out", str(folder), *HOW.split(), *small]
    killed_after_a_save(command, folder, monkeypatch)
    assert main(command) == 0
    assert "going on from step" in capsys.readouterr().out
    assert same_run(folder, uninterrupted)
    assert main(command) == 0, "of a finished run there is nothing left to do"
    assert same_run(folder, uninterrupted)


def test_another_command_is_refused_with_what_is_different(small_run, pairs_file, small, tmp_path, capsys):
    folder = shutil.copytree(small_run, tmp_path / "run")
    before = {f: f.read_bytes() for f in folder.rglob("*") if f.is_file()}
    how = ["--data", str(pairs_file), "--out", str(folder), "--steps", "40", "--batch-tokens", "300", "--rate", "0.03"]
    assert main(["train", "translate", *how, "--checks", "2", *small]) == 2
    said = capsys.readouterr().err
    assert "--rate 0.02 there, 0.03 here" in said
    assert "--steps" not in said
    assert "--overwrite" in said
    assert before == {f: f.read_bytes() for f in folder.rglob("*") if f.is_file()}


def test_a_run_that_was_killed_before_its_first_save_starts_again(uninterrupted, pairs_file, small, tmp_path):
    folder = tmp_path / "run"
    command = ["train", "translate", "--data", str(pairs_file), "--out", str(folder), *HOW.split(), *small]
    folder.mkdir()
    for name in (".lock", "config.json", ".task.json"):  # it came no further than that
        (folder / name).write_text("{")
    assert main(command) == 0
    assert same_run(folder, uninterrupted)
    (folder / "README.md").unlink()
    for save in folder.glob("step-*"):
        shutil.rmtree(save)
    assert main(command) == 0
    assert same_run(folder, uninterrupted)


def test_a_finished_run_whose_saves_were_tidied_away_is_not_trained_anew(small_run, tmp_path, capsys):
    folder = shutil.copytree(small_run, tmp_path / "run")
    for save in folder.glob("step-*"):
        shutil.rmtree(save)
    asked = json.loads((folder / "train.json").read_text())["asked"]
    again = {name: value for name, value in asked.items() if value is not None}
    before = {f: f.read_bytes() for f in folder.rglob("*") if f.is_file() and f.name != ".lock"}
    with pytest.raises(ValueError, match="start again with --overwrite"):
        list(train(**again | {"out": str(folder)}))
    assert before == {f: f.read_bytes() for f in folder.rglob("*") if f.is_file() and f.name != ".lock"}


# What is no longer as it was.


def edited(folder, name, value):
    file = folder / "train.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {name: value}))


CHANGES = {
    "a setting": (lambda folder: edited(folder, "rate", 0.5), "--rate was 0.02, and is 0.5"),
    "the seed": (lambda folder: edited(folder, "seed", 7), "--seed was 1, and is 7"),
    "the tokenizer": (
        lambda folder: (folder / "tokenizer.json").write_text((folder / "tokenizer.json").read_text() + " "),
        "tokenizer.json is another file",
    ),
    "the config": (
        lambda folder: (folder / "config.json").write_text((folder / "config.json").read_text() + "\n"),
        "config.json is another file",
    ),
    "the task": (
        lambda folder: (folder / "task.json").write_text((folder / "task.json").read_text() + "\n"),
        "task.json is another file",
    ),
}


@pytest.mark.parametrize("kind", CHANGES)
def test_what_changed_since_the_save_is_told_and_refused(kind, small_run, tmp_path, capsys):
    folder = shutil.copytree(small_run, tmp_path / "run")
    change, says = CHANGES[kind]
    change(folder)
    before = {f: f.read_bytes() for f in folder.rglob("*") if f.is_file() and f.name != ".lock"}
    assert main(["train", "translate", "--resume", "--out", str(folder)]) == 2
    said = capsys.readouterr().err
    assert says in said
    assert "--allow-changed" in said
    assert said.count("\n  ") == 1, "and nothing else"
    assert before == {f: f.read_bytes() for f in folder.rglob("*") if f.is_file() and f.name != ".lock"}
    assert main(["train", "translate", "--resume", "--allow-changed", "--out", str(folder)]) == 0


def test_another_version_is_told_and_refused(small_run, tmp_path, capsys, monkeypatch):
    from regard.training import changes

    folder = shutil.copytree(small_run, tmp_path / "run")
    monkeypatch.setattr(changes, "__version__", "99.0")
    assert main(["train", "translate", "--resume", "--out", str(folder)]) == 2
    assert "and is 99.0" in capsys.readouterr().err


def test_no_save_is_begun_that_cannot_fit(small_run, pairs_file, small, tmp_path, capsys, monkeypatch):
    from collections import namedtuple

    from regard.training import save

    folder = shutil.copytree(small_run, tmp_path / "run")
    newest = folder / (folder / "LATEST").read_text().strip()
    shutil.rmtree(newest)
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(save.shutil, "disk_usage", lambda _: usage(10**9, 10**9, 10_000))
    before = {f: f.read_bytes() for f in folder.rglob("*") if f.parent.name.startswith("step-")}
    assert main(["train", "translate", "--resume", "--out", str(folder)]) == 2
    said = capsys.readouterr().err
    assert "no room for a save" in said
    assert before == {f: f.read_bytes() for f in folder.rglob("*") if f.parent.name.startswith("step-")}
