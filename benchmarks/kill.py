"""Pull the plug: SIGKILL at random moments of a run, the same command again, until it is done; then compare the bits.

    python benchmarks/kill.py [--kills 200] [--tasks translate write classify] [--out runs/kill]

Every run has dropout, shuffled batches, accumulated gradients and a moving average of the weights. Its weights, the
state of its optimisers and every loss must be those of a run that nobody stopped. Where the blow fell is told by the
process itself, in a byte that it shares with the one that kills it.
"""

from __future__ import annotations

import argparse
import json
import mmap
import os
import random
import shutil
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch

from regard.cli import main
from regard.training import run as runs
from regard.training import train as training

PHASES = ("start", "step", "end of an epoch", "validation", "save", "finish")
BEGUN = 0.9  # share of the blows that wait for the first step
COMMON = {
    "steps": 120, "checks": 24, "accumulate": 2, "dropout": 0.2, "average": 0.9, "threads": 1, "batch-tokens": 200,
    "check-examples": 20, "dim": 16, "heads": 2, "hidden": 32, "device": "cpu", "pieces": "characters",
}  # fmt: skip
TASKS: dict[str, dict[str, Any]] = {
    "translate": {"encoder-layers": 1, "decoder-layers": 1},
    "write": {"layers": 1, "context": 32},
    "classify": {"layers": 1},
}


def command(task: str, data: Path, out: Path) -> list[str]:
    options = COMMON | TASKS[task] | {"data": data, "out": out}
    return ["train", task, *(str(word) for name, value in options.items() for word in (f"--{name}", value))]


def written(task: str, folder: Path, count: int = 120) -> Path:
    """Data that is read in no time: a few lines made up by chance."""
    folder.mkdir(parents=True, exist_ok=True)
    luck, words = (
        random.Random(1),
        ["tea", "water", "bread", "salt", "milk", "house", "tree", "river", "stone", "cloud"],
    )
    lines = [" ".join(luck.choices(words, k=luck.randint(2, 9))) for _ in range(count)]
    said = {
        "translate": lambda line: f"{line}\t{line[::-1]}",
        "write": lambda line: line,
        "classify": lambda line: f"{line}\t{'wet' if 'water' in line else 'dry'}",
    }[task]
    file = folder / ("text.txt" if task == "write" else f"{task}.tsv")
    file.write_text(
        "".join(f"{said(line)} {i}\n" if task == "write" else f"{said(line)}\n" for i, line in enumerate(lines))
    )
    return file


def watched(phase: mmap.mmap) -> None:
    """Let this process tell what it does just now."""

    def during(home: Any, name: str, number: int) -> None:
        whole = getattr(home, name)

        def told(*args: Any, **more: Any) -> Any:
            before, phase[0] = phase[0], number
            try:
                return whole(*args, **more)
            finally:
                phase[0] = before

        setattr(home, name, told)

    whole = training.learn

    def learn(*args: Any) -> Iterator[Any]:
        phase[0] = PHASES.index("step")
        for step in whole(*args):
            phase[0] = PHASES.index("end of an epoch" if step.position.batch == 0 else "step")
            yield step

    training.learn = learn
    during(training, "check", PHASES.index("validation"))
    during(training, "finish", PHASES.index("finish"))
    during(runs, "save_folder", PHASES.index("save"))


def forked(work: Callable[[], int]) -> int:
    """The id of a child that does `work`, says nothing, and ends with its exit code."""
    child = os.fork()
    if child == 0:
        code = 99
        try:
            sys.stdout = sys.stderr = open(os.devnull, "w")  # noqa: SIM115
            code = work()
        finally:
            os._exit(code)
    return child


def alone(work: Callable[[], int]) -> int:
    """The exit code of work that is done in a process of its own."""
    return os.waitstatus_to_exitcode(os.waitpid(forked(work), 0)[1])


def life(work: Callable[[], int], seconds: float | None, begun: bool = False) -> tuple[int | None, int]:
    """The exit code of a child that does `work`, None if it was killed after so many seconds of its life, or of its
    training if it has `begun`; and its last phase."""
    phase = mmap.mmap(-1, 1)
    child = forked(lambda: watched(phase) or work())
    began = time.monotonic()
    while seconds is None or time.monotonic() - began < seconds:
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            return os.waitstatus_to_exitcode(status), phase[0]
        time.sleep(0.001)
        if begun and phase[0] == PHASES.index("start"):
            began = time.monotonic()
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return None, phase[0]


def result(folder: Path) -> dict[str, Any]:
    """All that a run leaves which must not depend on how often it was stopped."""
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    steps = [{name: value for name, value in line.items() if name != "seconds"} for line in lines]
    newest = folder / (folder / "LATEST").read_text().strip()
    files = [folder / "model.safetensors", newest / "state.safetensors", newest / "state.json"]
    return {"metrics": steps, **{str(file.relative_to(folder)): file.read_bytes() for file in files}}


def killed(task: str, kills: int, folder: Path, luck: random.Random, longest: float) -> tuple[int, int, Counter[str]]:
    """Runs that ended, those of them that differ, and the phases in which the blows fell."""
    data = written(task, folder / "data")
    whole, run = folder / "whole", folder / "run"
    shutil.rmtree(whole, ignore_errors=True)
    assert life(lambda: main(command(task, data, whole)), None)[0] == 0
    wanted = result(whole)
    fallen: Counter[str] = Counter()
    ended = differ = 0
    while fallen.total() < kills:
        shutil.rmtree(run, ignore_errors=True)
        code: int | None = None
        while code is None:
            # When enough have fallen the run may end in peace.
            patience = luck.uniform(0, longest) if fallen.total() < kills else None
            code, phase = life(lambda: main(command(task, data, run)), patience, begun=luck.random() < BEGUN)
            if code is None:
                fallen[PHASES[phase]] += 1
        if code != 0:
            raise SystemExit(f"{task}: the same command ended with {code} after {fallen.total()} kills; see {run}")
        ended, differ = ended + 1, differ + (result(run) != wanted)
    return ended, differ, fallen


def cli() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=200, help="in all, shared by the tasks")
    parser.add_argument("--tasks", nargs="+", default=list(TASKS), choices=list(TASKS))
    parser.add_argument("--longest", type=float, default=0.5, help="seconds that a process may live")
    parser.add_argument("--out", type=Path, default=Path("runs/kill"))
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    luck, bad, phases = random.Random(given.seed), 0, Counter[str]()
    torch.set_num_threads(1)
    for i, task in enumerate(given.tasks):
        kills = (given.kills + i) // len(given.tasks)
        ended, differ, fallen = killed(task, kills, given.out / task, luck, given.longest)
        print(
            f"{task:<11}{fallen.total():>5} kills, {ended} runs ended, {ended - differ} of them bit for bit", flush=True
        )
        bad, phases = bad + differ, phases + fallen
    print("killed in: " + ", ".join(f"{phase} {phases[phase]}" for phase in PHASES))
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(cli())
