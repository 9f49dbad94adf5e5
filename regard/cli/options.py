"""Options of a command are the fields of dataclasses, and the comment beside a field is its help (by tyro)."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import MISSING, field, make_dataclass
from difflib import get_close_matches
from typing import Annotated, Any, get_args

import tyro

from regard.validate import Option

ELSEWHERE = {  # what options are called in other programs
    "label-smoothing-factor": "smoothing", "lr": "rate", "learning-rate": "rate", "batch-size": "batch-tokens",
    "num-train-epochs": "epochs", "max-steps": "steps", "warmup-steps": "warmup", "output-dir": "out", "output": "out",
    "gradient-accumulation-steps": "accumulate", "max-grad-norm": "clip", "beams": "num-beams", "beam": "num-beams",
    "max-length": "max-new-tokens", "num-return-sequences": "num-return", "columns": "fields",
    "delimiter": "separator", "sep": "separator", "train-file": "data", "validation-file": "valid",
}  # fmt: skip


def parse(
    prog: str, args: list[str], options: Mapping[str, Option], about: str = "", also: Iterable[str] = ()
) -> dict[str, Any]:
    """The value of every option. Wrong input ends here, with the nearest option that there is; `also` are those that
    were taken from the command line before."""
    rows: list[Any] = []
    names = [*also, "help"]
    for name, (kind, default, text) in sorted(options.items(), key=lambda row: row[1].default is not MISSING):
        spelled, hint = name.rstrip("_").replace("_", "-"), None
        on = kind is bool and default is True
        if tyro.conf.Positional not in get_args(kind):
            names.append(f"no-{spelled}" if on else spelled)
        if on:
            text, hint = f"turn off: {text}", "(on unless given)"
        told: Any = Annotated[kind, tyro.conf.arg(help=text, name=spelled, help_behavior_hint=hint)]
        rows.append((name, told) if default is MISSING else (name, told, field(default=default)))
    must_be_known(args, names)
    parsed: Any = tyro.cli(
        make_dataclass("Options", rows), args=args, prog=prog, description=about, config=(tyro.conf.FlagCreatePairsOff,)
    )
    given = {name: getattr(parsed, name) for name in options}
    for name, (kind, default, _) in options.items():
        must_say_something(f"--{name.rstrip('_').replace('_', '-')}", given[name], kind, default)
    return given


def must_be_known(args: list[str], names: list[str]) -> None:
    """Refuse an option that there is not, with the one that is meant."""
    for arg in args[: args.index("--") if "--" in args else None]:
        name = arg.split("=")[0].removeprefix("--").replace("_", "-")
        if not arg.startswith("--") or name in names:
            continue
        if f"no-{name}" in names:
            raise ValueError(f"--{name} is on unless --no-{name} turns it off: leave it out")
        if name.removeprefix("no-") in names:
            raise ValueError(f"{arg.split('=')[0]}: --{name.removeprefix('no-')} is off unless given: leave it out")
        known = [ELSEWHERE[name]] if ELSEWHERE.get(name) in names else get_close_matches(name, names, 1)
        meant = f"did you mean --{known[0]}?" if known else "--help lists those that there are"
        raise ValueError(f"there is no option {arg.split('=')[0]}: {meant}")


def must_say_something(option: str, value: Any, kind: Any, default: Any) -> None:
    """Refuse an empty text, as a variable gives it that is not set, and what is no number."""
    values = value if isinstance(value, tuple) else (value,)
    if "" in values and value != default and tyro.conf.Positional not in get_args(kind):
        raise ValueError(f"{option} is empty: say what it is, or leave it out")
    for one in values:
        if isinstance(one, float) and not math.isfinite(one):
            raise ValueError(f"{option} must be a finite number, not {one}")
