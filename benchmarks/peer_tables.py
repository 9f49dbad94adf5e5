"""Shared by the speed benchmarks: regard exact and in int8, its peers, the roofline of the machine, and the tables."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import median

import torch

from regard.bench.backend import Backend, BackendArgs
from regard.bench.peers import PEERS, open_peer
from regard.bench.regard_backend import SPEEDS, load_on_cpu, regard_backend
from regard.bench.roofline import Roofline, measure_roofline
from regard.load import load


def make_parser(description: str, seconds: float) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--threads", type=int, nargs="+", default=[1, 2], help="numbers of threads, one after the other"
    )
    parser.add_argument("--seconds", type=float, default=seconds, help="time of the rounds of each workload")
    parser.add_argument("--peers", nargs="*", default=[*PEERS], choices=[*PEERS], help="backends to compare with")
    parser.add_argument(
        "-o", "--output-dir", type=Path, default=Path("runs/speed"), help="folder of the models with random weights"
    )
    return parser


def open_backends(folder: Path, threads: int, scratch: Path, peers: Sequence[str]) -> list[Backend]:
    """regard first, then its peers; prints why a peer is missing."""
    backends = [regard_backend(load_on_cpu(folder, speed), speed) for speed in SPEEDS]
    plain = load(folder, "cpu")
    for name in peers:
        peer = open_peer(name, BackendArgs(folder, plain, threads, scratch))
        if isinstance(peer, str):
            print(f"  {name}: {peer}")
        else:
            backends += peer
    return backends


Costs = Mapping[str, list[float]]  # seconds of each backend in each round


class SpeedTables:
    """Prints each measurement as it is made, and at the end one Markdown row per workload, for all thread counts."""

    def __init__(self) -> None:
        self.threads = 0
        self.measured: dict[tuple[str, str], dict[int, tuple[Costs, Callable[[float], float]]]] = {}

    def set_num_threads(self, threads: int) -> Roofline:
        """Set the number of threads; measures and prints the roofline with them."""
        self.threads = threads
        torch.set_num_threads(threads)
        roofline = measure_roofline(threads)
        print(
            f"\n{threads} threads, PyTorch {torch.__version__}: memory bandwidth {roofline.bandwidth / 1e9:.1f} GB/s, "
            f"peak {roofline.peak / 1e9:.0f} GFLOP/s",
            flush=True,
        )
        return roofline

    def add(
        self, title: str, unit: str, costs: Costs, convert: Callable[[float], float], notes: Mapping[str, str]
    ) -> None:
        """`convert` turns seconds into `unit`. Speedups are medians over the rounds."""
        rounds = len(next(iter(costs.values())))
        print(f"\n{title}: {unit}, medians of {rounds} rounds")
        print(f"{'':<22}{'':>10}{'exact is':>12}{'int8 is':>10}   range of int8")
        for name, seconds in costs.items():
            speedups = [f"{speedup(costs, name, speed):.2f}x" if f"regard {speed}" in costs else "" for speed in SPEEDS]
            by_round = ratios(seconds, costs["regard int8"])
            spread = f"({min(by_round):.2f} to {max(by_round):.2f})"
            value = f"{convert(median(seconds)):>10,.2f}{speedups[0]:>12}{speedups[1]:>10}"
            print(f"{name:<22}{value}   {spread:<17}{notes.get(name, '')}".rstrip(), flush=True)
        self.measured.setdefault((title, unit), {})[self.threads] = costs, convert

    def print_rows(self, script: str) -> None:
        """fp32 peers are compared with exact, int8 peers with int8."""
        print()
        for (title, unit), by_threads in self.measured.items():
            measurements = [*by_threads.values()]
            threads = " / ".join(map(str, by_threads))
            names = list(dict.fromkeys(name for costs, _ in measurements for name in costs))
            cells = {name: " / ".join(format_cell(name, *m) for m in measurements if name in m[0]) for name in names}
            own = "; ".join(f"{name.removeprefix('regard ')} {cells[name]}" for name in names if is_regard(name))
            peers = "; ".join(f"{name} {cells[name]}" for name in names if not is_regard(name))
            print(f"| {title}: {unit}, {threads} threads | {own} | {peers} | `benchmarks/{script}.py` |", flush=True)


def is_regard(name: str) -> bool:
    return name.startswith("regard ")


def format_cell(name: str, costs: Costs, convert: Callable[[float], float]) -> str:
    number = f"{convert(median(costs[name])):.3g}"
    return number if is_regard(name) else f"{number} ({speedup(costs, name, comparable_speed(name)):.2f}x)"


def comparable_speed(name: str) -> str:
    return "int8" if name.endswith(("int8", "Q8_0")) else "exact"


def speedup(costs: Costs, name: str, speed: str) -> float:
    """How many times faster regard is."""
    return median(ratios(costs[name], costs[f"regard {speed}"]))


def ratios(peer: Sequence[float], own: Sequence[float]) -> list[float]:
    return [a / b for a, b in zip(peer, own, strict=True)]
