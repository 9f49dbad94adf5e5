"""What the speed benchmarks share: our model exact and in int8, its peers, the machine, and a table of them."""

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


def options(about: str, seconds: float) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2], help="how many, one after the other")
    parser.add_argument("--seconds", type=float, default=seconds, help="of rounds, for each line of work")
    parser.add_argument("--peers", nargs="*", default=[*PEERS], choices=[*PEERS], help="beside whom")
    parser.add_argument("--out", type=Path, default=Path("runs/speed"), help="where models of random weights are kept")
    return parser


def runners_of(folder: Path, threads: int, room: Path, peers: Sequence[str]) -> list[Backend]:
    """Ours first. Whoever is missing is told."""
    found = [regard_backend(load_on_cpu(folder, speed), speed) for speed in SPEEDS]
    plain = load(folder, "cpu")
    for name in peers:
        invited_ones = open_peer(name, BackendArgs(folder, plain, threads, room))
        if isinstance(invited_ones, str):
            print(f"  {name}: {invited_ones}")
        else:
            found += invited_ones
    return found


Costs = Mapping[str, list[float]]  # seconds that each took in each round


class Tables:
    """What was measured, told as it comes; at the end, one line of the README for each work, all threads beside."""

    def __init__(self) -> None:
        self.threads = 0
        self.kept: dict[tuple[str, str], dict[int, tuple[Costs, Callable[[float], float]]]] = {}

    def machine(self, threads: int) -> Roofline:
        """With so many threads from now on. Its limits are measured before all else, and told."""
        self.threads = threads
        torch.set_num_threads(threads)
        most = measure_roofline(threads)
        print(
            f"\n{threads} threads, PyTorch {torch.__version__}: {most.bandwidth / 1e9:.1f} GB/s are read, "
            f"{most.peak / 1e9:.0f} GFLOP/s multiplied",
            flush=True,
        )
        return most

    def add(
        self, title: str, unit: str, costs: Costs, shown: Callable[[float], float], more: Mapping[str, str]
    ) -> None:
        """`shown` makes a number in `unit` of seconds. How many times ours are faster is the median over rounds."""
        rounds = len(next(iter(costs.values())))
        print(f"\n{title}: {unit}, medians of {rounds} rounds")
        print(f"{'':<22}{'':>10}{'exact is':>12}{'int8 is':>10}   range of the latter")
        for name, took in costs.items():
            times = [f"{times_of(costs, name, speed):.2f}x" if f"regard {speed}" in costs else "" for speed in SPEEDS]
            each = ratios(took, costs["regard int8"])
            spread = f"({min(each):.2f} to {max(each):.2f})"
            cells = f"{shown(median(took)):>10,.2f}{times[0]:>12}{times[1]:>10}   {spread:<17}{more.get(name, '')}"
            print(f"{name:<22}{cells}".rstrip(), flush=True)
        self.kept.setdefault((title, unit), {})[self.threads] = costs, shown

    def rows(self, script: str) -> None:
        """Whoever has fp32 is beside exact, whoever has int8 beside int8."""
        print()
        for (title, unit), by_threads in self.kept.items():
            each = [*by_threads.values()]
            threads = " / ".join(map(str, by_threads))
            names = list(dict.fromkeys(name for costs, _ in each for name in costs))
            cells = {name: " / ".join(cell(name, *one) for one in each if name in one[0]) for name in names}
            mine = "; ".join(f"{name.removeprefix('regard ')} {cells[name]}" for name in names if ours_is(name))
            theirs = "; ".join(f"{name} {cells[name]}" for name in names if not ours_is(name))
            print(f"| {title}: {unit}, {threads} threads | {mine} | {theirs} | `benchmarks/{script}.py` |", flush=True)


def ours_is(name: str) -> bool:
    return name.startswith("regard ")


def cell(name: str, costs: Costs, shown: Callable[[float], float]) -> str:
    number = f"{shown(median(costs[name])):.3g}"
    return number if ours_is(name) else f"{number} ({times_of(costs, name, numbers_of(name)):.2f}x)"


def numbers_of(name: str) -> str:
    return "int8" if name.endswith(("int8", "Q8_0")) else "exact"


def times_of(costs: Costs, name: str, speed: str) -> float:
    """How many times ours is faster."""
    return median(ratios(costs[name], costs[f"regard {speed}"]))


def ratios(theirs: Sequence[float], mine: Sequence[float]) -> list[float]:
    return [one / other for one, other in zip(theirs, mine, strict=True)]
