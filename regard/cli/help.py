"""What every verb tells about itself, at once: nothing here imports torch."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import MISSING
from textwrap import wrap
from types import NoneType
from typing import Any, Literal, get_args, get_origin

from regard.cli import source
from regard.cli.options import parse
from regard.lab import EXPERIMENTS
from regard.validate import Option

Group = tuple[str, str]  # a module, and a dataclass in it

FETCHING: Group = ("regard.cli.model", "Fetching")
GROUPS: dict[str, tuple[Group, ...]] = {
    "run": (("regard.cli.run", "Use"), FETCHING),
    "score": (("regard.cli.score", "Measure"), FETCHING),
    "check": (("regard.cli.check", "CheckOptions"), FETCHING),
    "bench": (("regard.cli.bench", "BenchOptions"), FETCHING),
    "look": (("regard.cli.look", "Look"), FETCHING),
    "imitate": (("regard.cli.imitate", "ImitateOptions"), ("regard.rl.gail", "GAILOptions")),
    "demo": (("regard.cli.demo", "Demo"),),
}
DOCUMENTS: Group = ("regard.data.documents", "Documents")
PLAYING: Group = ("regard.cli.act", "PlayOptions")
WIDTH, LEFT = 100, 28


def show(verb: str) -> int:
    """`regard VERB --help`."""
    if verb == "train":
        return train()
    if verb == "lab":
        return lab()
    if verb in ("models", "tasks"):
        print(f"usage: regard {verb}\n\n{source.about(f'regard.cli.{verb}')}")
        return 0
    rows = {name: option for group in GROUPS[verb] for name, option in source.options(*group).items()}
    with suppress(SystemExit):
        parse(f"regard {verb}", ["--help"], rows, source.about(f"regard.cli.{verb}"))
    if verb in ("run", "score"):
        by_task(verb)
    return 0


def by_task(verb: str) -> None:
    """Which other options there are follows from the task of the model: all of them, with their defaults."""
    print(f"\nand, by the task of the model (regard {verb} MODEL --help has those of one):")
    named: dict[str, list[str]] = {}
    for name, task in source.tasks().items():
        module, node = source.ways(task)
        rows = source.options(module, node.name)
        if verb == "run" and source.value(source.attribute(task, "acts")):
            rows |= source.options(*PLAYING)
        if verb == "score" and source.mentions(task, "groups", DOCUMENTS[1]):
            rows["cache"] = source.options(*DOCUMENTS)["cache"]
        named.setdefault("\n".join(listed(rows)), []).append(name)
    for lines, names in named.items():
        print(f"\n{', '.join(names)}\n{lines}")


def listed(rows: Mapping[str, Option]) -> list[str]:
    lines = []
    for name, (kind, default, text) in rows.items():
        shown = "" if default in (None, MISSING, "") or default is False else f" (default: {default})"
        parts = wrap(text + shown, WIDTH - LEFT, break_on_hyphens=False)
        option = f"  --{name.rstrip('_').replace('_', '-')} {type_of(kind)}".rstrip()
        first = [f"{option:<{LEFT}}{parts[0]}"] if len(option) < LEFT else [option, f"{'':<{LEFT}}{parts[0]}"]
        lines += [*first, *(f"{'':<{LEFT}}{part}" for part in parts[1:])]
    return lines


def type_of(kind: Any) -> str:
    """As usage lines have it."""
    if get_origin(kind) is Literal:
        return f"{{{','.join(get_args(kind))}}}"
    if get_args(kind):
        return "|".join(type_of(part) for part in get_args(kind) if part is not NoneType)
    return "" if kind is bool else str(kind.__name__).upper()


def train() -> int:
    print("usage: regard train TASK [options]          regard train TASK --help lists the options\n")
    for name, task in source.tasks().items():
        print(f"  {name:<11}{source.value(source.attribute(task, 'about'))}")
    return 0


def lab() -> int:
    print("usage: regard lab NAME [--option value ...] [--out FOLDER]      regard lab NAME --help lists its options")
    print("       regard lab --all [--out FOLDER]                        one page with all of them\n")
    for name in EXPERIMENTS:
        print(f"  {name:<12}{source.about(f'regard.lab.{name}').splitlines()[0].removeprefix(f'{name}: ')}")
    return 0
