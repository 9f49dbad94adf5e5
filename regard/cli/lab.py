"""regard lab: an experiment of the lectures, or all of them."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich import box
from rich.console import Console
from rich.progress import track
from rich.table import Table

from regard.choose import choose
from regard.cli.options import parse
from regard.lab import EXPERIMENTS, claim, experiment
from regard.lab.finding import Finding
from regard.lab.site import number, png, site, verdict
from regard.training.settings import options_of


@dataclass
class Lab:
    """Where the figures go."""

    out: str = "runs/lab"  # folder of the figures and the page


def main(args: list[str]) -> int:
    """0 if what was claimed was found, 1 if not."""
    if not args or args[0] in ("-h", "--help"):
        print("regard lab NAME [--knob value ...] [--out FOLDER]      regard lab NAME --help has its knobs")
        print("regard lab --all [--out FOLDER]                        one page with all of them\n")
        print("\n".join(f"  {name:<12}{claim(name)}" for name in EXPERIMENTS))
        return 0
    if args[0] == "--all":
        return every(Lab(**parse("regard lab --all", args[1:], options_of(Lab))))
    name = choose("experiment", args[0], EXPERIMENTS)
    found = experiment(name)
    given = parse(f"regard lab {name}", args[1:], options_of(found.Knobs) | options_of(Lab), str(found.__doc__))
    lab = Lab(given.pop("out"))
    finding = found.run(found.Knobs(**given), shown)
    print(f"\n{finding.says}\n")
    print_table(finding)
    file = Path(lab.out) / f"{name}.png"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(png(finding))
    print(f"\n{verdict(finding)}\nthe figure is {file}")
    return 0 if finding.holds else 1


def every(lab: Lab) -> int:
    findings: list[tuple[str, Finding]] = []
    for name in EXPERIMENTS:
        print(f"{name}: {claim(name)}", flush=True)
        found = experiment(name)
        findings.append((name, found.run(found.Knobs(), shown)))
        print(f"  {verdict(findings[-1][1])}", flush=True)
    file = Path(lab.out) / "index.html"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(site(findings), encoding="utf-8")
    print(f"the page is {file}")
    return 0 if all(finding.holds for _, finding in findings) else 1


def shown(items: Sequence[Any]) -> Iterator[Any]:
    """A bar with the time left on a terminal, silence elsewhere: an experiment is short."""
    return track(items, description="", transient=True) if sys.stdout.isatty() else iter(items)  # type: ignore[return-value]


def print_table(finding: Finding) -> None:
    if finding.table:
        table = Table(*finding.table[0], box=box.SIMPLE)
        for row in finding.table:
            table.add_row(*(number(value) for value in row.values()))
        Console().print(table)
