"""Some system calls of a save fail under strace; benchmarks/syscall_faults.py lets every one fail."""

import os
import shutil
import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[1] / "benchmarks"))
import syscall_faults  # noqa: E402

from regard.training.checkpoint import keep_newest, save_folder  # noqa: E402

pytestmark = pytest.mark.skipif(not shutil.which("strace"), reason="strace is not installed")


@pytest.mark.parametrize("work", [syscall_faults.save_next, syscall_faults.save_same_name])
def test_after_any_failing_call_the_folder_holds_the_old_state_or_the_new(work, tmp_path):
    kinds, states, wrong = syscall_faults.inject_faults(work, tmp_path / "run", every=29)
    assert wrong == []
    assert {*kinds} == {"kill", "EIO", "ENOSPC", "short"}
    assert states["old"] > 0


def without_hidden_folder(folder):
    """Writes to the final folder."""
    (folder / "step-11").mkdir()
    for file, write in syscall_faults.save_files(syscall_faults.NEW).items():
        write(folder / "step-11" / file)


def delete_first(folder):
    """Deletes the old saves before the new one exists."""
    keep_newest(folder, 0)
    syscall_faults.save_next(folder)


def ignore_short_writes(folder):
    """Takes a short write for a complete one."""

    def write_once(file):
        handle = os.open(file, os.O_CREAT | os.O_WRONLY)
        os.write(handle, syscall_faults.NEW if file.name == "b.bin" else syscall_faults.NEW[::-1])
        os.close(handle)

    save_folder(folder, "step-11", dict.fromkeys(("a.bin", "b.bin"), write_once))


@pytest.mark.parametrize("work", [without_hidden_folder, delete_first, ignore_short_writes])
def test_an_unsafe_save_is_noticed(work, tmp_path):
    _, _, wrong = syscall_faults.inject_faults(work, tmp_path / "run", every=13)
    assert wrong
