"""A few SIGKILLs and signals at random moments: benchmarks/kill.py and signals.py send hundreds, kill_peers.py kills
other libraries."""

import json
import os
import random
import resource
import signal
import sys
import time
from functools import partial
from pathlib import Path

import pytest
import torch

sys.path.append(str(Path(__file__).parents[1] / "benchmarks"))
import kill  # noqa: E402
import signals  # noqa: E402

from regard.cli import main  # noqa: E402
from regard.cli import train as command  # noqa: E402
from regard.modalities.audio.logmel import LogMel  # noqa: E402
from regard.modalities.image.image_transform import ImageTransform  # noqa: E402
from regard.modalities.molecule.molecules import MoleculeFeaturizer  # noqa: E402
from regard.tasks.sentence_transformers_config import SentenceConfig, write_modules  # noqa: E402
from regard.training import loop  # noqa: E402
from regard.training import run_folder as runs  # noqa: E402
from regard.training.train import train  # noqa: E402


@pytest.fixture(autouse=True, scope="module")
def warm_up(tmp_path_factory):
    kill.warm_up(tmp_path_factory.mktemp("warm"))


@pytest.fixture(autouse=True)
def short(monkeypatch):
    monkeypatch.setitem(kill.COMMON, "--steps", 24)
    monkeypatch.setitem(kill.COMMON, "--evals", 8)


@pytest.fixture
def into_saves(monkeypatch):
    """Every kill is aimed at a checkpoint, which is slowed down, so that it hits even on a busy machine."""
    save_folder = runs.save_folder

    def slowly(parent, name, files, room=0):
        def late(write, path):
            write(path)
            time.sleep(10 * kill.AIM_WINDOW)

        return save_folder(parent, name, {file: partial(late, write) for file, write in files.items()}, room)

    monkeypatch.setattr(runs, "save_folder", slowly)
    for phase in kill.AIMS:
        monkeypatch.setitem(kill.AIMS, phase, float(phase == "save"))


@pytest.mark.parametrize("task", kill.TASKS)
def test_a_run_that_is_killed_repeatedly_ends_with_the_same_bits(task, tmp_path):
    ended, differ, fallen = kill.kill_repeatedly(task, 4, tmp_path, random.Random(task), longest=0.3)
    assert ended >= 1
    assert differ == 0
    assert fallen.total() >= 4


def test_the_comparison_detects_an_inexact_resume(tmp_path, monkeypatch):
    """Here random numbers depend on the process, not on the step."""
    monkeypatch.setattr(loop, "derive_seed", lambda *_: kill.os.getpid())
    _, differ, _ = kill.kill_repeatedly("translate", 2, tmp_path, random.Random(3), longest=0.3)
    assert differ > 0


def test_kills_during_a_checkpoint_do_no_harm(into_saves, tmp_path):
    _, differ, fallen = kill.kill_repeatedly("write", 4, tmp_path, random.Random(1), longest=1.5)
    assert differ == 0
    assert fallen["save", "save"] >= 1


def test_a_checkpoint_written_in_place_is_detected(into_saves, tmp_path, monkeypatch):
    def save_in_place(parent, name, files, room=0):
        (parent / name).mkdir()
        for file, write in files.items():
            (parent / name / file).write_bytes(b"half")
            time.sleep(10 * kill.AIM_WINDOW)
            write(parent / name / file)
        (parent / "LATEST").write_text(name)

    monkeypatch.setattr(runs, "save_folder", save_in_place)
    monkeypatch.setattr(runs, "find_damage", lambda _: "")
    with pytest.raises(SystemExit, match="the same command ended with"):
        kill.kill_repeatedly("write", 2, tmp_path, random.Random(1), longest=1.5)


# Every file of a run folder, not only the checkpoints.


def words(tmp_path, steps=4):
    """A run with a test set."""
    data = kill.write_data("translate", tmp_path / "data")
    more = {"steps": steps, "evals": 2, "average-checkpoints": 2, "test": data}
    return [
        *kill.command("translate", data, tmp_path / "run"),
        *(str(w) for n, v in more.items() for w in (f"--{n}", v)),
    ]


def on_writing(folder, act):
    """Call act(path, flags) before this process opens a file of a folder for writing, until it ends."""

    def hook(event, args):
        if event == "open" and isinstance(args[0], str | Path) and Path(args[0]).is_relative_to(folder):
            flags = args[2] if isinstance(args[2], int) else 0
            if flags & (os.O_WRONLY | os.O_RDWR):
                act(Path(args[0]), flags)

    sys.addaudithook(hook)


@pytest.mark.parametrize("name", ["tokenizer.json", "train.json", "metrics.jsonl", "README.md"])
def test_a_kill_while_a_file_is_written_loses_nothing(name, tmp_path):
    """The kill comes when the file is open and empty."""
    command_line = words(tmp_path)

    def fall(path, flags):
        if path.name.removeprefix(".") == name:
            if not path.exists():
                os.mknod(path)
            elif flags & os.O_TRUNC:
                os.truncate(path, 0)
            os.kill(os.getpid(), signal.SIGKILL)

    assert kill.run_in_child(lambda: on_writing(tmp_path / "run", fall) or main(command_line)) == -signal.SIGKILL
    assert kill.run_in_child(lambda: main(command_line)) == 0
    assert not [file.name for file in (tmp_path / "run").glob(".*") if file.name != runs.LOCK_FILE]
    lines = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert [[line["step"] for line in lines if kind in line] for kind in ("loss", "test")] == [[1, 2, 3, 4], [4]]


