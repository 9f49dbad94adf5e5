"""Crash recovery: SIGKILL during a run, the same command again until it finishes; then a bitwise comparison.

    python benchmarks/kill.py [--kills 200] [--tasks translate write classify] [-o runs/kill]

Every run has dropout, shuffled batches, gradient accumulation and an EMA of the weights. Its weights, optimizer states
and losses must equal those of an uninterrupted run. Most kills come at random times. A save takes a few milliseconds
and is rarely hit that way, so some kills are aimed: they wait until the process has begun a save, a validation or the
end of an epoch, and then a random time more. The process reports its phase in a byte that it shares with its killer.
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
from regard.training import run_folder as runs
from regard.training.file_job import FileJob

PHASES = ("start", "step", "end of an epoch", "validation", "save", "finish")
ANY_MOMENT = "any moment"
AIMS = {"save": 0.2, "validation": 0.1, "end of an epoch": 0.1}  # share of the kills that wait for each phase
AIM_WINDOW = 0.004  # seconds after the begin of a phase in which an aimed kill comes
STARTED_SHARE = 0.9  # share of the other kills that wait for the first step
COMMON = {
    "--steps": 120, "--evals": 24, "--grad-accum": 2, "--dropout": 0.2, "--ema": 0.9, "--threads": 1,
    "--batch-tokens": 200, "--eval-examples": 20, "--dim": 16, "--heads": 2, "--hidden": 32, "--device": "cpu",
    "--tokenizer": "characters",
}  # fmt: skip
TASKS: dict[str, dict[str, Any]] = {
    "translate": {"--encoder-layers": 1, "--decoder-layers": 1},
    "write": {"--layers": 1, "--context": 32},
    "classify": {"--layers": 1},
}


@dataclass(frozen=True)
class Moment:
    """So many seconds from now, or after the n-th time that the process enters a phase."""

    seconds: float
    phase: str = ""
    occurrence: int = 1
    aim: str = ANY_MOMENT


def command(task: str, data: Path, output_dir: Path) -> list[str]:
    options = COMMON | TASKS[task] | {"--data": data, "--output-dir": output_dir}
    return ["train", task, *(str(word) for option in options.items() for word in option)]


def write_data(task: str, folder: Path, count: int = 120) -> Path:
    """A small file of random lines, which is read in no time."""
    folder.mkdir(parents=True, exist_ok=True)
    rng = random.Random(1)
    words = ["tea", "water", "bread", "salt", "milk", "house", "tree", "river", "stone", "cloud"]
    lines = [" ".join(rng.choices(words, k=rng.randint(2, 9))) for _ in range(count)]
    example = {
        "translate": lambda line: f"{line}\t{line[::-1]}",
        "write": lambda line: line,
        "classify": lambda line: f"{line}\t{'wet' if 'water' in line else 'dry'}",
    }[task]
    file = folder / ("text.txt" if task == "write" else f"{task}.tsv")
    file.write_text(
        "".join(f"{example(line)} {i}\n" if task == "write" else f"{example(line)}\n" for i, line in enumerate(lines))
    )
    return file


def warm_up(folder: Path) -> None:
    """Import everything that a run imports, so that forked children need not."""
    words = [*command("write", write_data("write", folder), folder / "warm"), "--steps", "1", "--evals", "1"]
    with redirect_stdout(io.StringIO()):
        assert main([*words, "--overwrite"] if (folder / "warm").exists() else words) == 0


def mark_phase(phase: mmap.mmap, name: str, owner: Any, original: Callable[..., Any]) -> None:
    """Make a function of a module or a class set the phase while it runs."""

    def marked(*args: Any, **kwargs: Any) -> Any:
        previous, phase[0] = phase[0], PHASES.index(name)
        try:
            return original(*args, **kwargs)
        finally:
            phase[0] = previous

    setattr(owner, next(key for key, value in vars(owner).items() if value is original), marked)


def report_phases(phase: mmap.mmap) -> None:
    """Make a run in this process report its phase."""
    iterate, begin, last = loop.iterate_batches, FileJob.steps_to_end, FileJob.finish
    has_begun = False  # before, the steps of the estimate are timed

    def marked_begin(job: FileJob) -> Iterator[Any]:
        nonlocal has_begun
        has_begun = True
        return begin(job)

    def marked_batches(*args: Any) -> Iterator[Any]:
        for position, rows in iterate(*args):
            if has_begun:
                phase[0] = PHASES.index("end of an epoch" if position.batch == 0 else "step")
            yield position, rows

    def marked_finish(job: FileJob) -> None:
        phase[0] = PHASES.index("finish")  # until the process ends
        last(job)

    loop.iterate_batches, FileJob.steps_to_end, FileJob.finish = marked_batches, marked_begin, marked_finish
    mark_phase(phase, "validation", FileJob, FileJob.evaluate)
    mark_phase(phase, "save", runs, runs.save_folder)


def fork_child(work: Callable[[], int], log: Path = Path(os.devnull)) -> int:
    """Process id of a child that runs `work`, writes its output to `log`, and exits with the code of `work`."""
    child = os.fork()
    if child == 0:
        code = 99
        try:
            sys.stdout, sys.stderr = log.open("a"), log.open("a")  # two streams, as usual
            code = work()
        except Exception:
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            os._exit(code)
    return child


def run_in_child(work: Callable[[], int]) -> int:
    """The exit code of `work` in a process of its own."""
    return os.waitstatus_to_exitcode(os.waitpid(fork_child(work), 0)[1])


def has_exited(child: int) -> bool:
    return os.waitid(os.P_PID, child, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None


def wait_for(child: int, phase: mmap.mmap, moment: Moment) -> bool:
    """Wait for the moment; False if the child exits first."""
    last, count = "", 0
    while moment.phase and count < moment.occurrence:
        current = PHASES[phase[0]]
        count += current == moment.phase != last
        last = current
        time.sleep(0.00005)
        if has_exited(child):
            return False
    deadline = time.monotonic() + moment.seconds
    while time.monotonic() < deadline and not has_exited(child):
        time.sleep(0.00005)
    return not has_exited(child)


def run_until(
    work: Callable[[], int], moment: Moment | None, report: Callable[[mmap.mmap], None] = report_phases
) -> tuple[int | None, int]:
    """Exit code of a child that runs `work`, None if it was killed at the moment; and its last phase."""
    phase = mmap.mmap(-1, 1)
    child = fork_child(lambda: report(phase) or work())
    is_due = moment is not None and wait_for(child, phase, moment)
    if is_due:
        os.kill(child, signal.SIGKILL)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    return None if is_due else code, phase[0]


def draw_moment(
    rng: random.Random, max_seconds: float, aims: dict[str, float] = AIMS, window: float = AIM_WINDOW
) -> Moment:
    aim = rng.choices([ANY_MOMENT, *aims], [1 - sum(aims.values()), *aims.values()])[0]
    if aim != ANY_MOMENT:
        return Moment(rng.uniform(0, window), aim, rng.randint(1, 3), aim)
    return Moment(rng.uniform(0, max_seconds), "step" if rng.random() < STARTED_SHARE else "")


def run_result(folder: Path) -> dict[str, Any]:
    """Everything that must not depend on interruptions: metrics, weights and training state."""
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    steps = [{name: value for name, value in line.items() if name != "seconds"} for line in lines]
    newest = folder / (folder / "LATEST").read_text().strip()
    files = [folder / "model.safetensors", newest / "state.safetensors", newest / "state.json"]
    return {"metrics": steps, **{str(file.relative_to(folder)): file.read_bytes() for file in files}}


def reference_run(task: str, folder: Path) -> tuple[Path, dict[str, Any]]:
    """Data, and the result of an uninterrupted run on it."""
    data, reference = write_data(task, folder / "data"), folder / "whole"
    shutil.rmtree(reference, ignore_errors=True)
    assert run_in_child(lambda: main(command(task, data, reference))) == 0
    return data, run_result(reference)


def kill_repeatedly(
    task: str, kills: int, folder: Path, rng: random.Random, longest: float
) -> tuple[int, int, Counter[tuple[str, str]]]:
    """Numbers of finished runs and of those that differ from the reference, and of kills by (aim, phase that was hit).
    `longest` is the maximum of the random times in seconds."""
    data, expected = reference_run(task, folder)
    run = folder / "run"
    hits: Counter[tuple[str, str]] = Counter()
    finished = differ = 0
    while hits.total() < kills:
        shutil.rmtree(run, ignore_errors=True)
        code: int | None = None
        while code is None:
            moment = (
                draw_moment(rng, longest) if hits.total() < kills else None
            )  # after the last kill the run may finish
            code, phase = run_until(lambda: main(command(task, data, run)), moment)
            if code is None:
                hits[moment.aim, PHASES[phase]] += 1
        if code != 0:
            raise SystemExit(f"{task}: the same command ended with {code} after {hits.total()} kills; see {run}")
        finished, differ = finished + 1, differ + (run_result(run) != expected)
    return finished, differ, hits


def format_phases(hits: Counter[tuple[str, str]], aim: str) -> str:
    """Number of kills with this aim in each phase."""
    return ", ".join(f"{phase} {hits[aim, phase]}" for phase in PHASES if hits[aim, phase])


def cli() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=200, help="total number of kills of all tasks")
    parser.add_argument("--tasks", nargs="+", default=list(TASKS), choices=list(TASKS))
    parser.add_argument("--max-seconds", type=float, default=0.5, help="maximum time before a kill that is not aimed")
    parser.add_argument("-o", "--output-dir", type=Path, default=Path("runs/kill"))
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    rng, finished, different, all_hits = random.Random(args.seed), 0, 0, Counter[tuple[str, str]]()
    torch.set_num_threads(1)
    warm_up(args.output_dir)
    for i, task in enumerate(args.tasks):
        kills = (args.kills + i) // len(args.tasks)
        count, differ, hits = kill_repeatedly(task, kills, args.output_dir / task, rng, args.max_seconds)
        print(f"{task:<11}{hits.total():>5} kills, {count} runs finished, {count - differ} bit-identical", flush=True)
        finished, different, all_hits = finished + count, different + differ, all_hits + hits
    for aim in (ANY_MOMENT, *AIMS):
        count = sum(number for (hit_aim, _), number in all_hits.items() if hit_aim == aim)
        title = f"at {aim}" if aim == ANY_MOMENT else f"aimed at: {aim}"
        print(f"| SIGKILL {title} | {count} kills | hit: {format_phases(all_hits, aim)} |")
    outcome = f"{finished} runs finished, {finished - different} of them bit-identical to an uninterrupted run"
    print(f"| the same command after each kill ({', '.join(args.tasks)}) | {all_hits.total()} kills | {outcome} |")
    return 1 if different else 0


if __name__ == "__main__":
    sys.exit(cli())
