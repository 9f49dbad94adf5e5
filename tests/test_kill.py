"""The plug is pulled a few times, and signals are sent: benchmarks/kill.py and signals.py do it by the hundred, and
kill_peers.py to others."""

import os
import random
import signal
import sys
import time
from functools import partial
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[1] / "benchmarks"))
import kill  # noqa: E402
import signals  # noqa: E402

from regard.cli import train as command  # noqa: E402
from regard.training import loop  # noqa: E402
from regard.training import run as runs  # noqa: E402


@pytest.fixture(autouse=True, scope="module")
def warm(tmp_path_factory):
    kill.warm(tmp_path_factory.mktemp("warm"))


@pytest.fixture(autouse=True)
def short(monkeypatch):
    monkeypatch.setitem(kill.COMMON, "steps", 24)
    monkeypatch.setitem(kill.COMMON, "checks", 8)


@pytest.fixture
def into_saves(monkeypatch):
    """Every blow is aimed at a save, which takes long enough to be hit by a process that has to wait for its turn."""
    whole = runs.save_folder

    def slowly(parent, name, files, room=0):
        def late(write, path):
            write(path)
            time.sleep(10 * kill.REACH)

        return whole(parent, name, {file: partial(late, write) for file, write in files.items()}, room)

    monkeypatch.setattr(runs, "save_folder", slowly)
    for phase in kill.AIMS:
        monkeypatch.setitem(kill.AIMS, phase, float(phase == "save"))


@pytest.mark.parametrize("task", kill.TASKS)
def test_a_run_that_is_killed_again_and_again_ends_as_if_it_never_was(task, tmp_path):
    ended, differ, fallen = kill.killed(task, 4, tmp_path, random.Random(task), longest=0.3)
    assert ended >= 1
    assert differ == 0
    assert fallen.total() >= 4


def test_the_comparison_sees_a_run_that_does_not_resume_exactly(tmp_path, monkeypatch):
    """Random numbers that follow from the process instead of the step: what others have lost by."""
    monkeypatch.setattr(loop, "number_from", lambda seed, step: kill.os.getpid())
    _, differ, _ = kill.killed("translate", 2, tmp_path, random.Random(3), longest=0.3)
    assert differ > 0


def test_blows_that_are_aimed_at_saves_fall_into_saves_and_do_no_harm(into_saves, tmp_path):
    _, differ, fallen = kill.killed("write", 4, tmp_path, random.Random(1), longest=1.5)
    assert differ == 0
    assert fallen["save", "save"] >= 1


def test_a_save_that_is_written_in_its_place_is_noticed(into_saves, tmp_path, monkeypatch):
    def in_place(parent, name, files, room=0):
        (parent / name).mkdir()
        for file, write in files.items():
            (parent / name / file).write_bytes(b"half")
            time.sleep(10 * kill.REACH)
            write(parent / name / file)
        (parent / "LATEST").write_text(name)

    monkeypatch.setattr(runs, "save_folder", in_place)
    monkeypatch.setattr(runs, "damage", lambda _: "")
    with pytest.raises(SystemExit, match="the same command ended with"):
        kill.killed("write", 2, tmp_path, random.Random(1), longest=1.5)


def test_a_peer_that_saves_over_its_one_file_loses_it_to_a_full_disk(tmp_path, monkeypatch):
    import kill_peers

    monkeypatch.setattr(kill_peers, "STEPS", 10)
    plain = kill_peers.PEERS[-1]
    assert kill_peers.full_disk(plain, 2, tmp_path) == (0, 0)


# Ctrl-C and SIGTERM.


def test_signals_once_or_twice_at_any_moment_cost_nothing(tmp_path):
    tallies, ended, differ = signals.stopped("write", 6, tmp_path, random.Random(1))
    assert [tally.wrong for tally in tallies.values()] == [[], []]
    assert ended >= 1
    assert differ == 0


def test_a_handler_that_saves_in_the_middle_of_a_step_is_noticed(tmp_path, monkeypatch):
    def hasty(job, go_on):
        def save_now(number, _):
            command.save(job)
            print(go_on, flush=True)
            os._exit(128 + number)

        for sign in signals.LEFT:
            signal.signal(sign, save_now)
        for _ in command.carry_out(job):
            pass
        return 0

    for phase in kill.AIMS:
        monkeypatch.setitem(kill.AIMS, phase, 0.0)
    monkeypatch.setattr(kill, "BEGUN", 1.0)
    monkeypatch.setattr(command, "follow", hasty)
    tallies, _, differ = signals.stopped("write", 4, tmp_path, random.Random(1))
    assert differ or any(tally.wrong for tally in tallies.values())
