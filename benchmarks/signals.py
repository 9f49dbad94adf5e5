"""Interruption: Ctrl-C or SIGTERM at random times, once or twice, resumed until the run finishes; bitwise comparison.

    python benchmarks/signals.py [--signals 100] [-o runs/signals]

one signal   the run finishes the step, saves, prints the command to resume, exits with 130 or 143; no step is lost
two signals  the run exits at once; the newest save is complete and not older than before
The times are those of kill.py, many of them aimed at a save, a validation or the end of an epoch. The second signal
comes at once, or waits for the save that the first one requested.
"""

from __future__ import annotations

import argparse
import json
import mmap
import os
import random
import shlex
import shutil
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import torch
from kill import (
    AIM_WINDOW,
    PHASES,
    Moment,
    command,
    draw_moment,
    fork_child,
    reference_run,
    report_phases,
    run_result,
    wait_for,
    warm_up,
)

from regard.cli import main
from regard.training.checkpoint import find_damage, list_checkpoints

MAX_SECONDS = 0.5  # from the first step to the first signal
IMMEDIATE_SHARE = 0.4  # share of the second signals that do not wait for a save
NOT_READY = 255  # phase of a process that has no signal handlers yet
EXIT_CODES = {signal.SIGINT: 130, signal.SIGTERM: 143}


@dataclass
class Outcome:
    """A process after its signals."""

    code: int  # as a shell reports it
    phases: list[str] = field(default_factory=list)  # phase at each signal
    output: str = ""
    seconds: float = 0.0  # from the last signal to the exit


@dataclass
class Tally:
    """Counts over many processes."""

    phases: Counter[str] = field(default_factory=Counter)  # phase at the last signal
    slowest: float = 0.0
    failures: list[str] = field(default_factory=list)


def run_with_signals(work: Callable[[], int], sign: signal.Signals, moments: list[Moment], log: Path) -> Outcome:
    """Send the signal at each of the moments that come before the exit."""
    phase = mmap.mmap(-1, 1)
    phase[0] = NOT_READY
    log.unlink(missing_ok=True)

    def run() -> int:
        try:
            signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell may have set it to ignored
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            report_phases(phase)
            phase[0] = PHASES.index("start")
            return work()
        except KeyboardInterrupt:  # before or after the command, where Python exits like this too
            return 130

    child, outcome, start = fork_child(run, log), Outcome(0), time.monotonic()
    while phase[0] == NOT_READY:
        time.sleep(0.0001)
    for moment in moments:
        if not wait_for(child, phase, moment):
            break
        outcome.phases.append(PHASES[phase[0]])
        start = time.monotonic()
        os.kill(child, sign)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    outcome.code, outcome.seconds = code if code >= 0 else 128 - code, time.monotonic() - start
    outcome.output = log.read_text()
    return outcome


def newest_step(run: Path) -> int:
    """Step of the newest save; -1 if it is damaged, 0 if there is none."""
    folders = list_checkpoints(run)
    if not folders:
        return 0
    return -1 if find_damage(folders[0]) else int(folders[0].name.removeprefix("step-"))


def last_logged_step(run: Path) -> int:
    file = run / "metrics.jsonl"
    return json.loads(file.read_text().splitlines()[-1])["step"] if file.exists() and file.stat().st_size else 0


def find_failure(outcome: Outcome, sign: signal.Signals, run: Path, step_before: int) -> str:
    """What differs from the specified behaviour; empty if nothing does."""
    step, first = newest_step(run), outcome.phases[0]
    if step < step_before:
        return f"the newest save was step {step_before}, and is {step}"
    if outcome.code == 0 and (run / "README.md").exists():
        return ""  # the run was finished
    if outcome.code != EXIT_CODES[sign]:
        return f"it exited with {outcome.code}: {outcome.output.strip().splitlines()[-1:]}"
    if len(outcome.phases) == 1 and first not in ("start", "finish"):
        if not outcome.output.splitlines()[-1].strip().startswith("regard train "):
            return "it did not print the command that resumes it"
        if step != last_logged_step(run):
            return f"the newest save is step {step}, and the last logged step is {last_logged_step(run)}"
    return ""


def draw_moments(rng: random.Random) -> list[Moment]:
    """One or two moments for signals."""
    delay = rng.uniform(0, AIM_WINDOW)
    second = Moment(delay) if rng.random() < IMMEDIATE_SHARE else Moment(delay, "save")
    return [draw_moment(rng, MAX_SECONDS), second][: rng.randint(1, 2)]


def signal_repeatedly(task: str, count: int, folder: Path, rng: random.Random) -> tuple[dict[int, Tally], int, int]:
    """Tallies of one and of two signals; numbers of finished runs, and of those that differ from the reference."""
    data, expected = reference_run(task, folder)
    run, log, tallies = folder / "run", folder / "output.txt", {1: Tally(), 2: Tally()}
    finished = differ = sent = 0
    while sent < count:
        shutil.rmtree(run, ignore_errors=True)
        words, running = command(task, data, run), True
        while running:
            sign, step_before = rng.choice([*EXIT_CODES]), newest_step(run)
            moments = draw_moments(rng) if sent < count else []
            outcome = run_with_signals(lambda words=words: main(words), sign, moments, log)
            if outcome.phases:
                sent, tally = sent + 1, tallies[len(outcome.phases)]
                tally.phases[outcome.phases[-1]] += 1
                tally.slowest = max(tally.slowest, outcome.seconds)
                if failure := find_failure(outcome, sign, run, step_before):
                    tally.failures.append(f"{sign.name} in {' and '.join(outcome.phases)}: {failure}")
            elif outcome.code != 0:
                raise SystemExit(f"{shlex.join(words)} ended with {outcome.code}: {outcome.output[-500:]}")
            running = outcome.code != 0
            printed = [line for line in outcome.output.splitlines() if line.strip().startswith("regard train ")]
            words = shlex.split(printed[-1])[1:] if printed else command(task, data, run)
        finished, differ = finished + 1, differ + (run_result(run) != expected)
    return tallies, finished, differ


def cli() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--signals", type=int, default=100, help="number of interruptions")
    parser.add_argument("--task", default="translate")
    parser.add_argument("-o", "--output-dir", type=Path, default=Path("runs/signals"))
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    torch.set_num_threads(1)
    warm_up(args.output_dir)
    tallies, finished, differ = signal_repeatedly(args.task, args.signals, args.output_dir, random.Random(args.seed))
    for number, title, behaviour in (
        (1, "Ctrl-C or SIGTERM", "finished the step, saved, printed the command to resume, exited with 130 or 143"),
        (2, "the same twice", "exited at once, newest save complete"),
    ):
        tally = tallies[number]
        count = tally.phases.total()
        passed = f"{count - len(tally.failures)} of {count}"
        phases = ", ".join(f"{phase} {tally.phases[phase]}" for phase in PHASES if tally.phases[phase])
        print(f"the slowest process exited {tally.slowest:.1f} s after its last signal")
        for failure in tally.failures:
            print(failure)
        print(f"| {title}; phase at the last signal: {phases} | {count} times | {behaviour}: {passed} |")
    outcome = f"{finished} runs finished, {finished - differ} of them bit-identical to an uninterrupted run"
    total = sum(tally.phases.total() for tally in tallies.values())
    print(f"| resumed after each of these by the printed or the same command | {total} times | {outcome} |")
    return 1 if differ or any(tally.failures for tally in tallies.values()) else 0


if __name__ == "__main__":
    sys.exit(cli())
