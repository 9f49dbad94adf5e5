"""The parser of every command: argparse, built from the options of dataclasses.

    parse("regard bench", ["runs/a", "--threads", "1"], options_of(BenchOptions))     {"model": "runs/a", "threads": 1}

It returns what the user typed, and no defaults: those are in the dataclasses.
"""

from __future__ import annotations

import argparse
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING
from difflib import get_close_matches
from functools import partial
from types import NoneType
from typing import Any, Literal, NoReturn, get_args, get_origin

from regard.options import Option, Positional, choices_of, is_multiple, option_flag
from regard.validate import TYPE_NAMES

Value = str | int | float | None

HelpLayout = partial(argparse.RawDescriptionHelpFormatter, max_help_position=28, width=100)
SHORT_OPTIONS = {"output_dir": "-o", "output": "-o"}
OTHER_NAMES = {  # option names of other libraries and of earlier versions
    "learning-rate": "lr", "rate": "lr", "batch-size": "batch-tokens", "num-train-epochs": "epochs",
    "max-steps": "steps", "warmup": "warmup-steps", "out": "output-dir", "gradient-accumulation-steps": "grad-accum",
    "max-grad-norm": "grad-clip", "clip": "grad-clip", "label-smoothing-factor": "label-smoothing",
    "beam": "num-beams", "beams": "num-beams", "max-length": "max-new-tokens", "num-return-sequences": "num-return",
    "columns": "fields", "delimiter": "separator", "sep": "separator", "train-file": "data", "validation-file": "valid",
}  # fmt: skip


class Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        """argparse itself would print the usage as well."""
        message = re.sub(r"expected (one|at least one) argument$", "needs a value", message)
        raise ValueError(re.sub(r"^argument (?:-\w/)?(\S+): (must|is|needs) ", r"\1 \2 ", message))


def parse(prog: str, args: Sequence[str], options: Mapping[str, Option], description: str = "") -> dict[str, Any]:
    """The options that the user typed. Raises ValueError for a wrong one; --help prints them all, and exits."""
    split = args.index("--") if "--" in args else len(args)
    flags = [with_hyphens(arg) for arg in args[:split]]
    check_names(flags, args, options)
    parser = make_parser(prog, options, description)
    values = vars(parser.parse_intermixed_args([*flags, *args[split:]]))
    return {name: tuple(value) if isinstance(value, list) else value for name, value in values.items()}


def peek(args: Sequence[str], options: Mapping[str, Option]) -> dict[str, Any]:
    """Those of some options that the user typed, whichever others there are."""
    parser = make_parser("", options, add_help=False)
    return vars(parser.parse_known_args([with_hyphens(arg) for arg in args])[0])


def make_parser(
    prog: str, options: Mapping[str, Option], description: str = "", add_help: bool = True
) -> argparse.ArgumentParser:
    names = [name.upper() for name, option in options.items() if is_positional(option)]
    usage = " ".join([prog, "[OPTIONS]", *names])
    parser = Parser(prog, usage, description, formatter_class=HelpLayout, add_help=add_help, allow_abbrev=False)
    for name, option in options.items():
        add_option(parser, name, option)
    return parser


def add_option(parser: argparse.ArgumentParser, name: str, option: Option) -> None:
    kind, default, text = option
    text, flag = text.replace("%", "%%"), option_flag(name)
    settings: dict[str, Any] = {"default": argparse.SUPPRESS}
    if kind is bool and default is True:
        parser.add_argument(no_flag(name), dest=name, action="store_false", help=f"turn off: {text}", **settings)
        return
    if kind is bool:
        parser.add_argument(flag, dest=name, action="store_true", help=text, **settings)
        return
    settings["type"] = converter(kind, allow_empty=is_positional(option))
    if is_multiple(kind):
        settings["nargs"] = "*" if is_positional(option) else "+"
    if is_positional(option):
        parser.add_argument(name, metavar=name.upper(), help=text, **settings)
        return
    shown = "" if default in (None, "", (), MISSING) else f" (default: {default})".replace("%", "%%")
    short = [SHORT_OPTIONS[name]] if name in SHORT_OPTIONS else []
    parser.add_argument(*short, flag, dest=name, metavar=format_type(kind), help=text + shown, **settings)


def is_positional(option: Option) -> bool:
    return Positional in get_args(option.kind)


def no_flag(name: str) -> str:
    return option_flag(f"no_{name}")


def with_hyphens(arg: str) -> str:
    """--batch_tokens=8 as --batch-tokens=8."""
    name, equals, value = arg.partition("=")
    return name.replace("_", "-") + equals + value if arg.startswith("--") else arg


def format_type(kind: object) -> str:
    """A type as usage lines show it."""
    if get_origin(kind) is Literal:
        return f"{{{','.join(get_args(kind))}}}"
    if parts := [part for part in get_args(kind) if part not in (NoneType, Ellipsis)]:
        return "|".join(map(format_type, parts))
    return "" if kind is bool else getattr(kind, "__name__", "").upper()


def basic_types(kind: object) -> set[type]:
    """The types of a value: {int, NoneType} of int | None, {str} of tuple[str, ...]."""
    return {kind} if isinstance(kind, type) else set().union(*map(basic_types, get_args(kind)))


def converter(kind: object, allow_empty: bool) -> Callable[[str], Value]:
    """From an argument to a value. A text is empty if a shell variable is unset: that is an error."""
    choices, kinds = choices_of(kind), () if choices_of(kind) else basic_types(kind)
    number: type[int] | type[float] | None = float if float in kinds else int if int in kinds else None

    def convert(text: str) -> Value:
        if text == "None" and type(None) in (*kinds, *get_args(kind)):
            return None
        if choices and text not in choices:
            raise argparse.ArgumentTypeError(f"must be {' or '.join(choices)}, not {text!r:.60}")
        if number is None:
            if not text and not allow_empty:
                raise argparse.ArgumentTypeError("is empty: set it, or leave it out")
            return text
        try:
            value = number(text)
        except ValueError:
            raise argparse.ArgumentTypeError(f"must be {TYPE_NAMES[number]}, not {text!r:.60}") from None
        if not math.isfinite(value):
            raise argparse.ArgumentTypeError(f"must be a finite number, not {text}")
        return value

    return convert


def check_names(flags: Sequence[str], args: Sequence[str], options: Mapping[str, Option]) -> None:
    """Raises ValueError for an unknown option, with the nearest that exists."""
    on = {name for name, option in options.items() if option.kind is bool and option.default is True}
    known = {no_flag(name) if name in on else option_flag(name) for name in options} | {"--help"}
    names = [name.removeprefix("--") for name in known]
    for flag, arg in zip((flag.split("=")[0] for flag in flags), args, strict=False):
        name = flag.removeprefix("--")
        if not flag.startswith("--") or flag in known:
            continue
        if f"--no-{name}" in known:
            raise ValueError(f"{flag} is on by default, and --no-{name} turns it off: leave it out")
        if f"--{name.removeprefix('no-')}" in known:
            raise ValueError(f"{flag}: --{name.removeprefix('no-')} is off by default: leave it out")
        near = [OTHER_NAMES[name]] if OTHER_NAMES.get(name) in names else get_close_matches(name, names, 1)
        hint = f"did you mean --{near[0]}?" if near else "--help lists all options"
        raise ValueError(f"unknown option {arg.split('=')[0]}: {hint}")
