"""Ask a run to stop: Ctrl-C or SIGTERM at any moment, once or twice, go on until it is done, and compare the bits.

    python benchmarks/signals.py [--signals 100] [--out runs/signals]

one signal   finishes the step, saves, prints the command to go on, leaves with 130 or 143; no step is lost
two signals  leaves at once; the saves that were whole still are, or newer ones
The moments are those of kill.py, many of them aimed at a save, a validation, the end of an epoch. The second signal
comes at once, or waits for the save that the first one asked for.
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
from kill import AIM_WINDOW, PHASES, Moment, command, drawn, fork_child, reached, result, undisturbed, warm_up, watched

from regard.cli import main
from regard.training.save import damage, saves

LONGEST = 0.5  # seconds from the first step to the first signal
AT_ONCE = 0.4  # share of the second signals that do not wait for a save
UNBORN = 255  # the phase of a process that no signal should reach
EXIT_CODES = {signal.SIGINT: 130, signal.SIGTERM: 143}


@dataclass
class Life:
    """What came of a process that got signals."""

    code: int  # as a shell has it
    sent: list[str] = field(default_factory=list)  # the phase in which each signal came
    said: str = ""
    seconds: float = 0.0  # from the last signal to the end


@dataclass
class Tally:
    """What came of many."""

    fallen: Counter[str] = field(default_factory=Counter)  # the phase in which the last signal came
    slowest: float = 0.0
    wrong: list[str] = field(default_factory=list)


def live(work: Callable[[], int], sign: signal.Signals, moments: list[Moment], said: Path) -> Life:
    """Send the signal at each of the moments that come before the end."""
    phase = mmap.mmap(-1, 1)
    phase[0] = UNBORN
    said.unlink(missing_ok=True)

    def begin() -> int:
        try:
            signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell may have let it be ignored
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            watched(phase)
            phase[0] = PHASES.index("start")
            return work()
        except KeyboardInterrupt:  # before or after the command, when Python ends like this too
            return 130

    child, life, began = fork_child(begin, said), Life(0), time.monotonic()
    while phase[0] == UNBORN:
        time.sleep(0.0001)
    for moment in moments:
        if not reached(child, phase, moment):
            break
        life.sent.append(PHASES[phase[0]])
        began = time.monotonic()
        os.kill(child, sign)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    life.code, life.seconds, life.said = code if code >= 0 else 128 - code, time.monotonic() - began, said.read_text()
    return life


def newest(run: Path) -> int:
    """The step of the newest save if that is whole, -1 if it is not, 0 if there is none."""
    found = saves(run)
    if not found:
        return 0
    return -1 if damage(found[0]) else int(found[0].name.removeprefix("step-"))


def logged(run: Path) -> int:
    """The last step that was logged."""
    file = run / "metrics.jsonl"
    return json.loads(file.read_text().splitlines()[-1])["step"] if file.exists() and file.stat().st_size else 0


def trouble(life: Life, sign: signal.Signals, run: Path, before: int) -> str:
    """What is not as promised; empty if all is."""
    step, first = newest(run), life.sent[0]
    if step < before:
        return f"the newest save was step {before}, and is {step}"
    if life.code == 0 and (run / "README.md").exists():
        return ""  # all was done
    if life.code != EXIT_CODES[sign]:
        return f"it left with {life.code}: {life.said.strip().splitlines()[-1:]}"
    if len(life.sent) == 1 and first not in ("start", "finish"):
        if not life.said.splitlines()[-1].strip().startswith("regard train "):
            return "it did not say how to go on"
        if step != logged(run):
            return f"the newest save is step {step}, and {logged(run)} were done"
    return ""


def drawn_twice(luck: random.Random) -> list[Moment]:
    """One or two moments for signals."""
    soon = luck.uniform(0, AIM_WINDOW)
    again = Moment(soon) if luck.random() < AT_ONCE else Moment(soon, "save")
    return [drawn(luck, LONGEST), again][: luck.randint(1, 2)]


def signal_repeatedly(task: str, count: int, folder: Path, luck: random.Random) -> tuple[dict[int, Tally], int, int]:
    """What came of one signal and of two; runs that ended, and those of them that differ."""
    data, wanted = undisturbed(task, folder)
    run, said, tallies = folder / "run", folder / "said.txt", {1: Tally(), 2: Tally()}
    ended = differ = sent = 0
    while sent < count:
        shutil.rmtree(run, ignore_errors=True)
        words, going = command(task, data, run), True
        while going:
            sign, before = luck.choice([*EXIT_CODES]), newest(run)
            life = live(lambda words=words: main(words), sign, drawn_twice(luck) if sent < count else [], said)
            if life.sent:
                sent, tally = sent + 1, tallies[len(life.sent)]
                tally.fallen[life.sent[-1]] += 1
                tally.slowest = max(tally.slowest, life.seconds)
                if wrong := trouble(life, sign, run, before):
                    tally.failures.append(f"{sign.name} in {' and '.join(life.sent)}: {wrong}")
            elif life.code != 0:
                raise SystemExit(f"{shlex.join(words)} ended with {life.code}: {life.said[-500:]}")
            going = life.code != 0
            asked = [line for line in life.said.splitlines() if line.strip().startswith("regard train ")]
            words = shlex.split(asked[-1])[1:] if asked else command(task, data, run)
        ended, differ = ended + 1, differ + (result(run) != wanted)
    return tallies, ended, differ


def cli() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--signals", type=int, default=100)
    parser.add_argument("--task", default="translate")
    parser.add_argument("--out", type=Path, default=Path("runs/signals"))
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    torch.set_num_threads(1)
    warm_up(given.out)
    tallies, ended, differ = signal_repeatedly(given.task, given.signals, given.out, random.Random(given.seed))
    for times, what, does in (
        (1, "Ctrl-C or SIGTERM", "finished the step, saved it, said how to go on, left with 130 or 143"),
        (2, "the same twice", "left at once, the last save whole"),
    ):
        tally = tallies[times]
        count = tally.fallen.total()
        good = f"{count - len(tally.failures)} of {count}"
        where = ", ".join(f"{phase} {tally.fallen[phase]}" for phase in PHASES if tally.fallen[phase])
        print(f"the slowest was gone {tally.slowest:.1f} s after its last signal")
        for wrong in tally.failures:
            print(wrong)
        print(f"| {what}; the last one came in: {where} | {count} times | {does}: {good} |")
    same = f"{ended} runs ended, {ended - differ} of them bit for bit"
    stops = sum(tally.fallen.total() for tally in tallies.values())
    print(f"| after each of these the command that was printed, or the same one | {stops} times | {same} |")
    return 1 if differ or any(tally.failures for tally in tallies.values()) else 0


if __name__ == "__main__":
    sys.exit(cli())
