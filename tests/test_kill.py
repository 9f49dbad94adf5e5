"""The plug is pulled a few times, at random: benchmarks/kill.py does it two hundred times."""

import random
import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[1] / "benchmarks"))
import kill  # noqa: E402

from regard.training import loop  # noqa: E402


@pytest.mark.parametrize("task", kill.TASKS)
def test_a_run_that_is_killed_again_and_again_ends_as_if_it_never_was(task, tmp_path, monkeypatch):
    monkeypatch.setitem(kill.COMMON, "steps", 40)
    monkeypatch.setitem(kill.COMMON, "checks", 20)
    ended, differ, fallen = kill.killed(task, 4, tmp_path, random.Random(task), longest=1.5)
    assert ended >= 1
    assert differ == 0
    assert fallen.total() >= 4


def test_the_comparison_sees_a_run_that_does_not_resume_exactly(tmp_path, monkeypatch):
    """Random numbers that follow from the process instead of the step: what others have lost by."""
    monkeypatch.setitem(kill.COMMON, "steps", 40)
    monkeypatch.setitem(kill.COMMON, "checks", 20)
    monkeypatch.setattr(loop, "number_from", lambda seed, step: kill.os.getpid())
    _, differ, _ = kill.killed("translate", 2, tmp_path, random.Random(3), longest=1.5)
    assert differ > 0
