"""Pull the plug: SIGKILL in the middle of a run, the same command again, until it is done; then compare the bits.

    python benchmarks/kill.py [--kills 200] [--tasks translate write classify] [--out runs/kill]

Every run has dropout, shuffled batches, accumulated gradients and a moving average of the weights. Its weights, the
state of its optimisers and every loss must be those of a run that nobody stopped. Most blows come at random moments.
A save takes a few milliseconds and is hardly ever hit that way, so others are aimed: they wait until the process has
begun to save, to validate or to end an epoch, and then a random moment more. Where a blow fell is told by the process
itself, in a byte that it shares with the one that kills it.
"""

from __future__ import annotations

import argparse
import io
import json
import mmap
import os
import random
import shutil
import signal
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from regard.cli import main
from regard.training import loop
from regard.training import run as runs
from regard.training import train as training

PHASES = ("start", "step", "end of an epoch", "validation", "save", "finish")
CHANCE = "any moment"
AIMS = {"save": 0.2, "validation": 0.1, "end of an epoch": 0.1}  # shares of the blows that wait for these
AIM_WINDOW = 0.004  # seconds after it has begun in which a phase is hit, if it is aimed at
STARTED_SHARE = 0.9  # share of the other blows that wait for the first step
COMMON = {
    "steps": 120, "checks": 24, "accumulate": 2, "dropout": 0.2, "average": 0.9, "threads": 1, "batch-tokens": 200,
    "check-examples": 20, "dim": 16, "heads": 2, "hidden": 32, "device": "cpu", "pieces": "characters",
}  # fmt: skip
TASKS: dict[str, dict[str, Any]] = {
    "translate": {"encoder-layers": 1, "decoder-layers": 1},
    "write": {"layers": 1, "context": 32},
    "classify": {"layers": 1},
}


@dataclass(frozen=True)
class Moment:
    """So many seconds from now, or after a process has come into a phase for the first, second ... time."""

    seconds: float
    phase: str = ""
    time: int = 1
    aim: str = CHANCE


def command(task: str, data: Path, out: Path) -> list[str]:
    options = COMMON | TASKS[task] | {"data": data, "out": out}
    return ["train", task, *(str(word) for name, value in options.items() for word in (f"--{name}", value))]


def write_data(task: str, folder: Path, count: int = 120) -> Path:
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


def warm_up(folder: Path) -> None:
    """Import all that a run imports, so that children are born with it and spend their lives on what counts."""
    words = [*command("write", write_data("write", folder), folder / "warm"), "--steps", "1", "--checks", "1"]
    with redirect_stdout(io.StringIO()):
        assert main([*words, "--overwrite"] if (folder / "warm").exists() else words) == 0


def during(phase: mmap.mmap, name: str, home: Any, function: str) -> None:
    """Let a function tell that it is at work."""
    whole = getattr(home, function)

    def told(*args: Any, **more: Any) -> Any:
        before, phase[0] = phase[0], PHASES.index(name)
        try:
            return whole(*args, **more)
        finally:
            phase[0] = before

    setattr(home, function, told)


def watched(phase: mmap.mmap) -> None:
    """Let a run in this process tell what it does just now."""
    whole = loop.forever

    def forever(*args: Any) -> Iterator[Any]:
        for position, rows in whole(*args):
            phase[0] = PHASES.index("end of an epoch" if position.batch == 0 else "step")
            yield position, rows

    last = training.finish

    def finish(*args: Any) -> None:
        phase[0] = PHASES.index("finish")  # until the process ends
        last(*args)

    loop.forever, training.finish = forever, finish
    during(phase, "validation", training, "check")
    during(phase, "save", runs, "save_folder")


def fork_child(work: Callable[[], int], said: Path = Path(os.devnull)) -> int:
    """The id of a child that does `work`, speaks to a file, and ends with its exit code."""
    child = os.fork()
    if child == 0:
        code = 99
        try:
            sys.stdout, sys.stderr = said.open("a"), said.open("a")  # two, as they always are
            code = work()
        except Exception:
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            os._exit(code)
    return child


def run_in_child(work: Callable[[], int]) -> int:
    """The exit code of work that is done in a process of its own."""
    return os.waitstatus_to_exitcode(os.waitpid(fork_child(work), 0)[1])


