"""regard lab: run an experiment of the lectures, or all of them."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from rich import box
from rich.console import Console
from rich.progress import track
from rich.table import Table

from regard.atomic import replace_file
from regard.cli.help import show_help
from regard.cli.options import parse
from regard.lab import EXPERIMENTS, claim, experiment, options_class
from regard.lab.result import LabResult
from regard.lab.results_page import LabEntry, figure_png, format_value, render_results, verdict
from regard.options import make, options_of
from regard.validate import check_choice

Item = TypeVar("Item")


@dataclass
class LabOptions:
    """Output of experiments."""

    output_dir: str = "runs/lab"  # folder for the figures and the page


def main(args: list[str]) -> int:
    """0 if the claim holds, 1 if not."""
    if not args:
        return show_help("lab")
    if "--all" in args:
        rest = [arg for arg in args if arg != "--all"]
        return run_all(make(LabOptions, parse("regard lab --all", rest, options_of(LabOptions))))
    name, *rest = args
    check_choice("experiment", name, EXPERIMENTS)
    module, kind = experiment(name), options_class(name)
    values = parse(f"regard lab {name}", rest, options_of(kind) | options_of(LabOptions), str(module.__doc__))
    options: object = make(kind, values)
    folder = make_folder(make(LabOptions, values))
    result = module.run(options, progress_bar)
    print(f"\n{result.summary}\n")
    print_table(result)
    file = folder / f"{name}.png"
    replace_file(file, figure_png(result))
    print(f"\n{verdict(result)}\nwrote figure {file}")
    return 0 if result.holds else 1


def run_all(lab_options: LabOptions) -> int:
    folder = make_folder(lab_options)
    entries: list[LabEntry] = []
    for name in EXPERIMENTS:
        print(f"{name}: {claim(name)}", flush=True)
        module, start = experiment(name), time.perf_counter()
        result = module.run(options_class(name)(), progress_bar)
        print(f"  {verdict(result)} ({time.perf_counter() - start:.0f} s)", flush=True)
        entries.append(LabEntry(name, str(module.__doc__), result, figure_png(result)))
        replace_file(folder / f"{name}.png", entries[-1].png)
    file = folder / "index.html"
    replace_file(file, render_results(entries).encode())
    print(f"wrote page {file}")
    return 0 if all(entry.result.holds for entry in entries) else 1


def make_folder(lab_options: LabOptions) -> Path:
    """Create the output folder before anything runs, so that an unwritable one fails at once."""
    folder = Path(lab_options.output_dir)
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def progress_bar(items: Sequence[Item]) -> Iterator[Item]:
    """A progress bar on a terminal, nothing elsewhere."""
    return track(items, description="", transient=True) if sys.stdout.isatty() else iter(items)  # type: ignore[return-value]


def print_table(result: LabResult) -> None:
    if result.table:
        table = Table(*result.table[0], box=box.SIMPLE)
        for row in result.table:
            table.add_row(*(format_value(value) for value in row.values()))
        Console().print(table)
