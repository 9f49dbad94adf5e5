"""regard bench MODEL: how fast a model is on this machine, beside other programs that read the same folder."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import tyro
from rich.console import Console

from regard.bench.benchmark import Report, Speed, bench
from regard.choose import must
from regard.cli.check import read_texts
from regard.cli.model import Fetching, found
from regard.cli.options import parse
from regard.training.settings import options_of


@dataclass
class Bench:
    """What to measure, and for how long."""

    model: Annotated[str, tyro.conf.Positional]  # a model folder, or the name of one on the hub: owner/repo
    text: str | None = None  # a file of texts to measure with, one a line; those that ship for its task unless given
    encoding: str = "utf-8"  # of that file: utf-8, cp1252, utf-16 ...
    threads: int | None = None  # processor threads; all cores unless given
    min_time: float = 60.0  # seconds to measure at least; a warm-up and three rounds are made, however long they take
    alone: bool = False  # do not measure other programs, even where they are installed
    json: bool = False  # the figures as one JSON object

    def __post_init__(self) -> None:
        must(
            self,
            threads=(self.threads is None or self.threads >= 1, "at least 1"),
            min_time=(self.min_time >= 0, "0 or more"),
        )


def main(args: list[str]) -> int:
    given = parse("regard bench", args, options_of(Bench) | options_of(Fetching))
    wish = Bench(**{name: given.pop(name) for name in options_of(Bench)})
    folder = found(wish.model, Fetching(**given))
    texts = None if wish.text is None else [*read_texts(wish.text, wish.encoding)]
    console = Console(stderr=True)
    with console.status("") as status:  # a line that changes on a terminal; elsewhere one after the other
        tell: Any = status.update if console.is_terminal else lambda text: print(text, file=sys.stderr, flush=True)
        report = bench(folder, texts, wish.threads, wish.min_time, wish.alone, tell)
    print(json.dumps(told(folder, report)) if wish.json else spelled(report))
    return 0


def told(folder: Path, report: Report) -> dict[str, Any]:
    speeds = [speed._asdict() for speed in report.speeds]
    return {"model": str(folder), **report._asdict(), "limits": report.limits._asdict(), "speeds": speeds}


def spelled(report: Report) -> str:
    unit = "tokens" if report.writes else "inputs"
    lines = [
        f"{report.task}, {report.weights / 1e6:,.1f} M weights, {report.threads} threads; this machine reads "
        f"{report.limits.bandwidth / 1e9:.1f} GB/s and multiplies {report.limits.peak / 1e9:,.0f} GFLOP/s\n",
        f"{f'{unit} per second':<22}"
        + (f"{'prompt':>9}{'writing':>9}{'of memory':>11}" if report.writes else f"{'one by one':>12}")
        + f"{'best batch':>12}{'rows':>6}{'of peak':>9}{'regard is':>11}"
        + (f"{'same tokens':>13}" if report.writes else f"{'differs by':>13}")
        + f"{'memory':>10}",
    ]
    fastest = max((speed for speed in report.speeds if speed.name == "regard"), key=lambda speed: speed.single)
    lines += [row(speed, fastest, report.writes) for speed in report.speeds]
    lines += [""] * bool(report.absent) + [f"{name}: {why}" for name, why in report.absent.items()]
    return "\n".join(lines)


def row(speed: Speed, fastest: Speed, writes: bool) -> str:
    first = (
        f"{speed.prompt:>9,.0f}{speed.single:>9,.1f}{speed.bandwidth:>11.0%}" if writes else f"{speed.single:>12,.1f}"
    )
    agrees = f"{speed.agrees:>13.0%}" if writes else f"{speed.agrees:>13.0e}"
    memory = "" if speed.memory is None else f"{speed.memory / 1e6:,.0f} MB"
    return (
        f"{speed.name + ' ' + speed.numbers:<22}{first}{speed.best:>12,.1f}{speed.rows:>6}{speed.peak:>9.0%}"
        f"{fastest.single / speed.single:>10.1f}x{agrees}{memory:>10}"
    )
