"""Faults of a run on several ranks: one is killed or signalled, all end, and the same command ends with the same bits.

    python benchmarks/rank_faults.py [--faults 100] [--shards 1] [-o runs/rank-faults]

Each fault comes in a step, a validation or a save, to one of two ranks or to torchrun itself: SIGKILL (of a rank),
SIGTERM or SIGINT. Everything must end within 60 s, without a process left, and with an intact checkpoint if there was
one; the next start may have the next fault. At the end, weights, optimizer state and metrics must equal those of an
uninterrupted run: one process for replicas, the same ranks for shards.
"""

from __future__ import annotations

import argparse
import mmap
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import NamedTuple

from kill import PHASES, command, mark_phase, report_phases, run_result, write_data

from regard.training.checkpoint import find_damage, list_checkpoints
from regard.training.file_job import FileJob

RANKS = 2
MAX_SECONDS, MAX_START = 60.0, 120.0
TARGETS = {"rank 0": 0, "rank 1": 1, "torchrun": None}
SIGNALS = (signal.SIGKILL, signal.SIGTERM, signal.SIGINT)
MOMENTS = ("step", "validation", "save")


class Fault(NamedTuple):
    signal: signal.Signals
    target: str
    phase: str
    occurrence: int
    seconds: float  # after the phase began

    @property
    def name(self) -> str:
        return f"{self.signal.name} to {self.target} in a {self.phase}"


def draw_fault(rng: random.Random, number: int) -> Fault:
    """All pairs of a signal and a target in turn. Nobody can catch a SIGKILL, so torchrun cannot end its ranks after
    one: that is the launcher's fault, not the run's."""
    pairs = [(s, t) for t in TARGETS for s in SIGNALS if (s, t) != (signal.SIGKILL, "torchrun")]
    return Fault(*pairs[number % len(pairs)], MOMENTS[number % 3], rng.randint(1, 3), rng.uniform(0, 0.02))


class Run:
    """torchrun and its ranks, each of which shows its phase in a byte of a file."""

    def __init__(self, folder: Path, words: list[str]):
        self.files = [folder / f"phase-{rank}" for rank in range(RANKS)]
        for file in self.files:
            file.write_bytes(b"\0" * 16)
        script = [__file__, "--worker", str(folder), *words]
        launcher = ["torch.distributed.run", "--nproc-per-node", str(RANKS), "--master-port", str(free_port())]
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        log = (folder / "log.txt").open("a")
        words = [sys.executable, "-m", *launcher, *script]
        self.process = subprocess.Popen(words, env=environment, stdout=log, stderr=log, start_new_session=True)

    def state(self, rank: int) -> tuple[int, str]:
        """Process id and phase of a rank; the id is 0 until it trains."""
        content = self.files[rank].read_bytes()
        return int.from_bytes(content[8:16], "little"), PHASES[content[0]]

    def wait_for(self, fault: Fault) -> bool:
        """Wait for the moment of a fault; False if the run ends first."""
        rank, last, count, start = TARGETS[fault.target] or 0, "", 0, time.monotonic()
        while count < fault.occurrence:
            child, phase = self.state(rank)
            count += bool(child) and phase == fault.phase != last
            last = phase
            if self.process.poll() is not None or time.monotonic() > start + MAX_START:
                return False
            time.sleep(0.0002)
        time.sleep(fault.seconds)
        return self.process.poll() is None

    def strike(self, fault: Fault) -> None:
        rank = TARGETS[fault.target]
        os.kill(self.process.pid if rank is None else self.state(rank)[0], fault.signal)

    def leftovers(self) -> list[int]:
        children = [self.state(rank)[0] for rank in range(RANKS)]
        return [child for child in children if child and is_alive(child)]


def is_alive(process: int) -> bool:
    try:
        return "Z" not in Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except OSError:
        return False


def free_port() -> int:
    import socket

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def work(folder: Path, words: list[str]) -> int:
    """A rank: report phases, and train."""
    from regard.cli import main

    with (folder / f"phase-{os.environ['RANK']}").open("r+b") as file:
        phase = mmap.mmap(file.fileno(), 16)
    phase[8:16] = os.getpid().to_bytes(8, "little")
    report_phases(phase)
    mark_phase(phase, "save", FileJob, FileJob.save)
    return main(words)


def cli() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--faults", type=int, default=100)
    parser.add_argument("--shards", type=int, default=1)
    parser.add_argument("--first", type=int, default=0, help="number of the first fault")
    parser.add_argument("-o", "--output-dir", type=Path, default=Path("runs/rank-faults"))
    args = parser.parse_args()
    folder = args.output_dir.resolve()
    shutil.rmtree(folder, ignore_errors=True)
    data = write_data("translate", folder / "data")
    words = [*command("translate", data, folder / "run"), "--steps", "60", "--evals", "12"]
    words += ["--shards", str(args.shards)]
    whole = [word.replace(str(folder / "run"), str(folder / "whole")) for word in words]
    if args.shards == 1:
        subprocess.run([sys.executable, "-m", "regard", *whole], check=True, stdout=subprocess.DEVNULL)
    else:
        Run(folder, whole).process.wait()
    expected, rng, longest, problems = run_result(folder / "whole"), random.Random(args.first), 0.0, list[str]()
    hits, number, finished, differ = Counter[str](), args.first, 0, 0
    while number < args.first + args.faults or (folder / "run").exists():
        fault = draw_fault(rng, number) if number < args.first + args.faults else None
        run = Run(folder, words)
        if fault is not None and run.wait_for(fault):
            saved = bool(list_checkpoints(folder / "run"))
            run.strike(fault)
            start, number = time.monotonic(), number + 1
            try:
                run.process.wait(MAX_SECONDS)
            except subprocess.TimeoutExpired:
                problems.append(f"{fault.name}: torchrun still runs after {MAX_SECONDS:.0f} s")
                run.process.kill()
            while run.leftovers() and time.monotonic() < start + MAX_SECONDS:
                time.sleep(0.1)
            seconds = time.monotonic() - start
            longest, hits[fault.name] = max(longest, seconds), hits[fault.name] + 1
            for child in run.leftovers():
                problems.append(f"{fault.name}: process {child} is left")
                os.kill(child, signal.SIGKILL)
            intact = [save for save in list_checkpoints(folder / "run") if not find_damage(save)]
            if saved and not intact:
                problems.append(f"{fault.name}: no checkpoint is left")
            print(f"{number:>4} {fault.name}: ended after {seconds:.1f} s, {len(intact)} checkpoints", flush=True)
            continue
        if code := run.process.wait():
            raise SystemExit(f"the same command ended with {code}; see {folder / 'log.txt'}")
        finished, differ = finished + 1, differ + (run_result(folder / "run") != expected)
        shutil.rmtree(folder / "run")
    for name, count in sorted(hits.items()):
        print(f"| {name} | {count} |")
    print("\n".join(problems) or f"all ended within {longest:.0f} s")
    outcome = f"{finished} runs finished, {finished - differ} bit-identical"
    print(f"| {hits.total()} faults | {outcome} | longest {longest:.0f} s |")
    return 1 if problems or differ else 0


if __name__ == "__main__":
    worker = sys.argv[1:2] == ["--worker"]
    sys.exit(work(Path(sys.argv[2]), sys.argv[3:]) if worker else cli())
