"""Break a save at each of its system calls, under strace: the old state or the new one is left, never neither or a mix.

    python benchmarks/syscall_faults.py [--every 1] [--out runs/calls]

kill    SIGKILL when the call is about to be made
error   the call fails: EIO for each, and ENOSPC for those that ask for room
short   no file may grow beyond so many bytes: a write does less than it was asked to, and the next one fails
What is broken is a save of two small files, the removal of the oldest save, and the replacing of one file; and a save
under a name that is there already. After each fault the next save is made in peace, and must succeed.
"""

from __future__ import annotations

import argparse
import mmap
import os
import resource
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

from regard.atomic import replace_file
from regard.training.save import LATEST, damage, keep_newest, recover, save_folder, saves

OLDEST, OLD, NEW = (word * 40 for word in (b"the oldest state", b"old state", b"the new state"))
CALLS = "%file,%desc"  # all that name a file or use one
ROOM = ("mkdir", "openat", "write", "fsync", "rename")  # what may find the disk full
Work = Callable[[Path], None]
Fault = Callable[[], object]


def save_files(content: bytes) -> dict[str, Callable[[Path], object]]:
    return {"a.bin": lambda file: file.write_bytes(content[::-1]), "b.bin": lambda file: file.write_bytes(content)}


def begun(folder: Path) -> Path:
    """A folder with two saves and a model."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    save_folder(folder, "step-9", save_files(OLDEST))
    save_folder(folder, "step-10", save_files(OLD))
    (folder / "model").write_bytes(OLD)
    return folder


def save_next(folder: Path, name: str = "step-11") -> None:
    save_folder(folder, name, save_files(NEW))
    keep_newest(folder, 2)
    replace_file(folder / "model", NEW)


def save_same_name(folder: Path) -> None:
    save_next(folder, "step-10")


def state(folder: Path) -> str:
    """What a run would go on from: new or old; anything else is what is wrong."""
    recover(folder)
    if not saves(folder):
        return "there is no save"
    newest = saves(folder)[0]
    if wrong := damage(newest):
        return wrong
    latest = folder / (folder / LATEST).read_text().strip()
    if latest.exists() and damage(latest):
        return f"{LATEST} names {damage(latest)}"
    if (folder / "model").read_bytes() not in (OLD, NEW):
        return "the model is neither the old nor the new one"
    found = [(newest / name).read_bytes() for name in ("b.bin", "a.bin")]
    for name, content in (("new", NEW), ("old", OLD), ("the save before the old one", OLDEST)):
        if found == [content, content[::-1]]:
            return name
    return f"{newest.name} is a mix"


def child(work: Callable[[], None]) -> int:
    """The id of a process that does the work."""
    number = os.fork()
    if number == 0:
        try:
            work()
        finally:
            os._exit(0)
    return number


def attached(process: int) -> bool:
    return "TracerPid:\t0\n" not in Path(f"/proc/{process}/status").read_text()


def traced(work: Work, folder: Path, *faults: str) -> Counter[str]:
    """Do the work in a process under strace with such faults; which calls it made."""
    log = folder.with_name("strace.txt")
    go = mmap.mmap(-1, 1)  # shared with the child, which makes none of the traced calls while it waits

    def wait_then_work() -> None:
        while not go[0]:
            time.sleep(0.001)
        work(folder)

    process = child(wait_then_work)
    words = ["strace", "-qq", "-o", str(log), "-e", f"trace={CALLS}", *faults, "-p", str(process)]
    with subprocess.Popen(words) as strace:
        while not attached(process):
            if strace.poll() is not None:
                os.kill(process, signal.SIGKILL)
                os.waitpid(process, 0)
                raise SystemExit("strace may not watch a process here, so no system call was broken")
            time.sleep(0.001)
        go[0] = 1
        os.waitpid(process, 0)
    go.close()
    return Counter(line.split("(")[0] for line in log.read_text().splitlines() if "(" in line)


def shortened(work: Work, folder: Path, limit: int) -> None:
    """Do the work in a process that may write no file longer than that."""

    def within() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
        work(folder)

    os.waitpid(child(within), 0)


def faults_of(work: Work, folder: Path) -> Iterator[tuple[str, Fault]]:
    """Every fault that can come over the work: its kind, and how to let it come."""
    made = traced(work, begun(folder))
    for call, count in sorted(made.items()):
        kinds = {"kill": "signal=KILL", "EIO": "error=EIO", **({"ENOSPC": "error=ENOSPC"} if call in ROOM else {})}
        for kind, fault in kinds.items():
            for index in range(1, count + 1):
                inject = f"inject={call}:{fault}:when={index}"
                yield kind, lambda inject=inject: traced(work, begun(folder), "-e", inject)
    largest = max(file.stat().st_size for file in folder.rglob("*") if file.is_file())
    for limit in range(0, largest + 1, 4):
        yield "short", lambda limit=limit: shortened(work, begun(folder), limit)


def some_of(faults: list[tuple[str, Fault]], every: int) -> list[tuple[str, Fault]]:
    """One in so many of each kind, so that none is left out wherever the calls happen to fall."""
    kinds = sorted({kind for kind, _ in faults})
    return [fault for kind in kinds for fault in [each for each in faults if each[0] == kind][::every]]


def inject_faults(work: Work, folder: Path, every: int = 1) -> tuple[Counter[str], Counter[str], list[str]]:
    """How many faults of each kind were tried, in which states they left the folder, and what was wrong."""
    kinds, states, wrong = Counter[str](), Counter[str](), list[str]()
    for kind, strike in some_of(list(faults_of(work, folder)), every):
        strike()
        kinds[kind] += 1
        states[left := state(folder)] += 1
        if left not in ("old", "new"):
            wrong.append(f"{kind}: {left}")
            continue
        save_next(folder, "step-12")
        if state(folder) != "new" or any(file.name.startswith(".") for file in folder.iterdir()):
            wrong.append(f"{kind}: the next save is not as it should be")
    return kinds, states, wrong


def cli() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--every", type=int, default=1, help="try one fault of so many")
    parser.add_argument("--out", type=Path, default=Path("runs/calls"))
    given = parser.parse_args()
    if not shutil.which("strace"):
        print("skipped: there is no strace here (apt-get install strace)")
        return 0
    bad = 0
    for work, what in ((save_next, "another save"), (save_same_name, "a save under a name that is there")):
        kinds, states, wrong = inject_faults(work, given.out / "run", given.every)
        for line in wrong:
            print(line)
        tried = ", ".join(f"{kind} {count}" for kind, count in kinds.items())
        left = ", ".join(f"{states[name]} {name}" for name in ("old", "new") if states[name])
        print(f"| a system call of {what} broken ({tried}) | {kinds.total()} faults | {left}; wrong: {len(wrong)} |")
        bad += len(wrong)
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(cli())
