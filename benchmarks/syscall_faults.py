"""Fault injection into every system call of a save, under strace: the old or the new state must remain, never a mix.

    python benchmarks/syscall_faults.py [--every 1] [-o runs/syscall_faults]

kill    SIGKILL on entry of the call
error   the call fails: with EIO, and with ENOSPC where it allocates space
short   no file may grow beyond a limit (RLIMIT_FSIZE): a write is short, and the next one fails
The faults hit a save of two small files, the removal of the oldest save and the replacement of a file; and a save under
an existing name. After each fault the next save runs without faults and must succeed.
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
from regard.training.checkpoint import LATEST, find_damage, keep_newest, list_checkpoints, recover, save_folder

OLDEST, OLD, NEW = (word * 40 for word in (b"the oldest state", b"old state", b"the new state"))
SYSCALLS = "%file,%desc"  # every call with a file name or a file descriptor
ALLOCATING = ("mkdir", "openat", "write", "fsync", "rename")  # calls that may fail with ENOSPC
Work = Callable[[Path], None]
Fault = Callable[[], object]


def save_files(content: bytes) -> dict[str, Callable[[Path], object]]:
    return {"a.bin": lambda file: file.write_bytes(content[::-1]), "b.bin": lambda file: file.write_bytes(content)}


def initial_folder(folder: Path) -> Path:
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


def resumed_state(folder: Path) -> str:
    """The state that a run would resume from: "new" or "old"; any other text describes a failure."""
    recover(folder)
    if not list_checkpoints(folder):
        return "there is no save"
    newest = list_checkpoints(folder)[0]
    if problem := find_damage(newest):
        return problem
    latest = folder / (folder / LATEST).read_text().strip()
    if latest.exists() and find_damage(latest):
        return f"{LATEST} names {find_damage(latest)}"
    if (folder / "model").read_bytes() not in (OLD, NEW):
        return "the model is neither the old nor the new one"
    stored = [(newest / name).read_bytes() for name in ("b.bin", "a.bin")]
    for name, content in (("new", NEW), ("old", OLD), ("the save before the old one", OLDEST)):
        if stored == [content, content[::-1]]:
            return name
    return f"{newest.name} is a mix"


def fork_child(work: Callable[[], None]) -> int:
    """Process id of a child that runs `work`."""
    process = os.fork()
    if process == 0:
        try:
            work()
        finally:
            os._exit(0)
    return process


def is_traced(process: int) -> bool:
    return "TracerPid:\t0\n" not in Path(f"/proc/{process}/status").read_text()


def run_traced(work: Work, folder: Path, *faults: str) -> Counter[str]:
    """Run `work` in a child under strace with these faults; returns the number of calls of each name."""
    log = folder.with_name("strace.txt")
    start = mmap.mmap(-1, 1)  # shared with the child, which makes none of the traced calls while it waits

    def wait_then_work() -> None:
        while not start[0]:
            time.sleep(0.001)
        work(folder)

    process = fork_child(wait_then_work)
    command = ["strace", "-qq", "-o", str(log), "-e", f"trace={SYSCALLS}", *faults, "-p", str(process)]
    with subprocess.Popen(command) as strace:
        while not is_traced(process):
            if strace.poll() is not None:
                os.kill(process, signal.SIGKILL)
                os.waitpid(process, 0)
                raise SystemExit("strace is not allowed to trace a process here, so no fault was injected")
            time.sleep(0.001)
        start[0] = 1
        os.waitpid(process, 0)
    start.close()
    return Counter(line.split("(")[0] for line in log.read_text().splitlines() if "(" in line)


def run_limited(work: Work, folder: Path, limit: int) -> None:
    """Run `work` in a child that cannot write a file longer than `limit` bytes."""

    def limited() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
        work(folder)

    os.waitpid(fork_child(limited), 0)


def list_faults(work: Work, folder: Path) -> Iterator[tuple[str, Fault]]:
    """Every fault of `work`: its kind, and a function that injects it."""
    syscalls = run_traced(work, initial_folder(folder))
    for call, count in sorted(syscalls.items()):
        errors = {"ENOSPC": "error=ENOSPC"} if call in ALLOCATING else {}
        for kind, fault in {"kill": "signal=KILL", "EIO": "error=EIO", **errors}.items():
            for index in range(1, count + 1):
                inject = f"inject={call}:{fault}:when={index}"
                yield kind, lambda inject=inject: run_traced(work, initial_folder(folder), "-e", inject)
    largest = max(file.stat().st_size for file in folder.rglob("*") if file.is_file())
    for limit in range(0, largest + 1, 4):
        yield "short", lambda limit=limit: run_limited(work, initial_folder(folder), limit)


def subsample(faults: list[tuple[str, Fault]], every: int) -> list[tuple[str, Fault]]:
    """Every n-th fault of each kind, so that no kind is left out."""
    kinds = sorted({kind for kind, _ in faults})
    return [fault for kind in kinds for fault in [f for f in faults if f[0] == kind][::every]]


def inject_faults(work: Work, folder: Path, every: int = 1) -> tuple[Counter[str], Counter[str], list[str]]:
    """Numbers of faults by kind and by the state that they left, and the failures."""
    kinds, states, failures = Counter[str](), Counter[str](), list[str]()
    for kind, inject in subsample(list(list_faults(work, folder)), every):
        inject()
        kinds[kind] += 1
        states[state := resumed_state(folder)] += 1
        if state not in ("old", "new"):
            failures.append(f"{kind}: {state}")
            continue
        save_next(folder, "step-12")
        if resumed_state(folder) != "new" or any(file.name.startswith(".") for file in folder.iterdir()):
            failures.append(f"{kind}: the next save is incomplete, or leaves temporary files")
    return kinds, states, failures


def cli() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--every", type=int, default=1, help="inject every n-th fault")
    parser.add_argument("-o", "--output-dir", type=Path, default=Path("runs/syscall_faults"))
    args = parser.parse_args()
    if not shutil.which("strace"):
        print("skipped: strace is not installed (apt-get install strace)")
        return 0
    total_failures = 0
    for work, title in ((save_next, "a new save"), (save_same_name, "a save under an existing name")):
        kinds, states, failures = inject_faults(work, args.output_dir / "run", args.every)
        for line in failures:
            print(line)
        by_kind = ", ".join(f"{kind} {count}" for kind, count in kinds.items())
        by_state = ", ".join(f"{states[name]} {name} state" for name in ("old", "new") if states[name])
        print(
            f"| fault in a system call of {title} ({by_kind}) | {kinds.total()} faults "
            f"| {by_state}; failures: {len(failures)} |"
        )
        total_failures += len(failures)
    return 1 if total_failures else 0


if __name__ == "__main__":
    sys.exit(cli())
