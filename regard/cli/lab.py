"""regard lab: an experiment of the lectures, or all of them."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich import box
from rich.console import Console
from rich.progress import track
from rich.table import Table

from regard.atomic import replace_file
from regard.choose import choose
from regard.cli.help import show
from regard.cli.options import parse
from regard.lab import EXPERIMENTS, claim, experiment
from regard.lab.result import Finding
from regard.lab.results_page import Shown, number, png, site, verdict
from regard.training.settings import options_of


@dataclass
class Lab:
    """Where the figures go."""

    out: str = "runs/lab"  # folder of the figures and the page


def main(args: list[str]) -> int:
    """0 if what was claimed was found, 1 if not."""
    if not args:
        return show("lab")
    if "--all" in args:
        others = [arg for arg in args if arg != "--all"]
        return every(Lab(**parse("regard lab --all", others, options_of(Lab))))
    name, *rest = args
    choose("experiment", name, EXPERIMENTS)
    found = experiment(name)
    given = parse(f"regard lab {name}", rest, options_of(found.Knobs) | options_of(Lab), str(found.__doc__))
    lab, knobs = Lab(given.pop("out")), found.Knobs(**given)
    folder = folder_of(lab)
    finding = found.run(knobs, shown)
    print(f"\n{finding.says}\n")
    print_table(finding)
    file = folder / f"{name}.png"
    replace_file(file, png(finding))
    print(f"\n{verdict(finding)}\nthe figure is {file}")
    return 0 if finding.holds else 1


def every(lab: Lab) -> int:
    folder = folder_of(lab)
    done: list[Shown] = []
    for name in EXPERIMENTS:
        print(f"{name}: {claim(name)}", flush=True)
        found, began = experiment(name), time.perf_counter()
        finding = found.run(found.Knobs(), shown)
        print(f"  {verdict(finding)} ({time.perf_counter() - began:.0f} s)", flush=True)
        done.append(Shown(name, str(found.__doc__), finding, png(finding)))
        replace_file(folder / f"{name}.png", done[-1].picture)
    file = folder / "index.html"
    replace_file(file, site(done).encode())
    print(f"the page is {file}")
    return 0 if all(one.finding.holds for one in done) else 1


def folder_of(lab: Lab) -> Path:
    """Made before anything runs: a place where nothing can be written should not cost a minute to find out."""
    folder = Path(lab.out)
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def shown(items: Sequence[Any]) -> Iterator[Any]:
    """A bar with the time left on a terminal, silence elsewhere: an experiment is short."""
    return track(items, description="", transient=True) if sys.stdout.isatty() else iter(items)  # type: ignore[return-value]


def print_table(finding: Finding) -> None:
    if finding.table:
        table = Table(*finding.table[0], box=box.SIMPLE)
        for row in finding.table:
            table.add_row(*(number(value) for value in row.values()))
        Console().print(table)
