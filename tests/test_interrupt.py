"""Ctrl-C and SIGTERM in the middle of a run: it saves, says how to go on, and going on gives the uninterrupted run."""

import json
import shlex
import signal
import subprocess
import sys
import time

import pytest

from regard.cli import main

HOW = "--steps 300 --checks 3 --batch-tokens 300 --dropout 0.2 --threads 1"


def same_run(one, other):
    """The kept weights and the whole newest state, bit for bit, and every loss."""
    losses = [
        [json.loads(line).get("loss") for line in (run / "metrics.jsonl").read_text().splitlines()]
        for run in (one, other)
    ]
    files = ("model.safetensors", "step-300/state.safetensors", "step-300/state.json")
    return losses[0] == losses[1] and all((one / f).read_bytes() == (other / f).read_bytes() for f in files)


@pytest.fixture(scope="module")
def uninterrupted(pairs_file, small, tmp_path_factory):
    folder = tmp_path_factory.mktemp("whole") / "run"
    assert main(["train", "translate", "--data", str(pairs_file), "--out", str(folder), *HOW.split(), *small]) == 0
    return folder


@pytest.mark.parametrize(("sent", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_saves_and_the_run_goes_on_as_if_nothing_was(sent, code, uninterrupted, pairs_file, small, tmp_path):
    folder = tmp_path / "run"
    command = ["train", "translate", "--data", str(pairs_file), "--out", str(folder), *HOW.split(), *small]
    process = subprocess.Popen([sys.executable, "-m", "regard", *command], stdout=subprocess.PIPE, text=True)
    metrics = folder / "metrics.jsonl"
    while process.poll() is None and (not metrics.exists() or metrics.read_bytes().count(b"\n") < 30):
        time.sleep(0.01)
    process.send_signal(sent)
    said = process.communicate(timeout=60)[0]
    assert process.returncode == code
    go_on = shlex.split(said.splitlines()[-1])
    assert go_on[0] == "regard"
    assert not (folder / "step-300").exists(), "the signal came too late to test anything"
    assert main(go_on[1:]) == 0
    assert same_run(folder, uninterrupted)


def test_a_killed_run_goes_on_from_its_newest_save(uninterrupted, pairs_file, small, tmp_path):
    folder = tmp_path / "run"
    command = ["train", "translate", "--data", str(pairs_file), "--out", str(folder), *HOW.split(), *small]
    process = subprocess.Popen([sys.executable, "-m", "regard", *command], stdout=subprocess.DEVNULL)
    while process.poll() is None and not (folder / "LATEST").exists():
        time.sleep(0.01)
    process.kill()
    process.wait()
    assert main(["train", "translate", "--resume", "--out", str(folder)]) == 0
    assert same_run(folder, uninterrupted)


def test_a_folder_in_use_is_refused_with_the_process_that_has_it(small_run, pairs_file, capsys):
    sleeper = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    (small_run / ".lock").write_text(str(sleeper.pid))
    try:
        assert main(["train", "translate", "--resume", "--out", str(small_run)]) == 2
        assert str(sleeper.pid) in capsys.readouterr().err
    finally:
        sleeper.communicate()
        (small_run / ".lock").unlink()
