"""regard train TASK: from files to a run folder."""

from __future__ import annotations

import argparse
import shlex
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from regard.choose import choose
from regard.cli.act import act
from regard.cli.leaving import already, go_on, politely
from regard.cli.model import Fetching, found
from regard.cli.options import parse
from regard.data.lint import BadLines, Report
from regard.hub.folder import read_config, read_json
from regard.models import MODELS
from regard.tasks import TASKS
from regard.training.loop import Step, parameters
from regard.training.settings import Settings, options, resumed, start, usual_size
from regard.training.train import Job, carry_out, planned, prepare, save


def main(args: list[str]) -> int:
    if not args or args[0] in ("-h", "--help"):
        print("usage: regard train TASK [options]          regard train TASK --help lists the options\n")
        print("\n".join(f"  {name:<11}{task.about}" for name, task in TASKS.items()))
        return 0
    task = args[0]
    choose("task", task, TASKS)
    which, rest = chosen(task, args[1:])
    if which.resume:
        rest.append("--resume")
        which.model = which.model or read_json(Path(which.out or f"runs/{task}") / "train.json").get("model")
    model = which.model or (begun(which) or TASKS[task].default)
    choose("model", model, MODELS)
    size = which.size or usual_size(model, bool(which.env))
    choose(f"size of {model}", size, MODELS[model].sizes)
    fit = [name for name, family in MODELS.items() if set(family.bodies) & set(TASKS[task].asks)]
    sizes = f"--size {', '.join(MODELS[model].sizes)} (now {size})"
    about = f"{TASKS[task].about}. Also --model {', '.join(fit)} (now {model}) and {sizes}."
    given = parse(f"regard train {task}", rest, options(task, model, size), about)
    typed = {arg.split("=")[0].removeprefix("--").replace("-", "_") for arg in rest if arg.startswith("--")}
    said = {name: value for name, value in given.items() if {name.rstrip("_"), f"no_{name}"} & typed}
    if which.resume:
        named = {name: value for name, value in (("model", which.model), ("size", which.size)) if f"--{name}" in args}
        settings = resumed(task, **said, **named)
    else:
        settings = start(task, model, size, **said)
    if settings.reading.get("env"):
        return act(settings)
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
    plan = job.settings.plan
    same = f" (what --minutes {plan.minutes:g} is on this machine)" if plan.minutes is not None else ""
    print(f"planned: --steps {plan.steps}{same}, --rate {plan.rate:g}, --warmup {plan.warmup}, --seed {plan.seed}")
    return job


def follow(job: Job, command: str) -> int:
    """Show the run while it goes. A first Ctrl-C or SIGTERM finishes the step and saves, a second leaves at once."""
    with politely() as stop, shown(job) as show:
        for step in carry_out(job):
            show(step)
            if stop:
                folder = save(job)
                draw(job)
                print(f"\nstopped; {folder} is saved. Go on with:\n  {command}", flush=True)
                return 128 + stop[0]
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
    sizes = ", ".join(f"{name} {value:,}" for name, value in job.task.sizes().items() if name not in ("pad", "sep"))
    made = f"{job.settings.model} {job.settings.size} with {parameters(job.progress.model):,} parameters ({sizes})"
    print(f"{train} to learn from, {valid} to validate on; {made}")
    if job.progress.step and not job.finished:
        print(f"going on from step {job.progress.step}")


@contextmanager
def shown(job: Job) -> Iterator[Any]:
    """A bar with the time left on a terminal, plain lines elsewhere."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    steps = job.settings.plan.steps or 0
    bar = Progress(
        TextColumn("step"), MofNCompleteColumn(), BarColumn(), TimeRemainingColumn(), TextColumn("{task.description}"),
        disable=not sys.stdout.isatty(),
    )  # fmt: skip
    row = bar.add_task("", total=steps, completed=job.progress.step)

    def say(line: str) -> None:
        if bar.disable:
            print(line, flush=True)
        else:
            bar.console.print(line, highlight=False, markup=False, soft_wrap=True)

    def show(step: Step) -> None:
        speed = f"loss {step.loss:.3f}  {step.count / step.seconds:,.0f} {job.task.counts}/s"
        bar.update(row, completed=step.number, description=speed)
        if step.scores:
            say(check_line(step, steps, speed))
            for sample in step.scores["samples"]:
                say(f"    {sample['source']}\n  = {sample['answer']}")
        elif bar.disable and step.number % max(1, job.check_every // 4) == 0:
            say(f"step {step.number}/{steps}  {speed}")

    with bar:
        yield show


def check_line(step: Step, steps: int, speed: str) -> str:
    scores = "  ".join(f"{name} {value:.2f}" for name, value in step.scores.items() if isinstance(value, float))
    return f"step {step.number}/{steps}  {speed}  | validation: {scores}"


def draw(job: Job) -> None:
    from regard.view.curve import loss_curve

    loss_curve(job.run.metrics(), job.run.folder / "loss.png")


def conclude(job: Job) -> None:
    best = "  ".join(f"{name} {value:.2f}" for name, value in job.best.items() if isinstance(value, float))
    print(f"best at step {job.best['step']}: {best}")
    if job.test:
        print("test: " + "  ".join(f"{name} {value:.2f}" for name, value in job.test.items()))
    folder = shlex.quote(str(job.run.folder))
    print(f'the model is in {job.run.folder}. Try:\n  regard run {folder} "{job.task.example()}"')
