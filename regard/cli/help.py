"""`regard VERB --help` of every verb, without importing torch."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import MISSING
from textwrap import wrap
from types import NoneType
from typing import Any, Literal, get_args, get_origin

from regard.cli import static_options
from regard.cli.options import parse
from regard.lab import EXPERIMENTS
from regard.training.task_aliases import TASK_ALIASES
from regard.validate import Option

Group = tuple[str, str]  # a module, and a dataclass in it

FETCH_OPTIONS: Group = ("regard.cli.model_argument", "FetchOptions")
OPTION_GROUPS: dict[str, tuple[Group, ...]] = {
    "run": (("regard.cli.run", "RunCommandOptions"), FETCH_OPTIONS),
    "score": (("regard.cli.score", "ScoreOptions"), FETCH_OPTIONS),
    "check": (("regard.cli.check", "CheckOptions"), FETCH_OPTIONS),
    "bench": (("regard.cli.bench", "BenchOptions"), FETCH_OPTIONS),
    "look": (("regard.cli.look", "LookOptions"), FETCH_OPTIONS),
    "imitate": (("regard.cli.imitate", "ImitateOptions"), ("regard.rl.gail", "GAILOptions")),
    "demo": (("regard.cli.demo", "DemoOptions"),),
}
DOCUMENTS: Group = ("regard.data.documents", "DocumentOptions")
PLAY_OPTIONS: Group = ("regard.cli.act", "PlayOptions")
WIDTH, INDENT = 100, 28  # columns


def show_help(verb: str) -> int:
    if verb == "train":
        return show_train_help()
    if verb == "lab":
        return show_lab_help()
    if verb in ("models", "tasks"):
        print(f"usage: regard {verb}\n\n{static_options.docstring(f'regard.cli.{verb}')}")
        return 0
    rows = {name: option for group in OPTION_GROUPS[verb] for name, option in static_options.options(*group).items()}
    with suppress(SystemExit):
        parse(f"regard {verb}", ["--help"], rows, static_options.docstring(f"regard.cli.{verb}"))
    if verb in ("run", "score"):
        show_task_options(verb)
    return 0


def show_task_options(verb: str) -> None:
    """The options that depend on the task of the model, with their defaults."""
    print(f"\noptions by the task of the model (regard {verb} MODEL --help lists those of one):")
    sections: dict[str, list[str]] = {}  # names of tasks with the same options
    for name, task in static_options.tasks().items():
        module, node = static_options.decode_options(task)
        rows = static_options.options(module, node.name)
        if verb == "run" and static_options.literal_value(static_options.class_attribute(task, "can_play")):
            rows |= static_options.options(*PLAY_OPTIONS)
        if verb == "score" and static_options.method_uses(task, "option_groups", DOCUMENTS[1]):
            rows["cache"] = static_options.options(*DOCUMENTS)["cache"]
        sections.setdefault("\n".join(format_options(rows)), []).append(name)
    for lines, names in sections.items():
        print(f"\n{', '.join(names)}\n{lines}")


def format_options(rows: Mapping[str, Option]) -> list[str]:
    lines = []
    for name, (kind, default, text) in rows.items():
        suffix = "" if default in (None, MISSING, "") or default is False else f" (default: {default})"
        parts = wrap(text + suffix, WIDTH - INDENT, break_on_hyphens=False)
        option = f"  --{name.rstrip('_').replace('_', '-')} {format_type(kind)}".rstrip()
        first = [f"{option:<{INDENT}}{parts[0]}"] if len(option) < INDENT else [option, f"{'':<{INDENT}}{parts[0]}"]
        lines += [*first, *(f"{'':<{INDENT}}{part}" for part in parts[1:])]
    return lines


def format_type(kind: Any) -> str:
    """A type as usage lines show it."""
    if get_origin(kind) is Literal:
        return f"{{{','.join(get_args(kind))}}}"
    if get_args(kind):
        return "|".join(format_type(part) for part in get_args(kind) if part is not NoneType)
    return "" if kind is bool else str(kind.__name__).upper()


def show_train_help() -> int:
    print("usage: regard train TASK [options]          regard train TASK --help lists the options\n")
    for name, task in static_options.tasks().items():
        print(f"  {name:<11}{static_options.literal_value(static_options.class_attribute(task, 'description'))}")
    print(f"\nThe task names of Hugging Face work as well: {', '.join(TASK_ALIASES)}")
    return 0


def show_lab_help() -> int:
    print("usage: regard lab NAME [options] [--output-dir FOLDER]      regard lab NAME --help lists its options")
    print("       regard lab --all [--output-dir FOLDER]               all experiments, on one page\n")
    for name in EXPERIMENTS:
        summary = static_options.docstring(f"regard.lab.{name}").splitlines()[0]
        print(f"  {name:<12}{summary.removeprefix(f'{name}: ')}")
    return 0