def gone(child: int) -> bool:
    return os.waitid(os.P_PID, child, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None


def reached(child: int, phase: mmap.mmap, moment: Moment) -> bool:
    """Wait for the moment. False if the child has ended before it."""
    last, times = "", 0
    while moment.phase and times < moment.time:
        now = PHASES[phase[0]]
        times += now == moment.phase != last
        last = now
        time.sleep(0.00005)
        if gone(child):
            return False
    due = time.monotonic() + moment.seconds
    while time.monotonic() < due and not gone(child):
        time.sleep(0.00005)
    return not gone(child)


def life(
    work: Callable[[], int], moment: Moment | None, watch: Callable[[mmap.mmap], None] = watched
) -> tuple[int | None, int]:
    """The exit code of a child that does `work`, None if it was killed at the moment; and its last phase."""
    phase = mmap.mmap(-1, 1)
    child = fork_child(lambda: watch(phase) or work())
    kill_repeatedly = moment is not None and reached(child, phase, moment)
    if kill_repeatedly:
        os.kill(child, signal.SIGKILL)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    return None if kill_repeatedly else code, phase[0]


def drawn(luck: random.Random, longest: float, aims: dict[str, float] = AIMS, reach: float = AIM_WINDOW) -> Moment:
    """A moment for the next blow."""
    aim = luck.choices([CHANCE, *aims], [1 - sum(aims.values()), *aims.values()])[0]
    if aim != CHANCE:
        return Moment(luck.uniform(0, reach), aim, luck.randint(1, 3), aim)
    return Moment(luck.uniform(0, longest), "step" if luck.random() < STARTED_SHARE else "")


def result(folder: Path) -> dict[str, Any]:
    """All that a run leaves which must not depend on how often it was stopped."""
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    steps = [{name: value for name, value in line.items() if name != "seconds"} for line in lines]
    newest = folder / (folder / "LATEST").read_text().strip()
    files = [folder / "model.safetensors", newest / "state.safetensors", newest / "state.json"]
    return {"metrics": steps, **{str(file.relative_to(folder)): file.read_bytes() for file in files}}


def undisturbed(task: str, folder: Path) -> tuple[Path, dict[str, Any]]:
    """Data, and what a run on it leaves that nobody stops."""
    data, whole = write_data(task, folder / "data"), folder / "whole"
    shutil.rmtree(whole, ignore_errors=True)
    assert run_in_child(lambda: main(command(task, data, whole))) == 0
    return data, result(whole)


def kill_repeatedly(
    task: str, kills: int, folder: Path, luck: random.Random, longest: float
) -> tuple[int, int, Counter[tuple[str, str]]]:
    """Runs that ended, those of them that differ, and the blows: at what they were aimed, and where they fell."""
    data, wanted = undisturbed(task, folder)
    run = folder / "run"
    fallen: Counter[tuple[str, str]] = Counter()
    ended = differ = 0
    while fallen.total() < kills:
        shutil.rmtree(run, ignore_errors=True)
        code: int | None = None
        while code is None:
            # When enough have fallen the run may end in peace.
            moment = drawn(luck, longest) if fallen.total() < kills else None
            code, phase = life(lambda: main(command(task, data, run)), moment)
            if code is None:
                fallen[moment.aim, PHASES[phase]] += 1
        if code != 0:
            raise SystemExit(f"{task}: the same command ended with {code} after {fallen.total()} kills; see {run}")
        ended, differ = ended + 1, differ + (result(run) != wanted)
    return ended, differ, fallen


def told(fallen: Counter[tuple[str, str]], aim: str) -> str:
    """Where the blows fell that had this aim."""
    return ", ".join(f"{phase} {fallen[aim, phase]}" for phase in PHASES if fallen[aim, phase])


def cli() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=200, help="in all, shared by the tasks")
    parser.add_argument("--tasks", nargs="+", default=list(TASKS), choices=list(TASKS))
    parser.add_argument("--longest", type=float, default=0.5, help="seconds that a process may live")
    parser.add_argument("--out", type=Path, default=Path("runs/kill"))
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    luck, ended, bad, blows = random.Random(given.seed), 0, 0, Counter[tuple[str, str]]()
    torch.set_num_threads(1)
    warm_up(given.out)
    for i, task in enumerate(given.tasks):
        kills = (given.kills + i) // len(given.tasks)
        ends, differ, fallen = kill_repeatedly(task, kills, given.out / task, luck, given.longest)
        print(
            f"{task:<11}{fallen.total():>5} kills, {ends} runs ended, {ends - differ} of them bit for bit", flush=True
        )
        ended, bad, blows = ended + ends, bad + differ, blows + fallen
    for aim in (CHANCE, *AIMS):
        count = sum(number for (other, _), number in blows.items() if other == aim)
        how = f"at {aim}" if aim == CHANCE else f"aimed at: {aim}"
        print(f"| SIGKILL {how} | {count} kills | fell into: {told(blows, aim)} |")
    came = f"{ended} runs ended, {ended - bad} of them bit for bit"
    print(f"| the same command after each ({', '.join(given.tasks)}) | {blows.total()} kills | {came} |")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(cli())
