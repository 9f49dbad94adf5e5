"""What a run survives: a disk that is full at any byte of a save, numbers that are none at any step, damage, restarts.

    python benchmarks/faults.py [--points 50] [--schedules 500] [--damages 1000] [--out runs/faults]

full disk   a process may write no file longer than so many bytes (RLIMIT_FSIZE) while it saves a run that has a save
no number   the loss of one step is NaN; the weights on disk and in memory must be those of the step before
damage      a bit, a block, an end of a save is changed: it must be found, and the save before it used
restarts    a run is stopped and started again at random batches: every example still comes once an epoch
"""

from __future__ import annotations

import argparse
import json
import math
import random
import resource
import shutil
import signal
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from kill import command, run_in_child, warm_up, write_data

from regard.cli import main
from regard.data.batches import ByLength, Position, forever
from regard.training.run import Run
from regard.training.save import LATEST, damage, saves
from regard.training.settings import start
from regard.training.train import Job, carry_out, planned, prepare


def finished_run(folder: Path) -> Path:
    """A small run with two saves."""
    run = folder / "run"
    shutil.rmtree(run, ignore_errors=True)
    words = [*command("translate", write_data("translate", folder / "data"), run), "--steps", "20", "--checks", "4"]
    assert run_in_child(lambda: main(words)) == 0
    return run


def content(folder: Path) -> dict[str, bytes]:
    return {str(file.relative_to(folder)): file.read_bytes() for file in folder.rglob("*") if file.is_file()}


def full_disk(run: Path, points: int) -> int:
    """How many of the points leave every older save byte for byte, loadable, and nothing half-written beside it."""
    newest = run / (run / LATEST).read_text().strip()
    largest = max(file.stat().st_size for file in newest.iterdir())
    good = 0
    for point in range(points):
        copy = run.with_name("full")
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(run, copy)
        shutil.rmtree(copy / newest.name)  # the run goes on from the one before, and makes this one again
        before = {save.name: content(save) for save in saves(copy)}
        limit = largest * point // points

        def work(folder: Path = copy, limit: int = limit) -> int:
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
            return main(["train", "translate", "--resume", "--out", str(folder)])

        code = run_in_child(work)
        after = {save.name: content(save) for save in saves(copy)}
        kept = all(after.get(name) == files for name, files in before.items())
        halves = [file for file in copy.glob(".*step-*") if any(file.iterdir())]
        good += code != 0 and kept and not halves and not any(damage(copy / name) for name in before)
    return good


def begun(folder: Path, steps: int) -> Job:
    shutil.rmtree(folder, ignore_errors=True)
    words = command("translate", write_data("translate", folder.parent / "data"), folder)[2:]
    options = dict(zip((word[2:].replace("-", "_") for word in words[::2]), words[1::2], strict=True))
    numbers = {name: json.loads(value) if value[0].isdigit() else value for name, value in options.items()}
    return planned(prepare(start("translate", **numbers | {"steps": steps, "checks": steps})))


def nan_losses(folder: Path, points: int) -> int:
    """How many poisoned steps stop at exactly that step, with the state of the step before in memory and on disk."""
    good = 0
    for point in range(points):
        job = begun(folder, points + 1)
        right, calls = job.task.loss, [0]

        def poisoned(*args: Any, right: Any = right, calls: list[int] = calls, at: int = point, **how: Any) -> Any:
            loss = right(*args, **how)
            learning = torch.is_grad_enabled()
            calls[0] += learning
            # Two batches make a step; one of them is enough to spoil it.
            return replace(loss, total=loss.total * math.nan) if learning and calls[0] == 2 * at + 1 else loss

        job.task.loss = poisoned
        steps = 0
        try:
            for step in carry_out(job):
                steps = step.number
        except FloatingPointError as error:
            named = f"step {point + 1}:" in str(error) and (folder / "bad-batch.jsonl").exists()
            memory = [weight.detach().clone() for weight in job.progress.model.parameters()]
            clean = begun(folder.with_name("clean"), points + 1)
            run = carry_out(clean)
            for _ in range(point):
                next(run)
            run.close()
            same = all(map(torch.equal, memory, clean.progress.model.parameters()))
            on_disk = [save.name for save in saves(folder)][:1] == ([f"step-{point}"] if point else [])
            good += steps == point and named and same and on_disk
    return good


