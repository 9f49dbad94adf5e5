"""regard train TASK: from files to a run folder."""

from __future__ import annotations

import argparse
import shlex
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from regard.cli import printable
from regard.cli.act import train_policy
from regard.cli.help import show
from regard.cli.leaving import already, go_on, politely
from regard.cli.model import Fetching, found
from regard.cli.options import parse
from regard.data.lint import BadLines, Report
from regard.hub.folder import read_config, read_json
from regard.metrics import standard_error
from regard.models import MODELS
from regard.tasks import TASKS
from regard.training.loop import Step, parameters
from regard.training.settings import Settings, options, resumed, start, usual_size
from regard.training.time_budget import FEW, duration
from regard.training.train import Job, abandon, carry_out, planned, prepare
from regard.validate import check_choice

FEW_TO_VALIDATE, TOO_FEW = (
    300,
    100,
)  # examples: below the first scores have an error beside them, below the other a warning


def main(args: list[str]) -> int:
    if not args:
        return show("train")
    task = args[0]
    check_choice("task", task, TASKS)
    which, rest = chosen(task, args[1:])
    if which.resume:
        rest.append("--resume")
        which.model = which.model or read_json(Path(which.out or f"runs/{task}") / "train.json").get("model")
    model = which.model or (begun(which) or TASKS[task].default)
    check_choice("model", model, MODELS)
    size = which.size or usual_size(model, bool(which.env))
    check_choice(f"size of {model}", size, MODELS[model].sizes)
    fit = [name for name, family in MODELS.items() if set(family.bodies) & set(TASKS[task].asks)]
    sizes = f"--size {', '.join(MODELS[model].sizes)} (now {size})"
    about = f"{TASKS[task].about}. Also --model {', '.join(fit)} (now {model}) and {sizes}."
    given = parse(f"regard train {task}", rest, options(task, model, size), about, also=("model", "size"))
    typed = {arg.split("=")[0].removeprefix("--").replace("-", "_") for arg in rest if arg.startswith("--")}
    said = {name: value for name, value in given.items() if {name.rstrip("_"), f"no_{name}"} & typed}
    if which.resume:
        named = {name: value for name, value in (("model", which.model), ("size", which.size)) if f"--{name}" in args}
        settings = resumed(task, **said, **named)
    else:
        settings = start(task, model, size, **said)
    if settings.reading.get("env"):
        return train_policy(settings)
    job = ready(settings)
    if job.finished:
        job.lock.release()
        print(already(job.run.folder))
        return 0
    return follow(job, go_on(task, job.run.folder))


def begun(which: argparse.Namespace) -> str | None:
    """What it starts from, fetched now if that is wished."""
    return read_config(found(which.from_, Fetching(download=which.download)))[0].model if which.from_ else None


def chosen(task: str, args: list[str]) -> tuple[argparse.Namespace, list[str]]:
    """Model and size come first: which other options there are follows from them."""
    parser = argparse.ArgumentParser(f"regard train {task}", add_help=False, allow_abbrev=False)
    parser.add_argument("--model")
    parser.add_argument("--size")
    _, rest = parser.parse_known_args(args)
    parser.add_argument("--from", dest="from_")
    parser.add_argument("--out")
    parser.add_argument("--env")
    parser.add_argument("--resume", action="store_true")
    parser.add_argument("--download", action="store_true")
    known, _ = parser.parse_known_args(args)
    return known, [arg for arg in rest if arg != "--resume"]


def ready(settings: Settings) -> Job:
    """A job that is about to start, introduced as it is made."""
    try:
        job = prepare(settings)
    except BadLines as bad:
        show_report(bad.report)
        raise
    if job.data.report:
        show_report(job.data.report)
    introduce(job)
    if settings.plan.steps is None and settings.plan.epochs is None:
        print("timing this machine ...", flush=True)
    job = planned(job)
    if job.finished:
        return job
    parts = ", ".join(f"{part} {duration(seconds)}" for part, seconds in job.startup.parts.items() if seconds >= 0.1)
    print(f"ready after {duration(sum(job.startup.parts.values()))}: {parts or 'nothing took long'}")
    plan = job.settings.plan
    same = f" (what --minutes {plan.minutes:g} is on this machine)" if plan.minutes is not None else ""
    print(f"planned: --steps {job.steps}{same}, --rate {plan.rate:g}, --warmup {plan.warmup}, --seed {plan.seed}")
    if job.budget is not None and job.steps < FEW:
        print(
            f"warning: only {job.steps} steps fit into {duration(job.budget.seconds)}, of which the start took "
            f"{duration(job.budget.spent)}; a model hardly learns in so few. Take more --minutes, a smaller --size or "
            "fewer --batch-tokens"
        )
    return job


def follow(job: Job, command: str) -> int:
    """Show the run while it goes. A first Ctrl-C or SIGTERM finishes the step and saves, a second leaves at once."""

    def leave() -> None:
        kept = abandon(job)
        print(
            f"\nstopped without waiting for what was under way; {kept} is saved. Go on with:\n  {command}", flush=True
        )

    with politely(at_once=leave) as stop, shown(job) as show:
        for step in carry_out(job):
            show(step)
            if stop:
                stop.claim()
                folder = abandon(job)
                draw(job)
                print(f"\nstopped; {folder} is saved. Go on with:\n  {command}", flush=True)
                return stop.code
    draw(job)
    conclude(job)
    return 0


