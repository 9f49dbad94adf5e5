"""Command-line options from the fields of dataclasses, by tyro; the comment beside a field is its help text."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import MISSING, field, make_dataclass
from difflib import get_close_matches
from itertools import pairwise
from typing import Annotated, Any, get_args

import tyro

from regard.validate import TYPE_NAMES, Option

SHORT_OPTIONS = {"output_dir": "-o", "output": "-o"}
OTHER_NAMES = {  # option names of other libraries and of earlier versions
    "learning-rate": "lr", "rate": "lr", "batch-size": "batch-tokens", "num-train-epochs": "epochs",
    "max-steps": "steps", "warmup": "warmup-steps", "out": "output-dir", "gradient-accumulation-steps": "grad-accum",
    "max-grad-norm": "grad-clip", "clip": "grad-clip", "label-smoothing-factor": "label-smoothing",
    "beam": "num-beams", "beams": "num-beams", "max-length": "max-new-tokens", "num-return-sequences": "num-return",
    "columns": "fields", "delimiter": "separator", "sep": "separator", "train-file": "data", "validation-file": "valid",
}  # fmt: skip


def parse(
    prog: str, args: list[str], options: Mapping[str, Option], description: str = "", parsed: Iterable[str] = ()
) -> dict[str, Any]:
    """The value of every option. Raises ValueError for an unknown one, with the nearest that exists; `parsed` names
    options that the command has parsed before."""
    rows: list[Any] = []
    names = [*parsed, "help"]
    for name, (kind, default, text) in sorted(options.items(), key=lambda row: row[1].default is not MISSING):
        long_name, parts = name.rstrip("_").replace("_", "-"), get_args(kind)
        on, positional = kind is bool and default is True, tyro.conf.Positional in parts
        if not positional:
            names.append(f"no-{long_name}" if on else long_name)
        hint = "(default: on)" if on else "" if default in (None, ()) or tuple[str, ...] in parts else None
        metavar = (name.upper() if parts[0] is str else f"[{name.upper()} ...]") if positional else None
        short = [SHORT_OPTIONS[name]] if name in SHORT_OPTIONS else None
        arg: Any = Annotated[
            kind,
            tyro.conf.arg(
                name=long_name,
                metavar=metavar,
                help=f"turn off: {text}" if on else text,
                help_behavior_hint=hint,
                aliases=short,
            ),
        ]
        rows.append((name, arg) if default is MISSING else (name, arg, field(default=default)))
    check_names(args, names)
    check_numbers(args, options)
    values: Any = tyro.cli(
        make_dataclass("Options", rows),
        args=args,
        prog=prog,
        description=description,
        config=(tyro.conf.FlagCreatePairsOff,),
    )
    for name, (kind, default, _) in options.items():
        check_value(f"--{name.rstrip('_').replace('_', '-')}", getattr(values, name), kind, default)
    return {name: getattr(values, name) for name in options}


def check_names(args: list[str], names: list[str]) -> None:
    """Raises ValueError for an unknown option, with the nearest that exists."""
    for arg in args[: args.index("--") if "--" in args else None]:
        name = arg.split("=")[0].removeprefix("--").replace("_", "-")
        if not arg.startswith("--") or name in names:
            continue
        if f"no-{name}" in names:
            raise ValueError(f"--{name} is on by default, and --no-{name} turns it off: leave it out")
        if name.removeprefix("no-") in names:
            raise ValueError(f"{arg.split('=')[0]}: --{name.removeprefix('no-')} is off by default: leave it out")
        near = [OTHER_NAMES[name]] if OTHER_NAMES.get(name) in names else get_close_matches(name, names, 1)
        hint = f"did you mean --{near[0]}?" if near else "--help lists all options"
        raise ValueError(f"unknown option {arg.split('=')[0]}: {hint}")


def check_numbers(args: list[str], options: Mapping[str, Option]) -> None:
    """Raises ValueError, in one line, for a value that is no number where the option takes one."""
    for arg, following in pairwise([*args[: args.index("--") if "--" in args else None], ""]):
        flag, has_value, value = arg.partition("=")
        name = flag.removeprefix("--").replace("-", "_")
        kinds = {*get_args(options[name].kind), options[name].kind} if flag.startswith("--") and name in options else {}
        number = float if float in kinds else int if int in kinds else None
        text = value if has_value else following
        if number is None or text == "None":
            continue
        try:
            number(text)
        except ValueError:
            raise ValueError(f"{flag} must be {TYPE_NAMES[number]}, not {text!r:.60}") from None


def check_value(option: str, value: Any, kind: Any, default: Any) -> None:
    """Raises ValueError for an empty text, as an unset shell variable gives it, and for NaN and infinity."""
    values = value if isinstance(value, tuple) else (value,)
    if "" in values and value != default and tyro.conf.Positional not in get_args(kind):
        raise ValueError(f"{option} is empty: set it, or leave it out")
    for number in values:
        if isinstance(number, float) and not math.isfinite(number):
            raise ValueError(f"{option} must be a finite number, not {number}")
