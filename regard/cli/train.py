"""regard train TASK: train a model on files, into a run folder."""

from __future__ import annotations

import shlex
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stdout
from os import devnull
from typing import Any

from regard.cli import escape_control
from regard.cli.act import train_policy
from regard.cli.amounts import format_bytes, format_number, format_time
from regard.cli.help import show_help
from regard.cli.interrupts import finished_message, resume_command, stop_on_signal
from regard.cli.model_argument import FetchOptions, fetch_model
from regard.cli.options import parse, peek
from regard.data.documents import describe_amount
from regard.data.lint import BadRowsError, LintReport
from regard.data.splits import DataOptions
from regard.metrics import standard_error
from regard.modalities import MODALITIES
from regard.models import MODELS
from regard.options import Option, make, options_of
from regard.tasks import TASKS
from regard.tasks.compatibility import fitting_modalities, fitting_models
from regard.tasks.predict import EnvOptions
from regard.training.estimate import StepEstimator, random_model
from regard.training.file_job import DEFAULT_MINUTES, FileJob
from regard.training.loop import Progress, Step, num_parameters
from regard.training.rank_checks import check_alone
from regard.training.ranks import SINGLE, OtherRankError, Ranks, join_ranks
from regard.training.settings import RunOptions, Settings, options
from regard.training.start import choose, make_settings
from regard.training.task_aliases import TASK_ALIASES
from regard.training.time_budget import FEW_STEPS, format_duration, time_step
from regard.training.tracking import track
from regard.validate import check_choice

DECISIVE_OPTIONS = {  # which options exist depends on them
    **dict.fromkeys(("model", "size", "modality"), Option(str, None, "")),
    "data": options_of(DataOptions)["data"],
    "env": options_of(EnvOptions)["env"],
    **{name: options_of(RunOptions)[name] for name in ("from_", "download", "resume", "output_dir")},
}
REPORT_SECONDS = 1.0  # in which a rank prints its error: torchrun ends all ranks when one has ended
TIMING_SECONDS = 1.0  # of steps to time before a run
MIN_MINUTES = 1.0  # a shorter run has no time for an estimate
SMALL_VALID, TINY_VALID = 300, 100  # examples: fewer have a standard error beside their scores; fewer, also a warning


def main(args: list[str]) -> int:
    if not args:
        return show_help("train")
    ranks = join_ranks()
    if ranks.is_first:
        return train_on(ranks, args)
    with open(devnull, "w") as nothing, redirect_stdout(nothing):  # the first rank prints for all
        return train_on(ranks, args)


def train_on(ranks: Ranks, args: list[str]) -> int:
    """Train on this rank of several, or alone."""
    try:
        settings = ranks.first(lambda: make_settings(args[0], **parse_task("train", args, {})))
        if settings.input_options[EnvOptions].env:
            ranks.first(lambda: check_alone(ranks))
            return train_policy(settings)
        job = prepare_and_print(settings, ranks)
        if job.is_finished:
            job.lock.release()
            print(finished_message(job.run.folder))
            return 0
        return train_and_print(job, resume_command(settings.task, job.run.folder))
    except OtherRankError as error:
        time.sleep(REPORT_SECONDS)
        return error.exit_code


def parse_task(verb: str, args: Sequence[str], command: Mapping[str, Option]) -> dict[str, Any]:
    """The options that the user typed after a task: those of a run, and those of the command."""
    check_choice("task", args[0], (*TASKS, *TASK_ALIASES))
    decisive = peek(args[1:], DECISIVE_OPTIONS)
    if decisive.get("from_"):
        fetch_model(decisive["from_"], make(FetchOptions, decisive))
    task, model, size, modality, _ = choose(args[0], **decisive)
    available = choice_options(task, model, size, modality) | options(task, model, size, modality)
    return parse(f"regard {verb} {task}", args[1:], {**command, **available}, f"{TASKS[task].description}.")


def choice_options(task: str, model: str, size: str, modality: str) -> dict[str, Option]:
    """The options that determine the others, with the values that they have."""
    kind = TASKS[task]
    models = [name for name in MODELS if fitting_modalities(kind, name)]
    modalities = [name for name, item in MODALITIES.items() if fitting_models(kind, item)]
    return {
        "model": Option(str, model, f"the model: {', '.join(models)}"),
        "size": Option(str, size, f"its size: {', '.join(MODELS[model].sizes)}"),
        "modality": Option(str, modality, f"the kind of input: {', '.join(modalities)}"),
    }


def prepare_and_print(settings: Settings, ranks: Ranks = SINGLE) -> FileJob:
    """A job that is ready to start; prints what it reads, builds and plans."""
    try:
        job = FileJob.open(settings, ranks)
    except BadRowsError as bad:
        print_report(bad.report)
        raise
    if job.data.report:
        print_report(job.data.report)
    print_job(job)
    is_timed = settings.train_options.steps is None and settings.train_options.epochs is None
    if not job.is_resumed and is_worth_estimating(settings):
        print(format_cost(job), flush=True)
    if is_timed:
        print("timing this machine ...", flush=True)
    job.plan()
    if job.is_finished:
        return job
    phases = {phase: seconds for phase, seconds in job.startup.phases.items() if seconds >= 0.1}
    details = "".join(f", {phase} {format_duration(seconds)}" for phase, seconds in phases.items())
    print(f"ready after {format_duration(sum(job.startup.phases.values()))}{details}")
    o = job.settings.train_options
    length = f" (--minutes {o.minutes:g} on this machine)" if o.minutes is not None else format_time_of_steps(job)
    print(f"planned: --steps {job.steps}{length}, --lr {o.lr:g}, --warmup-steps {o.warmup_steps}, --seed {o.seed}")
    if job.budget is not None and job.steps < FEW_STEPS:
        seconds, spent = format_duration(job.budget.seconds), format_duration(job.budget.spent)
        remedy = "Use more --minutes, a smaller --size or fewer --batch-tokens"
        fitting = f"only {job.steps} steps fit into {seconds}, of which the start took {spent}"
        print(f"warning: {fitting}; too few to train a model. {remedy}")
    return job


