"""A few of the signals that benchmarks/signals.py sends by the hundred; and a handler of ours in a hurry is noticed."""

import os
import random
import signal
import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[1] / "benchmarks"))
import kill  # noqa: E402
import signals  # noqa: E402

from regard.cli import train as command  # noqa: E402


@pytest.fixture(autouse=True, scope="module")
def warm(tmp_path_factory):
    kill.warm(tmp_path_factory.mktemp("warm"))


@pytest.fixture(autouse=True)
def short(monkeypatch):
    monkeypatch.setitem(kill.COMMON, "steps", 40)
    monkeypatch.setitem(kill.COMMON, "checks", 20)


def test_signals_once_or_twice_at_any_moment_cost_nothing(tmp_path):
    tallies, ended, differ = signals.stopped("write", 8, tmp_path, random.Random(1))
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
