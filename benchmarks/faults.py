"""Fault tolerance of a run: a full disk at any byte of a save, NaN losses at any step, corrupted saves, restarts.

    python benchmarks/faults.py [--points 50] [--schedules 500] [--damages 1000] [-o runs/faults]

full disk   no file may grow beyond a limit (RLIMIT_FSIZE) during the save of a run that already has one
NaN loss    the loss of one batch is NaN: the weights on disk and in memory must be those of the step before
corruption  a save is changed by a bit, a block or its length: detected, and the previous save used
restarts    a run is stopped and restarted at random batches: every example still comes once per epoch
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
from recipes import keywords

from regard.cli import main
from regard.data.batches import BucketedExamples, Position, iterate_batches
from regard.training.checkpoint import LATEST, find_damage, list_checkpoints
from regard.training.file_job import FileJob
from regard.training.run_folder import RunFolder
from regard.training.start import make_settings


def finished_run(folder: Path) -> Path:
    """A small finished run with two saves."""
    run = folder / "run"
    shutil.rmtree(run, ignore_errors=True)
    words = [*command("translate", write_data("translate", folder / "data"), run), "--steps", "20", "--evals", "4"]
    assert run_in_child(lambda: main(words)) == 0
    return run


def read_files(folder: Path) -> dict[str, bytes]:
    return {str(file.relative_to(folder)): file.read_bytes() for file in folder.rglob("*") if file.is_file()}


def full_disk(run: Path, points: int) -> int:
    """Number of limits that leave every older save unchanged and loadable, and no partial save."""
    newest = run / (run / LATEST).read_text().strip()
    largest = max(file.stat().st_size for file in newest.iterdir())
    passed = 0
    for point in range(points):
        copy = run.with_name("full")
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(run, copy)
        shutil.rmtree(copy / newest.name)  # the run resumes from the previous save, and makes this one again
        before = {save.name: read_files(save) for save in list_checkpoints(copy)}
        limit = largest * point // points

        def work(folder: Path = copy, limit: int = limit) -> int:
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
            return main(["train", "translate", "--resume", "--output-dir", str(folder)])

        code = run_in_child(work)
        after = {save.name: read_files(save) for save in list_checkpoints(copy)}
        unchanged = all(after.get(name) == files for name, files in before.items())
        partial = [file for file in copy.glob(".*step-*") if any(file.iterdir())]
        passed += code != 0 and unchanged and not partial and not any(find_damage(copy / name) for name in before)
    return passed


def new_job(folder: Path, steps: int) -> FileJob:
    shutil.rmtree(folder, ignore_errors=True)
    words = command("translate", write_data("translate", folder.parent / "data"), folder)[2:]
    options = dict(zip(words[::2], words[1::2], strict=True)) | {"--steps": str(steps), "--evals": str(steps)}
    values = {name: json.loads(value) if value[0].isdigit() else value for name, value in options.items()}
    return FileJob.open(make_settings("translate", **keywords(values))).plan()


def nan_losses(folder: Path, points: int) -> int:
    """Number of steps, of `points`, at which a NaN loss stops the run with the state of the step before in memory and
    on disk."""
    passed = 0
    for point in range(points):
        job = new_job(folder, points + 1)
        original, calls = job.task.loss, [0]

        def nan_loss(
            *args: Any, original: Any = original, calls: list[int] = calls, at: int = point, **kwargs: Any
        ) -> Any:
            loss = original(*args, **kwargs)
            training = torch.is_grad_enabled()
            calls[0] += training
            # A step accumulates two batches; one NaN is enough.
            return replace(loss, total=loss.total * math.nan) if training and calls[0] == 2 * at + 1 else loss

        job.task.loss = nan_loss
        steps = 0
        try:
            for step in job.train():
                steps = step.number
        except FloatingPointError as error:
            named = f"step {point + 1}:" in str(error) and (folder / "bad-batch.jsonl").exists()
            memory = [weight.detach().clone() for weight in job.progress.model.parameters()]
            clean = new_job(folder.with_name("clean"), points + 1)
            run = clean.train()
            for _ in range(point):
                next(run)
            run.close()
            same = all(map(torch.equal, memory, clean.progress.model.parameters()))
            on_disk = [save.name for save in list_checkpoints(folder)][:1] == ([f"step-{point}"] if point else [])
            passed += steps == point and named and same and on_disk
    return passed


def corrupted_saves(run: Path, count: int, rng: random.Random) -> tuple[int, int]:
    """Numbers of corruptions that are detected, and after which the previous save is used."""
    newest, previous, *_ = list_checkpoints(run)
    detected = used = 0
    for _ in range(count):
        copy = run.with_name("damaged")
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(run, copy)
        file = rng.choice([file for file in sorted((copy / newest.name).iterdir()) if file.stat().st_size])
        old = bytearray(file.read_bytes())
        new = bytearray(old)
        at = rng.randrange(len(new))
        match rng.randrange(5):
            case 0:
                new[at] ^= 1 << rng.randrange(8)
            case 1:
                del new[at:]
            case 2:
                new[at : at + 64] = bytes(len(new[at : at + 64]))
            case 3:
                new[at:at] = b"\0"
            case 4:
                new = bytearray((copy / previous.name / file.name).read_bytes())  # of another step
        if new == old:
            new[at] ^= 1
        file.write_bytes(new)
        detected += (is_damaged := bool(find_damage(copy / newest.name)))
        used += is_damaged and RunFolder(copy).newest_checkpoint()[0].name == previous.name
    return detected, used


class Rows(BucketedExamples):
    def __init__(self, lengths: Any):
        self.lengths, self.units = lengths, len(lengths)


def random_restarts(schedules: int, rng: random.Random) -> int:
    """Number of schedules of restarts with every example once per epoch, in the order of the uninterrupted run."""
    passed = 0
    for seed in range(schedules):
        rows = Rows(np.random.default_rng(seed).integers(1, 30, (rng.randint(1, 80), 2)))
        budget = rng.randint(10, 200)
        total = sum(len(rows.epoch(budget, seed, epoch)) for epoch in range(3))
        uninterrupted = iterate_batches(rows, budget, seed)
        expected = [next(uninterrupted)[1] for _ in range(total)]
        batches, position = [], Position()
        while len(batches) < total:
            resumed = iterate_batches(rows, budget, seed, position)
            for _ in range(min(rng.randint(0, 9), total - len(batches))):
                position, batch = next(resumed)
                batches.append(batch)
        epochs = np.array_split(np.concatenate(batches), 3)
        once = all(sorted(epoch.tolist()) == list(range(len(rows.lengths))) for epoch in epochs)
        passed += once and all(map(np.array_equal, batches, expected))
    return passed


def cli() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--points", type=int, default=50, help="file size limits of the full disk, and steps with a NaN loss"
    )
    parser.add_argument("--damages", type=int, default=1000, help="number of corruptions")
    parser.add_argument("--schedules", type=int, default=500, help="number of schedules of restarts")
    parser.add_argument("-o", "--output-dir", type=Path, default=Path("runs/faults"))
    args = parser.parse_args()
    torch.set_num_threads(1)
    warm_up(args.output_dir)
    run, rng = finished_run(args.output_dir), random.Random(1)
    points, damages, schedules, failures = args.points, args.damages, args.schedules, 0
    for fault, unit, count, behaviour, count_passed in (
        (
            "the disk is full at a byte of a save (RLIMIT_FSIZE)", f"{points} points", points,
            "older saves unchanged and loadable, no partial save", lambda: full_disk(run, points),
        ),
        (
            "the loss of one batch is NaN", f"at each of {points} steps", points,
            "stopped at that step, weights and saves of the step before, batch named",
            lambda: nan_losses(args.output_dir / "nan", points),
        ),
        (
            "a bit, a block, the length or a file of the newest save is changed", f"{damages:,} times", damages,
            "detected, and the previous save used", lambda: min(corrupted_saves(run, damages, rng)),
        ),
        (
            "stopped and restarted at random batches", f"{schedules} schedules", schedules,
            "every example once per epoch, in the order of the uninterrupted run",
            lambda: random_restarts(schedules, rng),
        ),
    ):  # fmt: skip
        passed = count_passed()
        print(f"| {fault} | {unit} | {behaviour}: {passed:,} of {count:,} |", flush=True)
        failures += count - passed
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(cli())
