"""regard bench MODEL: speed of a model on this machine, beside other backends that read the same folder."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated

from rich.console import Console

from regard.bench.benchmark import BenchReport, Throughput, benchmark
from regard.bench.timing import ReportProgress
from regard.cli.check import read_documents
from regard.cli.model_argument import parse_command
from regard.options import Positional
from regard.validate import check_minimum


@dataclass
class BenchOptions:
    """The model to measure, and for how long."""

    model: Annotated[str, Positional]  # model folder, or a repository on the Hugging Face hub: owner/repo
    text: str | None = None  # file of texts to measure with, one per line; default: bundled texts for its task
    encoding: str = "utf-8"  # encoding of --text: utf-8, cp1252, utf-16 ...
    threads: int | None = None  # CPU threads; default: all cores
    min_time: float = 60.0  # minimum seconds of measurement; a warm-up and three rounds always run
    no_peers: bool = False  # measure no other backends, even where they are installed
    json: bool = False  # print the results as one JSON object

    def __post_init__(self) -> None:
        check_minimum(self, 1, "threads")
        check_minimum(self, 0, "min_time")


def main(args: list[str]) -> int:
    options, folder = parse_command("bench", args, BenchOptions)
    texts = None if options.text is None else [*read_documents(options.text, options.encoding)]
    console = Console(stderr=True)
    with console.status("") as status:  # one changing line on a terminal, else a line for each
        to_stderr = partial(print, file=sys.stderr, flush=True)
        progress: ReportProgress = status.update if console.is_terminal else to_stderr
        report = benchmark(folder, texts, options.threads, options.min_time, options.no_peers, progress)
    print(json.dumps(to_json(folder, report)) if options.json else format_report(report))
    return 0


def to_json(folder: Path, report: BenchReport) -> dict[str, object]:
    results = [result._asdict() for result in report.results]
    return {"model": str(folder), **report._asdict(), "roofline": report.roofline._asdict(), "results": results}


def format_report(report: BenchReport) -> str:
    unit, first, agreement = "inputs", f"{'batch of 1':>12}", "max diff"
    if report.generative:
        unit, first, agreement = "tokens", f"{'prefill':>9}{'decode':>9}{'bandwidth':>11}", "same tokens"
    lines = [
        f"{report.task}, {report.parameters / 1e6:,.1f} M parameters, {report.threads} threads; roofline: "
        f"{report.roofline.bandwidth / 1e9:.1f} GB/s, {report.roofline.peak / 1e9:,.0f} GFLOP/s\n",
        f"{f'{unit} per second':<22}{first}{'best batch':>12}{'size':>6}{'peak':>9}{'speedup':>11}{agreement:>13}"
        f"{'peak RSS':>10}",
    ]
    fastest = max((result for result in report.results if result.name == "regard"), key=lambda result: result.single)
    lines += [format_row(result, fastest, report.generative) for result in report.results]
    lines += [""] * bool(report.unavailable) + [f"{name}: {reason}" for name, reason in report.unavailable.items()]
    return "\n".join(lines)


def format_row(result: Throughput, fastest: Throughput, generative: bool) -> str:
    first, agreement = f"{result.single:>12,.1f}", f"{result.agreement:>13.0e}"
    if generative:
        first = f"{result.prefill:>9,.0f}{result.single:>9,.1f}{result.bandwidth_share:>11.0%}"
        agreement = f"{result.agreement:>13.0%}"
    peak_rss = "" if result.peak_rss is None else f"{result.peak_rss / 1e6:,.0f} MB"
    return (
        f"{result.name + ' ' + result.precision:<22}{first}{result.best:>12,.1f}{result.batch_size:>6}"
        f"{result.peak_share:>9.0%}{fastest.single / result.single:>10.1f}x{agreement}{peak_rss:>10}"
    )