def test_an_empty_train_json_without_checkpoints_is_a_new_run(tmp_path):
    command_line = words(tmp_path)
    (tmp_path / "run").mkdir()
    for name in (runs.LOCK_FILE, "train.json"):
        (tmp_path / "run" / name).touch()
    assert kill.run_in_child(lambda: main(command_line)) == 0
    (tmp_path / "run" / "train.json").write_text("")
    assert main(command_line) == 2, "it has checkpoints"


def test_no_file_of_a_run_is_written_in_place(tmp_path):
    """Only metrics.jsonl grows, a line at a time."""
    seen, command_line = tmp_path / "seen", words(tmp_path)

    def note(path, flags):
        if path != seen:
            with seen.open("a") as stream:
                stream.write(f"{flags & os.O_APPEND} {path.relative_to(tmp_path)}\n")

    def write_all():
        on_writing(tmp_path, note)
        for reader in (
            LogMel(8000, 16, 2, 256, 80),
            ImageTransform(8, 1, (0.5,), (0.5,)),
            MoleculeFeaturizer(("C", "N")),
        ):
            reader.save(tmp_path)
        write_modules(tmp_path, SentenceConfig("mean", True, 64))
        return main(command_line)

    (tmp_path / "config.json").write_text('{"model_type": "bert", "hidden_size": 8}')
    assert kill.run_in_child(write_all) == 0
    written = [line.split(" ", 1) for line in seen.read_text().splitlines()]
    names = {Path(path) for appends, path in written if not int(appends)}
    expected = {"config.json", "tokenizer.json", "tokenizer_config.json", "task.json", "train.json", "modules.json"}
    expected |= {"logmel.json", "molecules.json", "preprocessor_config.json", "loss.png", "README.md"}
    assert {path.name for path in names} >= {f".{name}" for name in expected}
    assert [str(path) for path in names if not any(part.startswith(".") for part in path.parts)] == []


def test_temporary_files_of_safetensors_are_removed(tmp_path):
    """It writes a temporary file and renames it; here the system kills it when a file gets too long."""
    command_line = words(tmp_path)

    def limited():
        resource.setrlimit(resource.RLIMIT_FSIZE, (12_000, 12_000))
        signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
        return main(command_line)

    assert kill.run_in_child(limited) == -signal.SIGXFSZ
    left = [file for file in (tmp_path / "run").glob(".*") if file.name != runs.LOCK_FILE]
    assert any(file.name.startswith(".tmp") for file in left)
    assert kill.run_in_child(lambda: main(command_line)) == 0
    assert not [file for file in left if file.exists()]


def everything(folder):
    return {
        str(f.relative_to(folder)): (f.read_bytes(), f.stat().st_mtime_ns) for f in folder.rglob("[!.]*") if f.is_file()
    }


def test_a_finished_run_does_not_change(tmp_path, capsys):
    command_line, run = words(tmp_path), tmp_path / "run"
    assert kill.run_in_child(lambda: main(command_line)) == 0
    before = everything(run)
    for args in command_line, ["train", "translate", "--resume", "--output-dir", str(run)]:
        assert main(args) == 0
        assert everything(run) == before
        assert "a finished run" in capsys.readouterr().out
    assert list(train("translate", output_dir=run, resume=True)) == []
    assert (run / "metrics.jsonl").read_bytes() == before["metrics.jsonl"][0]


def test_a_peer_that_overwrites_its_checkpoint_loses_it_to_a_full_disk(tmp_path, monkeypatch):
    import kill_peers

    monkeypatch.setattr(kill_peers, "STEPS", 10)
    plain = kill_peers.PEERS[-1]
    assert kill_peers.full_disk(plain, 2, tmp_path) == (0, 0)


# Ctrl-C and SIGTERM.


def test_signals_at_random_moments_lose_nothing(tmp_path):
    tallies, ended, differ = signals.signal_repeatedly("write", 6, tmp_path, random.Random(1))
    assert [tally.failures for tally in tallies.values()] == [[], []]
    assert ended >= 1
    assert differ == 0


def test_a_handler_that_saves_during_a_step_is_detected(tmp_path, monkeypatch):
    def hasty(job, resume):
        def save_now(number, _):
            with torch.no_grad():  # as if the optimizer had updated a part of the weights, whenever the signal comes
                next(job.progress.model.parameters()).add_(1e-3)
            job.save()
            print(resume, flush=True)
            os._exit(128 + number)

        for sign in signals.EXIT_CODES:
            signal.signal(sign, save_now)
        for _ in job.train():
            pass
        return 0

    for phase in kill.AIMS:
        monkeypatch.setitem(kill.AIMS, phase, 0.0)
    monkeypatch.setattr(kill, "STARTED_SHARE", 1.0)
    monkeypatch.setattr(command, "train_and_print", hasty)
    tallies, _, differ = signals.signal_repeatedly("write", 4, tmp_path, random.Random(1))
    assert differ or any(tally.failures for tally in tallies.values())
