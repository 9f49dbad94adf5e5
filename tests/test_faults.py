"""A few of the faults that benchmarks/faults.py injects by the hundred; planted defects are detected."""

import json
import os
import random
import resource
import signal
import sys
from contextlib import redirect_stderr, suppress
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[1] / "benchmarks"))
import faults  # noqa: E402
import kill  # noqa: E402

from regard.cli import main  # noqa: E402
from regard.data.batches import Position, iterate_batches  # noqa: E402
from regard.training import loop, run_folder  # noqa: E402


@pytest.fixture(scope="module")
def finished_run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("faults")
    faults.warm_up(folder)
    return faults.finished_run(folder)


def test_a_full_disk_loses_no_checkpoint(finished_run):
    assert faults.full_disk(finished_run, 3) == 3


@pytest.mark.parametrize("name", ["config.json", "tokenizer.json", "model.safetensors", "metrics.jsonl"])
def test_a_full_disk_names_the_file(name, finished_run, tmp_path):
    """The process may write no file as long as this one; shorter files come before it."""
    command = kill.command("translate", finished_run.parent / "data" / "translate.tsv", tmp_path / "run")
    read_end, write_end = os.pipe()
    size = 5000 if name == "metrics.jsonl" else (finished_run / name).stat().st_size

    def limited():
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (size - 1, size - 1))
        with os.fdopen(write_end, "w") as stream, redirect_stderr(stream):
            return main([*command, "--evals", "1"] if name == "metrics.jsonl" else command)

    assert kill.run_in_child(limited) == 2
    os.close(write_end)
    with os.fdopen(read_end) as stream:
        assert stream.read() == f"regard: {tmp_path / 'run' / name}: cannot be written: File too large\n"


def test_deleting_old_checkpoints_first_is_detected(finished_run, monkeypatch):
    save_folder = run_folder.save_folder

    def hasty(parent, *args, **more):
        run_folder.keep_newest(parent, 0)
        return save_folder(parent, *args, **more)

    monkeypatch.setattr(run_folder, "save_folder", hasty)
    monkeypatch.setattr(run_folder.RunFolder, "publish", lambda *_: None)  # the disk is full during the checkpoint
    assert faults.full_disk(finished_run, 3) < 3


def test_a_nan_loss_stops_at_its_step(tmp_path):
    assert faults.nan_losses(tmp_path / "poisoned", 2) == 2


def test_a_missing_finiteness_check_is_detected(tmp_path, monkeypatch):
    monkeypatch.setattr(loop.math, "isfinite", lambda _: True)
    assert faults.nan_losses(tmp_path / "poisoned", 1) == 0


def test_damage_is_detected_and_the_checkpoint_before_is_used(finished_run):
    assert faults.corrupted_saves(finished_run, 10, random.Random(2)) == (10, 10)


def test_comparing_sizes_only_is_detected(finished_run, monkeypatch):
    def sizes_alone(folder):
        with suppress(ValueError):
            manifest = json.loads((folder / "manifest.json").read_bytes())
            return any((folder / file).stat().st_size != entry["bytes"] for file, entry in manifest.items())
        return True

    monkeypatch.setattr(faults, "find_damage", sizes_alone)
    detected, _ = faults.corrupted_saves(finished_run, 10, random.Random(3))
    assert detected < 10


def test_restarts_lose_and_repeat_no_batch():
    assert faults.random_restarts(40, random.Random(3)) == 40


def test_a_lost_position_is_detected(monkeypatch):
    def forgetful(examples, budget, seed, start=None):
        return iterate_batches(examples, budget, seed, Position(start.epoch if start else 0, 0))

    monkeypatch.setattr(faults, "iterate_batches", forgetful)
    assert faults.random_restarts(20, random.Random(3)) < 20
