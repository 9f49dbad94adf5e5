"""Options of a command are the fields of dataclasses, and the comment beside a field is its help (by tyro)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import MISSING, field, make_dataclass
from typing import Annotated, Any, get_args

import tyro

from regard.training.settings import Option


def parse(prog: str, args: list[str], options: Mapping[str, Option], about: str = "") -> dict[str, Any]:
    """The value of every option. Wrong input ends here, with the nearest option that there is."""
    rows: list[Any] = []
    for name, (kind, default, text) in sorted(options.items(), key=lambda row: row[1].default is not MISSING):
        told: Any = Annotated[kind, tyro.conf.arg(help=text, name=name.rstrip("_").replace("_", "-"))]
        rows.append((name, told) if default is MISSING else (name, told, field(default=default)))
    parsed: Any = tyro.cli(
        make_dataclass("Options", rows), args=args, prog=prog, description=about, config=(tyro.conf.FlagCreatePairsOff,)
    )
    given = {name: getattr(parsed, name) for name in options}
    for name, (kind, default, _) in options.items():
        must_say_something(f"--{name.rstrip('_').replace('_', '-')}", given[name], kind, default)
    return given


def must_say_something(option: str, value: Any, kind: Any, default: Any) -> None:
    """Refuse an empty text, as a variable gives it that is not set, and what is no number."""
    values = value if isinstance(value, tuple) else (value,)
    if "" in values and value != default and tyro.conf.Positional not in get_args(kind):
        raise ValueError(f"{option} is empty: say what it is, or leave it out")
    for one in values:
        if isinstance(one, float) and not math.isfinite(one):
            raise ValueError(f"{option} must be a finite number, not {one}")
