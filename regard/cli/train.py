"""regard train TASK: train a model on files, into a run folder."""

from __future__ import annotations

import argparse
import shlex
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from regard.cli import escape_control
from regard.cli.act import train_policy
from regard.cli.help import show_help
from regard.cli.interrupts import finished_message, resume_command, stop_on_signal
from regard.cli.model_argument import FetchOptions, fetch_model
from regard.cli.options import SHORT_OPTIONS, parse
from regard.data.lint import BadRowsError, LintReport
from regard.hub.folder import read_config
from regard.metrics import standard_error
from regard.models import MODELS
from regard.tasks import TASKS
from regard.training.job import Job, plan_run, prepare, run_training, save_interrupted
from regard.training.loop import Step, num_parameters
from regard.training.provenance import read_train_json
from regard.training.settings import Settings, default_size, make_settings, options, resume_settings
from regard.training.task_aliases import TASK_ALIASES, resolve_task
from regard.training.time_budget import FEW_STEPS, format_duration
from regard.validate import check_choice

SMALL_VALID, TINY_VALID = 300, 100  # examples: fewer have a standard error beside their scores; fewer, also a warning


def main(args: list[str]) -> int:
    if not args:
        return show_help("train")
    check_choice("task", args[0], (*TASKS, *TASK_ALIASES))
    task, alias_model = resolve_task(args[0])
    first, rest = parse_first(task, args[1:])
    if first.resume:
        rest.append("--resume")
        first.model = first.model or read_train_json(Path(first.output_dir or f"runs/{task}")).get("model")
    model = first.model or source_model(first) or alias_model or TASKS[task].default
    check_choice("model", model, MODELS)
    size = first.size or default_size(model, bool(first.env))
    check_choice(f"size of {model}", size, MODELS[model].sizes)
    models = [name for name, family in MODELS.items() if set(family.bodies) & set(TASKS[task].requires)]
    sizes = f"--size {', '.join(MODELS[model].sizes)} (here {size})"
    description = f"{TASKS[task].description}. Also --model {', '.join(models)} (here {model}) and {sizes}."
    values = parse(f"regard train {task}", rest, options(task, model, size), description, parsed=("model", "size"))
    flags = {arg.split("=")[0].removeprefix("--").replace("-", "_") for arg in rest if arg.startswith("--")}
    flags |= {name for name, short in SHORT_OPTIONS.items() if any(arg.startswith(short) for arg in rest)}
    typed_options = {name: value for name, value in values.items() if {name.rstrip("_"), f"no_{name}"} & flags}
    if first.resume:
        names = [name for name in ("model", "size") if f"--{name}" in args]
        settings = resume_settings(task, **typed_options, **{name: getattr(first, name) for name in names})
    else:
        settings = make_settings(task, model, size, **typed_options)
    if settings.input_options.get("env"):
        return train_policy(settings)
    job = prepare_and_print(settings)
    if job.is_finished:
        job.lock.release()
        print(finished_message(job.run.folder))
        return 0
    return train_and_print(job, resume_command(task, job.run.folder))


def source_model(first: argparse.Namespace) -> str | None:
    """The model of --from, downloaded if --download says so."""
    options = FetchOptions(download=first.download)
    return read_config(fetch_model(first.from_, options))[0].model if first.from_ else None


def parse_first(task: str, args: list[str]) -> tuple[argparse.Namespace, list[str]]:
    """Parse the options that determine which other options exist. Returns their values, and the other arguments."""
    parser = argparse.ArgumentParser(f"regard train {task}", add_help=False, allow_abbrev=False)
    parser.add_argument("--model")
    parser.add_argument("--size")
    _, rest = parser.parse_known_args(args)
    parser.add_argument("--from", dest="from_")
    parser.add_argument("--output-dir", "-o")
    parser.add_argument("--env")
    parser.add_argument("--resume", action="store_true")
    parser.add_argument("--download", action="store_true")
    values, _ = parser.parse_known_args(args)
    return values, [arg for arg in rest if arg != "--resume"]


def prepare_and_print(settings: Settings) -> Job:
    """A job that is ready to start; prints what it reads, builds and plans."""
    try:
        job = prepare(settings)
    except BadRowsError as bad:
        print_report(bad.report)
        raise
    if job.data.report:
        print_report(job.data.report)
    print_job(job)
    if settings.train_options.steps is None and settings.train_options.epochs is None:
        print("timing this machine ...", flush=True)
    job = plan_run(job)
    if job.is_finished:
        return job
    phases = {phase: seconds for phase, seconds in job.startup.phases.items() if seconds >= 0.1}
    details = "".join(f", {phase} {format_duration(seconds)}" for phase, seconds in phases.items())
    print(f"ready after {format_duration(sum(job.startup.phases.values()))}{details}")
    o = job.settings.train_options
    minutes = f" (--minutes {o.minutes:g} on this machine)" if o.minutes is not None else ""
    print(f"planned: --steps {job.steps}{minutes}, --lr {o.lr:g}, --warmup-steps {o.warmup_steps}, --seed {o.seed}")
    if job.budget is not None and job.steps < FEW_STEPS:
        print(
            f"warning: only {job.steps} steps fit into {format_duration(job.budget.seconds)}, of which the start took "
            f"{format_duration(job.budget.spent)}; too few to train a model. Use more --minutes, a smaller "
            "--size or fewer --batch-tokens"
        )
    return job