def show_report(report: Report) -> None:
    if sys.stdout.isatty():
        from rich.console import Console

        Console().print(report.table())
    else:
        print("\n".join(report.lines()))


def introduce(job: Job) -> None:
    for trouble in job.troubles:
        print(f"passed over a damaged save: {trouble}")
    train, valid = (job.task.amount(job.data.sets[name]) for name in ("train", "valid"))
    shown = {name: size for name, size in job.task.sizes().items() if name not in ("pad", "sep", "segment_start")}
    sizes = ", ".join(f"{name} {value:,}" for name, value in shown.items())
    size = "" if job.settings.keeping.from_ else f" {job.settings.size}"
    made = f"{job.settings.model}{size} with {parameters(job.progress.model):,} parameters ({sizes})"
    print(f"{train} to learn from, {valid} to validate on; {made}")
    if (count := few_to_validate(job)) and count < TOO_FEW:
        error = standard_error(90.0, count)
        print(
            f"warning: {count} examples to validate on hardly tell better weights from worse: a score of 90 % has a "
            f"standard error of {error:.0f} points. Give --valid, or a larger --held-out"
        )
    if job.progress.step and not job.finished:
        print(f"going on from step {job.progress.step}")


def few_to_validate(job: Job) -> int:
    """How many there are, if they are so few that their scores need an error beside them; else 0."""
    rows = job.valid
    return len(rows) if isinstance(rows, Sequence) and len(rows) < FEW_TO_VALIDATE else 0


@contextmanager
def shown(job: Job) -> Iterator[Any]:
    """A bar with the time left on a terminal, plain lines elsewhere."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    bar = Progress(
        TextColumn("step"), MofNCompleteColumn(), BarColumn(), TimeRemainingColumn(), TextColumn("{task.description}"),
        disable=not sys.stdout.isatty(),
    )  # fmt: skip
    row = bar.add_task("", total=job.steps, completed=job.progress.step)
    steps = job.steps

    def say(line: str) -> None:
        if bar.disable:
            print(line, flush=True)
        else:
            bar.console.print(line, highlight=False, markup=False, soft_wrap=True)

    def show(step: Step) -> None:
        nonlocal steps
        speed = f"loss {step.loss:.3f}  {step.count / step.seconds:,.0f} {job.task.counts}/s"
        bar.update(row, total=job.steps, completed=step.number, description=speed)
        if job.steps != steps and job.budget is not None:
            say(f"replanned: {job.steps} steps instead of {steps}, as one takes {duration(job.budget.step)} now")
            steps = job.steps
        if step.scores:
            say(check_line(step, steps, speed, job.task.shares, few_to_validate(job)))
            for sample in step.scores["samples"]:
                say(printable(f"    {sample['source']}\n  = {sample['answer']}"))
        elif bar.disable and step.number % max(1, job.check_every // 4) == 0:
            say(f"step {step.number}/{steps}  {speed}")

    with bar:
        yield show


def check_line(step: Step, steps: int, speed: str, shares: tuple[str, ...] = (), count: int = 0) -> str:
    """With the standard error of what is a share of few examples."""
    numbers = {name: value for name, value in step.scores.items() if isinstance(value, float)}
    errors = {name: f" ±{standard_error(numbers[name], count):.1f}" for name in shares if count and name in numbers}
    scores = "  ".join(f"{name} {value:.2f}{errors.get(name, '')}" for name, value in numbers.items())
    return f"step {step.number}/{steps}  {speed}  | validation: {scores}"


def draw(job: Job) -> None:
    from regard.view.loss_curve import loss_curve

    loss_curve(job.run.metrics(), job.run.folder / "loss.png")


def conclude(job: Job) -> None:
    print(ending(job))
    best = "  ".join(f"{name} {value:.2f}" for name, value in job.best.items() if isinstance(value, float))
    print(f"best at step {job.best['step']}: {best}")
    if job.test:
        print("test: " + "  ".join(f"{name} {value:.2f}" for name, value in job.test.items()))
    folder = shlex.quote(str(job.run.folder))
    print(f'the model is in {job.run.folder}. Try:\n  regard run {folder} "{job.task.example()}"')


def ending(job: Job) -> str:
    """How many steps were done; of a run with a time, how that came about."""
    plan, done = job.settings.plan, job.progress.step
    if job.budget is None:
        return f"{done:,} steps done"
    rate = plan.rate_at(done - 1) / max(plan.rate_at(step) for step in range(done))
    took = f"{done:,} steps done in {duration(job.budget.spent)} of {duration(job.budget.seconds)}"
    repeat = ""
    if plan.revisions:
        repeat = f"; {plan.steps:,} were planned. The same bits again: --steps {plan.steps} --revisions "
        repeat += " ".join(plan.revisions)
    return f"{took}, the rate at {rate:.1%} of its peak{repeat}"
