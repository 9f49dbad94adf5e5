"""What is wrong is refused: every field of every input, broken in every way, through the command itself.

    python benchmarks/errors.py [--only options files folders runs] [--all] [--output-dir runs/errors]

options   every option of every command, for every task and model: a wrong kind, below and above its range, empty ...
files     every form of data that a task reads: each field missing, empty, of a wrong type ...; each file cut, packed
folders   every family's folder, as ours and as one of others: each field of each file, each tensor, each header
runs      what a run keeps to go on with --resume: each field of its settings, its metrics, its saves

A refusal is one message that names the option, the file and line, or the file and field; its exit code is 2; it changes
nothing. What is not refused is read as the whole thing would be, or means what it says. Unless --all are wanted, a few
of each option and of each file are tried, by chance.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path

import torch

sys.path.append(str(Path(__file__).parents[1] / "tests" / "errors"))
import wrong_files  # noqa: E402
import wrong_folders  # noqa: E402
import wrong_options  # noqa: E402
import wrong_runs  # noqa: E402
from telling import few, no_training  # noqa: E402
from valid import FORMS, form_for, written  # noqa: E402

RESUMED = [("translate", "transformer"), ("write", "gpt"), ("classify", "pooled"), ("match", "clip")]
Tried = tuple[str, str, str, str]  # what was broken, how, what became of it, and what is wrong with that


def options(folder: Path, each: int) -> Iterator[Tried]:
    commands = [*wrong_options.training(folder), *wrong_options.plays(folder)]
    for task, model in wrong_folders.FAMILIES:
        run = wrong_folders.trained(task, model, folder / f"run-{task}-{model}")
        data = written(form_for(task, model), folder / f"data-{task}-{model}")
        commands += wrong_options.others(str(run), task, wrong_folders.asked(task, model, folder), data, folder)
    with wrong_options.nothing_done():
        for command in commands:
            every = [one for name, option in command.options.items() for one in wrong_options.wrong(name, option)]
            for one in few(every, lambda one, name=command.name: f"{name} {one.option}", each):
                yield f"{command.name} {one.option}", one.how, *wrong_options.tried(command, one)


def files(folder: Path, each: int) -> Iterator[Tried]:
    with no_training():
        for form in FORMS:
            reading = wrong_files.Reading(form, folder / form.replace(" ", "-"))
            for one in few(wrong_files.broken(form), lambda one: one.file, each):
                yield f"{form}: {one.file} {one.place}", one.how, *reading.tried(one)


def folders(folder: Path, each: int) -> Iterator[Tried]:
    for task, model in wrong_folders.FAMILIES:
        run = wrong_folders.trained(task, model, folder / f"{task}-{model}")
        for kind in ("ours", "theirs") if (task, model) in wrong_folders.OTHERS else ("ours",):
            name = f"{task}-{model}-{kind}"
            answering = wrong_folders.Answering(task, model, run, folder / name, kind == "theirs")
            for one in few(wrong_folders.broken(folder / name), lambda one, name=name: f"{name} {one.file}", each):
                yield f"{name}: {one.file} {one.place}", one.how, *answering.tried(one)


def runs(folder: Path, each: int) -> Iterator[Tried]:
    for task, model in RESUMED:
        run = wrong_folders.trained(task, model, folder / f"{task}-{model}")
        with no_training():
            resuming = wrong_runs.Resuming(task, run, folder / f"{task}-{model}-copy")
            for one in few(wrong_runs.broken(run), lambda one, task=task: f"{task} {one.file}", each):
                yield f"{task}-{model}: {one.file} {one.place}", one.how, *resuming.tried(one)


KINDS = {"options": (options, 2), "files": (files, 1000), "folders": (folders, 25), "runs": (runs, 50)}


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--only", nargs="*", choices=[*KINDS], default=[*KINDS])
    parser.add_argument("--all", action="store_true", help="every case: several hours")
    parser.add_argument("--output-dir", default="runs/errors")
    given = parser.parse_args()
    torch.set_num_threads(1)
    output_dir, wrong = Path(given.output_dir).absolute(), 0
    for kind in given.only:
        trials, each = KINDS[kind]
        shutil.rmtree(output_dir / kind, ignore_errors=True)
        (output_dir / kind).mkdir(parents=True)
        os.chdir(output_dir / kind)
        os.environ["HOME"] = str(output_dir / kind)  # where tokens are kept
        began = time.perf_counter()
        became: defaultdict[str, Counter[str]] = defaultdict(Counter)
        for where, how, what, fault in trials(output_dir / kind, 10**9 if given.all else each):
            became[how][what] += 1
            wrong += bool(fault)
            if fault:
                print(f"WRONG {where}, {how}: {fault}", flush=True)
        total = sum(became.values(), Counter[str]())
        print(f"{kind}: {time.perf_counter() - began:.0f} s")
        print(f"| broken {kind} | {total.total():,} cases | {spelled(total)} |", flush=True)
        for how, counts in sorted(became.items()):
            print(f"  {how:<28}{spelled(counts)}", flush=True)
    print(f"{wrong} of them wrong")
    return 1 if wrong else 0


def spelled(counts: Counter[str]) -> str:
    return ", ".join(f"{count:,} {what}" for what, count in counts.most_common())


if __name__ == "__main__":
    sys.exit(main())