def is_worth_estimating(settings: Settings) -> bool:
    """The estimate takes a second or two, which a short run does not have."""
    options = settings.train_options
    if options.steps is not None:
        return options.steps >= FEW_STEPS
    return options.epochs is not None or (options.minutes or DEFAULT_MINUTES) >= MIN_MINUTES


def format_cost(job: FileJob) -> str:
    """FLOPs and memory of a step."""
    config, options = job.progress.model.body.config, job.settings.train_options
    cost = StepEstimator(job.settings, job.task, job.examples).cost(config)
    states, total = format_bytes(cost.memory.states), format_bytes(cost.memory.total)
    flops = format_number(cost.flops(options.grad_accum), "FLOP")
    return f"a step: {flops}; {total} of tensors, {states} of them weights, gradients, optimizer and EMA"


def format_time_of_steps(job: FileJob) -> str:
    """The time of a run whose steps or epochs are set, if it is long enough to be worth measuring a few steps."""
    options, count = job.settings.train_options, job.steps
    if job.is_resumed or job.ranks.size > 1 or count < FEW_STEPS:
        return ""
    trial = Progress.new(random_model(job.settings, job.task, job.progress.model.body.config), options)
    seconds = time_step(trial, job.task, job.examples, options, TIMING_SECONDS)
    return f" (about {format_time(count * seconds)} at {format_time(seconds)} a step, without evaluations)"


def train_and_print(job: FileJob, command: str) -> int:
    """Train, and print the progress. The first Ctrl-C or SIGTERM finishes the step and saves, a second exits."""

    def save_now() -> None:
        message = f"stopped without waiting for the current step; {job.save_alone()} is saved"
        print(f"\n{message}. Resume with:\n  {command}", flush=True)

    with stop_on_signal(save_now=save_now, ranks=job.ranks) as stop, progress_printer(job) as print_step:
        job.progress.stop = lambda: bool(stop)
        for step in track(job):
            print_step(step)
            if job.progress.is_stopping if job.ranks.size > 1 else stop:
                stop.claim()
                folder = job.save_interrupted()
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


def print_job(job: FileJob) -> None:
    for damage in job.damaged_saves:
        print(f"skipped a damaged checkpoint: {damage}")
    train, valid = (describe_amount(job.data.sets[name], job.settings.fit.modality.unit) for name in ("train", "valid"))
    sizes = {name: size for name, size in job.task.sizes().items() if name not in ("pad", "sep", "segment_start")}
    details = ", ".join(f"{name} {value:,}" for name, value in sizes.items())
    size = "" if job.settings.run_options.from_ else f" {job.settings.size}"
    model = f"{job.settings.model}{size} with {num_parameters(job.progress.model):,} parameters ({details})"
    print(f"{train} for training, {valid} for validation; {model}")
    if (count := small_valid_count(job)) and count < TINY_VALID:
        problem = f"{count} examples for validation do not separate good weights from bad"
        error = f"a score of 90 % has a standard error of {standard_error(90.0, count):.0f} points"
        print(f"warning: {problem}: {error}. Add --valid, or a larger --valid-share")
    if job.progress.step and not job.is_finished:
        print(f"resuming from step {job.progress.step}")


def small_valid_count(job: FileJob) -> int:
    """The number of validation examples, if their scores need a standard error; else 0."""
    rows, is_percent = job.valid_rows, bool(job.task.percent_metrics)
    return len(rows) if is_percent and isinstance(rows, Sequence) and len(rows) < SMALL_VALID else 0


@contextmanager
def progress_printer(job: FileJob) -> Iterator[Callable[[Step], None]]:
    """Yields a function that prints a step: a progress bar on a terminal, lines elsewhere."""
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as ProgressBar

    step, description = TextColumn("step"), TextColumn("{task.description}")
    columns = (step, MofNCompleteColumn(), BarColumn(), TimeRemainingColumn(), description)
    bar = ProgressBar(*columns, disable=not sys.stdout.isatty())
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


def draw_loss(job: FileJob) -> None:
    if not job.ranks.is_first:
        return
    from regard.view.training_history import loss_curve

    loss_curve(job.run.metrics(), job.run.folder / "loss.png")


def print_result(job: FileJob) -> None:
    print(format_length(job))
    best = "  ".join(f"{name} {value:.2f}" for name, value in job.best_scores.items() if isinstance(value, float))
    print(f"best at step {job.best_scores['step']}: {best}")
    if job.test_scores:
        print("test: " + "  ".join(f"{name} {value:.2f}" for name, value in job.test_scores.items()))
    folder, request = shlex.quote(str(job.run.folder)), job.task.request(job.task.preprocessor.example)
    print(f'the model is in {job.run.folder}. Try:\n  regard run {folder} "{request}"')


def format_length(job: FileJob) -> str:
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
