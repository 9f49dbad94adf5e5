"""What the speed benchmarks share: our model exact and in int8, its peers, the machine, and a table of them."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import median

import torch

from regard.bench.limits import Limits, limits
from regard.bench.ours import SPEEDS, open_ours, ours
from regard.bench.peers import PEERS, invited
from regard.bench.runner import Asked, Runner
from regard.load import load


def options(about: str, seconds: float) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2], help="how many, one after the other")
    parser.add_argument("--seconds", type=float, default=seconds, help="of rounds, for each line of work")
    parser.add_argument("--peers", nargs="*", default=[*PEERS], choices=[*PEERS], help="beside whom")
    parser.add_argument("--out", type=Path, default=Path("runs/speed"), help="where models of random weights are kept")
    return parser


def machine(threads: int) -> Limits:
    """Told, and measured before all else."""
    torch.set_num_threads(threads)
    most = limits(threads)
    print(
        f"\n{threads} threads, PyTorch {torch.__version__}: {most.bandwidth / 1e9:.1f} GB/s are read, "
        f"{most.peak / 1e9:.0f} GFLOP/s multiplied",
        flush=True,
    )
    return most


def runners_of(folder: Path, threads: int, room: Path, peers: Sequence[str]) -> list[Runner]:
    """Ours first. Whoever is missing is told."""
    found = [ours(open_ours(folder, speed), speed) for speed in SPEEDS]
    plain = load(folder, "cpu")
    for name in peers:
        invited_ones = invited(name, Asked(folder, plain, threads, room))
        if isinstance(invited_ones, str):
            print(f"  {name}: {invited_ones}")
        else:
            found += invited_ones
    return found


def table(
    title: str, unit: str, costs: Mapping[str, list[float]], shown: Callable[[float], float], more: Mapping[str, str]
) -> None:
    """`costs` are seconds in each round. How many times ours are faster is the median over rounds."""
    rounds = len(next(iter(costs.values())))
    print(f"\n{title}: {unit}, medians of {rounds} rounds")
    print(f"{'':<22}{'':>10}{'exact is':>12}{'int8 is':>10}   range of the latter")
    for name, took in costs.items():
        times = [f"{median(ratios(took, costs[f'regard {speed}'])):.2f}x" for speed in SPEEDS]
        each = ratios(took, costs["regard int8"])
        spread = f"({min(each):.2f} to {max(each):.2f})"
        line = f"{name:<22}{shown(median(took)):>10,.2f}{times[0]:>12}{times[1]:>10}   {spread:<17}{more.get(name, '')}"
        print(line.rstrip(), flush=True)
    print(f"\n{row(title, unit, costs, shown)}", flush=True)


def row(title: str, unit: str, costs: Mapping[str, list[float]], shown: Callable[[float], float]) -> str:
    """The same as a line of the README's table: whoever has fp32 is beside exact, whoever has int8 beside int8."""
    mine = ", ".join(f"{speed} {shown(median(costs[f'regard {speed}'])):.2f}" for speed in SPEEDS)
    theirs = []
    for name, took in costs.items():
        if not name.startswith("regard"):
            times = median(ratios(took, costs["regard int8" if name.endswith("int8") else "regard exact"]))
            theirs.append(f"{name} {shown(median(took)):.2f} ({times:.2f}x)")
    return f"| {title}, {torch.get_num_threads()} threads | {mine} {unit} | {', '.join(theirs)} |"


def ratios(theirs: Sequence[float], mine: Sequence[float]) -> list[float]:
    return [one / other for one, other in zip(theirs, mine, strict=True)]
