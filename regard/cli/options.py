"""Options of a command are the fields of dataclasses, and the comment beside a field is its help (by tyro)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, field, make_dataclass
from typing import Annotated, Any

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
    return {name: getattr(parsed, name) for name in options}
