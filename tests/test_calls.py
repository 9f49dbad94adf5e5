"""A sample of the system calls of a save, broken under strace: benchmarks/syscall_faults.py breaks every one."""

import os
import shutil
import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[1] / "benchmarks"))
import syscall_faults  # noqa: E402

from regard.training.save import keep_newest, save_folder  # noqa: E402

pytestmark = pytest.mark.skipif(not shutil.which("strace"), reason="there is no strace here")


@pytest.mark.parametrize("work", [syscall_faults.save_next, syscall_faults.save_same_name])
def test_whatever_call_is_broken_the_old_state_or_the_new_is_left(work, tmp_path):
    kinds, states, wrong = syscall_faults.inject_faults(work, tmp_path / "run", every=29)
    assert wrong == []
    assert {*kinds} == {"kill", "EIO", "ENOSPC", "short"}
    assert states["old"] > 0


def in_place(folder):
    """No hidden folder."""
    (folder / "step-11").mkdir()
    for file, write in syscall_faults.save_files(syscall_faults.NEW).items():
        write(folder / "step-11" / file)


def room_first(folder):
    """The old ones go before the new one is there."""
    keep_newest(folder, 0)
    syscall_faults.save_next(folder)


def careless(folder):
    """A write that did less than it was asked to is taken for a whole one."""

    def write_once(file):
        handle = os.open(file, os.O_CREAT | os.O_WRONLY)
        os.write(handle, syscall_faults.NEW if file.name == "b.bin" else syscall_faults.NEW[::-1])
        os.close(handle)

    save_folder(folder, "step-11", dict.fromkeys(("a.bin", "b.bin"), write_once))


@pytest.mark.parametrize("work", [in_place, room_first, careless])
def test_a_save_that_is_made_otherwise_is_noticed(work, tmp_path):
    _, _, wrong = syscall_faults.inject_faults(work, tmp_path / "run", every=13)
    assert wrong
