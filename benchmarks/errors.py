"""Invalid inputs are rejected: every field of every input, broken in every way, through the command line.

    python benchmarks/errors.py [--only options files folders runs] [--all] [-o runs/errors]

options   every option of every command, for every task and model: wrong type, below and above its range, empty ...
files     every format of data that a task reads: each field missing, empty, of a wrong type ...; truncated, compressed
folders   every family's folder, of regard and of Hugging Face: each field of each file, each tensor, each header
runs      what a run stores for --resume: each field of its settings, its metrics, its saves

A rejection is one message that names the option, the file and line, or the file and field; its exit code is 2, and it
changes nothing. An input that is accepted must be read as the intact one would be, or mean what it states. Without
--all, a random sample of the cases of each option and file runs.
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
from run_command import sample_cases, skip_training  # noqa: E402
from valid_files import FORMS, default_modality, form_for, write_form  # noqa: E402

RESUMED = [("translate", "transformer"), ("write", "gpt"), ("classify", "pooled"), ("match", "clip")]
Outcome = tuple[str, str, str, str]  # where it was broken, how, the outcome, and what is wrong with that, if anything


def options(folder: Path, count: int) -> Iterator[Outcome]:
    commands = [*wrong_options.train_commands(folder), *wrong_options.lab_commands(folder)]
    for task, model in wrong_folders.FAMILIES:
        run = wrong_folders.train_run(task, model, folder / f"run-{task}-{model}")
        data = write_form(form_for(task, default_modality(task, model)), folder / f"data-{task}-{model}")
        commands += wrong_options.model_commands(
            str(run), task, wrong_folders.request_for(task, model, folder), data, folder
        )
    with wrong_options.skip_work():
        for command in commands:
            cases = [
                case for name, option in command.options.items() for case in wrong_options.wrong_values(name, option)
            ]
            for case in sample_cases(cases, lambda case, name=command.name: f"{name} {case.option}", count):
                yield f"{command.name} {case.option}", case.defect, *wrong_options.try_case(command, case)


def files(folder: Path, count: int) -> Iterator[Outcome]:
    with skip_training():
        for form in FORMS:
            reading = wrong_files.FileTrial(form, folder / form.replace(" ", "-"))
            for case in sample_cases(wrong_files.broken_cases(form), lambda case: case.file, count):
                yield f"{form}: {case.file} {case.field}", case.defect, *reading.try_case(case)


def folders(folder: Path, count: int) -> Iterator[Outcome]:
    for task, model in wrong_folders.FAMILIES:
        run = wrong_folders.train_run(task, model, folder / f"{task}-{model}")
        for kind in ("ours", "theirs") if (task, model) in wrong_folders.HF_FAMILIES else ("ours",):
            name = f"{task}-{model}-{kind}"
            answering = wrong_folders.FolderTrial(task, model, run, folder / name, kind == "theirs")
            for case in sample_cases(
                wrong_folders.broken_cases(folder / name), lambda case, name=name: f"{name} {case.file}", count
            ):
                yield f"{name}: {case.file} {case.field}", case.defect, *answering.try_case(case)


def runs(folder: Path, count: int) -> Iterator[Outcome]:
    for task, model in RESUMED:
        run = wrong_folders.train_run(task, model, folder / f"{task}-{model}")
        with skip_training():
            resuming = wrong_runs.ResumeTrial(task, run, folder / f"{task}-{model}-copy")
            for case in sample_cases(
                wrong_runs.broken_cases(run), lambda case, task=task: f"{task} {case.file}", count
            ):
                yield f"{task}-{model}: {case.file} {case.field}", case.defect, *resuming.try_case(case)


SUITES = {"options": (options, 2), "files": (files, 1000), "folders": (folders, 25), "runs": (runs, 50)}


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--only", nargs="*", choices=[*SUITES], default=[*SUITES])
    parser.add_argument("--all", action="store_true", help="every case: several hours")
    parser.add_argument("-o", "--output-dir", type=Path, default=Path("runs/errors"))
    args = parser.parse_args()
    torch.set_num_threads(1)
    output_dir, failures = args.output_dir.absolute(), 0
    for suite in args.only:
        run_cases, count = SUITES[suite]
        folder = output_dir / suite
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        os.chdir(folder)
        os.environ["HOME"] = str(folder)  # of the token cache
        start = time.perf_counter()
        outcomes: defaultdict[str, Counter[str]] = defaultdict(Counter)
        for location, how, outcome, failure in run_cases(folder, 10**9 if args.all else count):
            outcomes[how][outcome] += 1
            failures += bool(failure)
            if failure:
                print(f"FAILED {location}, {how}: {failure}", flush=True)
        total = sum(outcomes.values(), Counter[str]())
        print(f"{suite}: {time.perf_counter() - start:.0f} s")
        print(f"| broken {suite} | {total.total():,} cases | {format_counts(total)} |", flush=True)
        for how, counts in sorted(outcomes.items()):
            print(f"  {how:<28}{format_counts(counts)}", flush=True)
    print(f"{failures} failures")
    return 1 if failures else 0


def format_counts(counts: Counter[str]) -> str:
    return ", ".join(f"{count:,} {outcome}" for outcome, count in counts.most_common())


if __name__ == "__main__":
    sys.exit(main())
