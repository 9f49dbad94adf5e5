"""A few of the faults that benchmarks/faults.py injects by the hundred; and a defect of ours would be noticed."""

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
from regard.data.batches import Position, forever  # noqa: E402
from regard.training import loop, run  # noqa: E402


@pytest.fixture(scope="module")
def finished_run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("faults")
    faults.warm_up(folder)
    return faults.finished_run(folder)


def test_a_full_disk_costs_no_save(finished_run):
    assert faults.full_disk(finished_run, 3) == 3


@pytest.mark.parametrize("name", ["config.json", "tokenizer.json", "model.safetensors", "metrics.jsonl"])
def test_a_full_disk_is_told_with_the_name_of_the_file(name, finished_run, tmp_path):
    """In a process that may write no file as long as this one is; shorter ones come before it."""
    again = kill.command("translate", finished_run.parent / "data" / "translate.tsv", tmp_path / "run")
    said, say = os.pipe()
    size = 5000 if name == "metrics.jsonl" else (finished_run / name).stat().st_size

    def limited():
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (size - 1, size - 1))
        with os.fdopen(say, "w") as stream, redirect_stderr(stream):
            return main([*again, "--checks", "1"] if name == "metrics.jsonl" else again)

    assert kill.run_in_child(limited) == 2
    os.close(say)
    with os.fdopen(said) as stream:
        assert stream.read() == f"regard: {tmp_path / 'run' / name}: cannot be written: File too large\n"


def test_a_save_that_makes_room_first_is_noticed(finished_run, monkeypatch):
    whole = run.save_folder

    def hasty(parent, *args, **more):
        run.keep_newest(parent, 0)
        return whole(parent, *args, **more)

    monkeypatch.setattr(run, "save_folder", hasty)
    monkeypatch.setattr(run.Run, "publish", lambda *_: None)  # so that the disk is full in the save
    assert faults.full_disk(finished_run, 3) < 3


def test_a_number_that_is_none_stops_at_its_step(tmp_path):
    assert faults.nan_losses(tmp_path / "poisoned", 2) == 2


def test_a_check_that_comes_too_late_is_noticed(tmp_path, monkeypatch):
    monkeypatch.setattr(loop.math, "isfinite", lambda _: True)
    assert faults.nan_losses(tmp_path / "poisoned", 1) == 0


def test_damage_is_found_and_the_save_before_is_used(finished_run):
    assert faults.corrupted_saves(finished_run, 10, random.Random(2)) == (10, 10)


def test_a_look_at_sizes_alone_is_noticed(finished_run, monkeypatch):
    def sizes_alone(folder):
        with suppress(ValueError):
            told = json.loads((folder / "manifest.json").read_bytes())
            return any((folder / file).stat().st_size != want["bytes"] for file, want in told.items())
        return True

    monkeypatch.setattr(faults, "damage", sizes_alone)
    found, _ = faults.corrupted_saves(finished_run, 10, random.Random(3))
    assert found < 10


def test_restarts_lose_and_repeat_nothing():
    assert faults.random_restarts(40, random.Random(3)) == 40


def test_a_position_that_is_forgotten_is_noticed(monkeypatch):
    def forgetful(examples, budget, seed, start=None):
        return forever(examples, budget, seed, Position(start.epoch if start else 0, 0))

    monkeypatch.setattr(faults, "forever", forgetful)
    assert faults.random_restarts(20, random.Random(3)) < 20
