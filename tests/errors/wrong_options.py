"""Every option of every command, with every wrong value."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple, get_args
from unittest.mock import patch

from run_command import find_fault, run_command, skip_training
from valid_files import TRIPLES, cache_options, form_for, tiny_options, write_form

from regard.cli.bench import BenchOptions
from regard.cli.check import CheckOptions
from regard.cli.demo import DemoOptions
from regard.cli.imitate import ImitateOptions
from regard.cli.lab import LabOptions
from regard.cli.look import LookOptions
from regard.cli.model_argument import FetchOptions
from regard.cli.run import RunCommandOptions
from regard.cli.score import ScoreOptions
from regard.lab import EXPERIMENTS, experiment, options_class
from regard.options import Option, Positional, choices_of, option_flag, options_of
from regard.rl.gail import GAILOptions
from regard.tasks import TASKS
from regard.training.settings import default_size, options

NO_NUMBER = {"a wrong kind": "x", "nothing": "", "no number": "nan", "endless": "inf", "below all": "-inf"}
WRONG_VALUES: dict[type, dict[str, str]] = {
    int: NO_NUMBER | {"half": "1.5", "below": "-1", "zero": "0", "many": "100000000", "huge": "9" * 40, "hex": "0x10"},
    float: NO_NUMBER | {"below": "-1", "zero": "0", "one": "1", "huge": "1e308"},
    str: {"nothing": "", "long": "x" * 300, "no place": "no/such/place"},
    bool: {"a value": "7"},
}
ALWAYS_WRONG = (*NO_NUMBER, "half", "hex", "a value")  # of their type
CHOICE_OPTIONS = dict.fromkeys(("model", "size", "modality"), Option(str, None, ""))  # they determine the others
DURATION_OPTIONS = ("steps", "epochs", "minutes")  # mutually exclusive


class WrongValue(NamedTuple):
    option: str  # as on the command line
    defect: str
    arguments: tuple[str, ...]
    refused: bool  # whether it must be refused; otherwise it may be


def wrong_values(name: str, option: Option) -> Iterator[WrongValue]:
    flag, choices, kind = option_flag(name), choices_of(option.kind), kind_of(option.kind)
    if Positional in get_args(option.kind):
        return
    for defect, value in (
        {"no such word": f"{choices[0]}x", "nothing": ""}.items() if choices else WRONG_VALUES[kind].items()
    ):
        must_refuse = bool(choices) or is_always_wrong(defect, kind, option)
        yield WrongValue(flag, defect, (f"{flag}={value}",), must_refuse)
    if kind is not bool:
        yield WrongValue(flag, "no value", (flag,), True)
    yield WrongValue(f"{flag}x", "no such option", (f"{flag}x", "1"), True)


def is_always_wrong(defect: str, kind: type, option: Option) -> bool:
    return defect in ALWAYS_WRONG and (kind is not str or option.default != "")


def kind_of(kind: Any) -> type:
    """The basic type of an option: that of T | None, tuple[T, ...] ..."""
    types = [kind] if isinstance(kind, type) else [kind_of(part) for part in get_args(kind) if part is not Ellipsis]
    return next((basic for basic in (bool, int, float, str) if basic in types), str)


class Command(NamedTuple):
    """A valid command, and the options that it has."""

    name: str
    args: list[str]
    options: Mapping[str, Option]


def train_commands(folder: Path) -> Iterator[Command]:
    for task, model, modality in TRIPLES:
        run_folder = folder / f"{task}-{model}-{modality}"
        data = write_form(form_for(task, modality), run_folder)
        files = [
            "--data",
            *data,
            "--valid",
            *data,
            "--output-dir",
            str(run_folder / "run"),
            "--overwrite",
            *cache_options(task, run_folder),
        ]
        available = CHOICE_OPTIONS | options(task, model, default_size(model), modality)
        name = f"train {task} --model {model} --modality {modality}"
        yield Command(name, ["train", task, *tiny_options(task, model, modality), *files], available)


def model_commands(model: str, task: str, text: str, data: list[str], folder: Path) -> Iterator[Command]:
    """All commands on a model but train."""
    fetching, decode_options = options_of(FetchOptions), options_of(TASKS[task].decode_options)
    yield Command(f"run, {task}", ["run", model, text], options_of(RunCommandOptions) | fetching | decode_options)
    yield Command(f"score, {task}", ["score", model, *data], options_of(ScoreOptions) | fetching | decode_options)
    yield Command(
        f"look, {task}", ["look", model, text, "--output", str(folder / "a.html")], options_of(LookOptions) | fetching
    )
    yield Command(f"check, {task}", ["check", model, "--no-peers"], options_of(CheckOptions) | fetching)
    yield Command(f"bench, {task}", ["bench", model, "--no-peers"], options_of(BenchOptions) | fetching)


def lab_commands(folder: Path) -> Iterator[Command]:
    out = ["--output-dir", str(folder / "lab")]
    for name in EXPERIMENTS:
        yield Command(f"lab {name}", ["lab", name, *out], options_of(options_class(name)) | options_of(LabOptions))
    yield Command("lab --all", ["lab", "--all", *out], options_of(LabOptions))
    yield Command("demo", ["demo", *out], options_of(DemoOptions))
    imitate_options = options_of(ImitateOptions) | options_of(GAILOptions)
    yield Command("imitate", ["imitate", "--output-dir", str(folder / "imitate")], imitate_options)


SKIPPED = ("check.check_folder", "bench.benchmark", "imitate.imitate", "lab.run_all", "demo.prepare_and_print")


@contextmanager
def skip_work() -> Iterator[None]:
    """Long commands stop where their work starts; their options are validated by then."""
    with ExitStack() as stack:
        stack.enter_context(skip_training())
        for function in SKIPPED:
            stack.enter_context(patch(f"regard.cli.{function}", lambda *_: exit(0)))
        for name in EXPERIMENTS:
            stack.enter_context(patch.object(experiment(name), "run", lambda *_: exit(0)))
        yield


def try_case(command: Command, case: WrongValue) -> tuple[str, str]:
    """The outcome (refused or accepted), and its fault, if any."""
    result = run_command([*without_option(command.args, case.option), *case.arguments])
    if result.code == 0:
        return "accepted", "it was accepted" if case.refused else ""
    not_supported = ("no attention to look at", "regard look shows", "has no page yet")  # may be reported first
    fault = find_fault(result, [*names_in_refusal(case), *not_supported])
    return "refused", f"{fault}: {result.err[-500:]}" if fault else ""


def without_option(args: list[str], option: str) -> list[str]:
    """The arguments without an option; without all durations if it is one of them."""
    durations = [option_flag(name) for name in DURATION_OPTIONS]
    dropped = durations if option in durations else [option]
    remaining, skip = [], False
    for arg in args:
        skip = arg in dropped if arg.startswith("--") else skip
        if not skip:
            remaining.append(arg)
    return remaining


def names_in_refusal(case: WrongValue) -> list[str]:
    """A refusal names the option or its value."""
    value, option_name = case.arguments[0].partition("=")[2], case.option.removeprefix("--")
    is_distinctive = len(value) > 2 or case.defect == "a value"
    return [
        option_name.removesuffix("x") if case.defect == "no such option" else option_name,
        *([value] if is_distinctive else []),
    ]