def train_and_print(job: Job, command: str) -> int:
    """Train, and print the progress. The first Ctrl-C or SIGTERM finishes the step and saves, a second exits."""

    def save_now() -> None:
        folder = save_interrupted(job)
        print(
            f"\nstopped without waiting for the current step; {folder} is saved. Resume with:\n  {command}", flush=True
        )

    with stop_on_signal(save_now=save_now) as stop, progress_printer(job) as print_step:
        for step in run_training(job):
            print_step(step)
            if stop:
                stop.claim()
                folder = save_interrupted(job)
                draw_loss(job)
                print(f"\nstopped; {folder} is saved. Resume with:\n  {command}", flush=True)
                return stop.exit_code
    draw_loss(job)
    print_result(job)
    return 0


def print_report(report: LintReport) -> None:
    if sys.stdout.isatty():
        from rich.console import Console

        Console().print(report.table())
    else:
        print("\n".join(report.lines()))


def print_job(job: Job) -> None:
    for damage in job.damaged_saves:
        print(f"skipped a damaged checkpoint: {damage}")
    train, valid = (job.task.count_examples(job.data.sets[name]) for name in ("train", "valid"))
    sizes = {name: size for name, size in job.task.sizes().items() if name not in ("pad", "sep", "segment_start")}
    details = ", ".join(f"{name} {value:,}" for name, value in sizes.items())
    size = "" if job.settings.run_options.from_ else f" {job.settings.size}"
    model = f"{job.settings.model}{size} with {num_parameters(job.progress.model):,} parameters ({details})"
    print(f"{train} for training, {valid} for validation; {model}")
    if (count := small_valid_count(job)) and count < TINY_VALID:
        error = standard_error(90.0, count)
        print(
            f"warning: {count} examples for validation do not separate good weights from bad: a score of 90 % has a "
            f"standard error of {error:.0f} points. Add --valid, or a larger --valid-share"
        )
    if job.progress.step and not job.is_finished:
        print(f"resuming from step {job.progress.step}")


def small_valid_count(job: Job) -> int:
    """The number of validation examples, if their scores need a standard error; else 0."""
    rows = job.valid_rows
    return len(rows) if isinstance(rows, Sequence) and len(rows) < SMALL_VALID else 0


@contextmanager
def progress_printer(job: Job) -> Iterator[Any]:
    """Yields a function that prints a step: a progress bar on a terminal, lines elsewhere."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    bar = Progress(
        TextColumn("step"), MofNCompleteColumn(), BarColumn(), TimeRemainingColumn(), TextColumn("{task.description}"),
        disable=not sys.stdout.isatty(),
    )  # fmt: skip
    row = bar.add_task("", total=job.steps, completed=job.progress.step)
    steps = job.steps

    def print_line(line: str) -> None:
        if bar.disable:
            print(line, flush=True)
        else:
            bar.console.print(line, highlight=False, markup=False, soft_wrap=True)

    def print_step(step: Step) -> None:
        nonlocal steps
        speed = f"loss {step.loss:.3f}  {step.count / step.seconds:,.0f} {job.task.throughput_unit}/s"
        bar.update(row, total=job.steps, completed=step.number, description=speed)
        if job.steps != steps and job.budget is not None:
            seconds = format_duration(job.budget.step_seconds)
            print_line(f"replanned: {job.steps} steps instead of {steps}, as a step now takes {seconds}")
            steps = job.steps
        if step.scores:
            print_line(format_eval(step, steps, speed, job.task.percent_metrics, small_valid_count(job)))
            for sample in step.scores["samples"]:
                print_line(escape_control(f"    {sample['source']}\n  = {sample['prediction']}"))
        elif bar.disable and step.number % max(1, job.eval_every // 4) == 0:
            print_line(f"step {step.number}/{steps}  {speed}")

    with bar:
        yield print_step


def format_eval(step: Step, steps: int, speed: str, percent_metrics: tuple[str, ...] = (), count: int = 0) -> str:
    """The scores of an evaluation; percentages of few examples have their standard error."""
    numbers = {name: value for name, value in step.scores.items() if isinstance(value, float)}
    few = {name: numbers[name] for name in percent_metrics if count and name in numbers}
    errors = {name: f" ±{standard_error(value, count):.1f}" for name, value in few.items()}
    scores = "  ".join(f"{name} {value:.2f}{errors.get(name, '')}" for name, value in numbers.items())
    return f"step {step.number}/{steps}  {speed}  | validation: {scores}"


def draw_loss(job: Job) -> None:
    from regard.view.loss_curve import loss_curve

    loss_curve(job.run.metrics(), job.run.folder / "loss.png")


def print_result(job: Job) -> None:
    print(format_length(job))
    best = "  ".join(f"{name} {value:.2f}" for name, value in job.best_scores.items() if isinstance(value, float))
    print(f"best at step {job.best_scores['step']}: {best}")
    if job.test_scores:
        print("test: " + "  ".join(f"{name} {value:.2f}" for name, value in job.test_scores.items()))
    folder = shlex.quote(str(job.run.folder))
    print(f'the model is in {job.run.folder}. Try:\n  regard run {folder} "{job.task.example()}"')


def format_length(job: Job) -> str:
    """The number of completed steps; for a run with a time budget also its time and the options that repeat it."""
    train_options, steps = job.settings.train_options, job.progress.step
    if job.budget is None:
        return f"{steps:,} steps completed"
    lr_share = train_options.lr_at(steps - 1) / max(train_options.lr_at(step) for step in range(steps))
    duration = f"{format_duration(job.budget.spent)} of {format_duration(job.budget.seconds)}"
    repeat = ""
    if train_options.revisions:
        repeat = f"; {train_options.steps:,} were planned. To repeat it bit for bit: --steps {train_options.steps} "
        repeat += f"--revisions {' '.join(train_options.revisions)}"
    return f"{steps:,} steps completed in {duration}, the learning rate at {lr_share:.1%} of its peak{repeat}"