def corrupted_saves(run: Path, count: int, luck: random.Random) -> tuple[int, int]:
    """How many kinds of damage are found, and how many times the save before is taken instead."""
    newest, before, *_ = saves(run)
    found = used = 0
    for _ in range(count):
        copy = run.with_name("damaged")
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(run, copy)
        file = luck.choice([file for file in sorted((copy / newest.name).iterdir()) if file.stat().st_size])
        old = bytearray(file.read_bytes())
        new = bytearray(old)
        at = luck.randrange(len(new))
        match luck.randrange(5):
            case 0:
                new[at] ^= 1 << luck.randrange(8)
            case 1:
                del new[at:]
            case 2:
                new[at : at + 64] = bytes(len(new[at : at + 64]))
            case 3:
                new[at:at] = b"\0"
            case 4:
                new = bytearray((copy / before.name / file.name).read_bytes())  # of another step
        if new == old:
            new[at] ^= 1
        file.write_bytes(new)
        found += (seen := bool(damage(copy / newest.name)))
        used += seen and Run(copy).newest()[0].name == before.name
    return found, used


class Rows(ByLength):
    def __init__(self, lengths: Any):
        self.lengths, self.units = lengths, len(lengths)


def random_restarts(schedules: int, luck: random.Random) -> int:
    """How many schedules of restarts give every epoch's examples once each, in the order of the run without any."""
    good = 0
    for seed in range(schedules):
        rows = Rows(np.random.default_rng(seed).integers(1, 30, (luck.randint(1, 80), 2)))
        budget, wanted = luck.randint(10, 200), []
        total = sum(len(rows.epoch(budget, seed, epoch)) for epoch in range(3))
        whole = forever(rows, budget, seed)
        wanted = [next(whole)[1] for _ in range(total)]
        found, position = [], Position()
        while len(found) < total:
            life = forever(rows, budget, seed, position)
            for _ in range(min(luck.randint(0, 9), total - len(found))):
                position, batch = next(life)
                found.append(batch)
        epochs = np.array_split(np.concatenate(found), 3)
        once = all(sorted(epoch.tolist()) == list(range(len(rows.lengths))) for epoch in epochs)
        good += once and all(map(np.array_equal, found, wanted))
    return good


def cli() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--points", type=int, default=50, help="of a full disk, and of a number that is none")
    parser.add_argument("--damages", type=int, default=1000)
    parser.add_argument("--schedules", type=int, default=500)
    parser.add_argument("--out", type=Path, default=Path("runs/faults"))
    given = parser.parse_args()
    torch.set_num_threads(1)
    warm_up(given.out)
    run, luck = finished_run(given.out), random.Random(1)
    points, damages, schedules, bad = given.points, given.damages, given.schedules, 0
    for fault, often, tries, promise, kept in (
        (
            "the disk is full at a byte of a save (no file may grow beyond it)", f"{points} points", points,
            "the saves before it byte for byte and loadable, nothing half-written beside them",
            lambda: full_disk(run, points),
        ),
        (
            "the loss of one batch is NaN", f"at each of {points} steps", points,
            "stopped at that step, weights and saves those of the step before, batch named",
            lambda: nan_losses(given.out / "poisoned", points),
        ),
        (
            "a bit, a block, an end or a file of the newest save is changed", f"{damages:,} times", damages,
            "found, and the save before it used", lambda: min(corrupted_saves(run, damages, luck)),
        ),
        (
            "stopped and started at random batches", f"{schedules} schedules", schedules,
            "every example once an epoch, in the order of the run that nobody stopped",
            lambda: random_restarts(schedules, luck),
        ),
    ):  # fmt: skip
        good = kept()
        print(f"| {fault} | {often} | {promise}: {good:,} of {tries:,} |", flush=True)
        bad += tries - good
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(cli())
