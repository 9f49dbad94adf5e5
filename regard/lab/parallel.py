"""parallel: which operations are sequential, and how does time grow with the sequence length?

    recurrence   h₁ → h₂ → … → h_T        each step needs the previous one
    attention    y₁   y₂   …   y_T        each depends on all x, and on no other y

Claim (deck N, "Improve the efficiency of RNN"; deck R, "Limitations of Recurrent Models"): recurrence is sequential, so
its time grows with the length and it cannot be parallelised; attention processes all pairs of tokens at once.

Two quantities are measured. The critical path, the longest chain of dependent operations in the autograd graph of an
`LSTM` and of `SelfAttention`: with unlimited parallelism this is the time, and the claim depends on it alone. Beside it
the median time on this machine, which proves nothing: a processor has few cores, so attention with its T² pairs grows
too, and PyTorch's fused LSTM, which saves calls but not the chain, may grow less.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from statistics import median

import torch
from matplotlib.figure import Figure
from torch import Tensor

from regard.lab.result import LabResult, Tracker, legend_below, plot_curves, prefixed, subplots, table_rows
from regard.look import look
from regard.parts.attention import SelfAttention
from regard.parts.cache import Cache
from regard.parts.recurrence import LSTM
from regard.validate import check_fields, check_minimum

LSTM_BY_STEPS, ATTENTION, LSTM_FUSED = "LSTM, step by step", "attention", "LSTM, fused kernel"
STYLES = {LSTM_BY_STEPS: "k-o", ATTENTION: "C1--s", LSTM_FUSED: "C0:^"}


@dataclass(frozen=True)
class ParallelOptions:
    lengths: tuple[int, ...] = (8, 16, 32, 64, 128, 256)  # sequence lengths
    dim: int = 32  # model width
    heads: int = 2  # attention heads
    times: int = 21  # timed runs of each
    seed: int = 1  # random seed

    def __post_init__(self) -> None:
        check_fields(
            self, lengths=(len(set(self.lengths)) > 1 and min(self.lengths) >= 1, "two or more, each at least 1")
        )
        check_minimum(self, 1, "times")


QUICK = ParallelOptions(lengths=(8, 32, 128), times=11)


def run(options: ParallelOptions, track: Tracker) -> LabResult:
    torch.manual_seed(options.seed)
    lstm, attention = LSTM(options.dim), SelfAttention(options.dim, options.heads)
    lengths = sorted(set(options.lengths))
    inputs = {length: torch.randn(1, length, options.dim) for length in lengths}
    readers: dict[str, Callable[[Tensor], Tensor]] = {
        LSTM_BY_STEPS: lambda x: step_by_step(lstm, x),
        ATTENTION: attention,
        LSTM_FUSED: lstm,
    }
    with look(attention, gradients=True):  # so that no fused kernel hides a part of the path
        paths = {
            name: [critical_path(readers[name](inputs[n])) for n in lengths] for name in (LSTM_BY_STEPS, ATTENTION)
        }
    samples: dict[tuple[str, int], list[float]] = {(name, length): [] for name in readers for length in lengths}
    for _ in track(range(options.times)):  # interleaved: other load on the machine affects all alike
        for name, length in samples:
            samples[name, length].append(seconds(readers[name], inputs[length]))
    times = {name: [round(1000 * median(samples[name, length]), 3) for length in lengths] for name in readers}
    growth = {name: series[-1] / series[0] for name, series in times.items()}
    return LabResult(
        plot(lengths, paths, times),
        table_rows({"tokens": lengths}, prefixed("path", paths), prefixed("ms", times)),
        summary=f"From {lengths[0]} tokens to {lengths[-1]}, {lengths[-1] / lengths[0]:.0f} times as many, the path "
        f"grows from {paths[LSTM_BY_STEPS][0]} operations to {paths[LSTM_BY_STEPS][-1]} with an LSTM; with attention "
        f"it has {paths[ATTENTION][0]} and {paths[ATTENTION][-1]}. On this machine the LSTM takes "
        f"{growth[LSTM_BY_STEPS]:.0f} times as long step by step and {growth[LSTM_FUSED]:.1f} times in a fused "
        f"kernel, attention {growth[ATTENTION]:.1f} times.",
        expected="a critical path that grows in proportion to the length with recurrence, and is constant with "
        "attention",
        holds=is_proportional(lengths, paths[LSTM_BY_STEPS]) and len(set(paths[ATTENTION])) == 1,
    )


def step_by_step(mixer: LSTM, x: Tensor) -> Tensor:
    cache = Cache()
    return torch.cat([mixer(token, cache=cache) for token in x.split(1, dim=1)], 1)


def critical_path(y: Tensor) -> int:
    """The longest chain of dependent operations that compute y."""
    count, frontier = 0, {y.grad_fn}
    while frontier:
        count += 1
        frontier = {node for child in frontier if child for node, _ in child.next_functions if node}
    return count


def is_proportional(lengths: list[int], paths: list[int]) -> bool:
    """Every additional token adds the same number of operations, at least one."""
    length_steps, chain_steps = ([b - a for a, b in pairwise(numbers)] for numbers in (lengths, paths))
    ratios = {chain_step / length_step for length_step, chain_step in zip(length_steps, chain_steps, strict=True)}
    return len(ratios) == 1 and ratios.pop() >= 1


@torch.no_grad()
def seconds(reader: Callable[[Tensor], Tensor], x: Tensor) -> float:
    reader(x)  # warm-up
    start = time.perf_counter()
    reader(x)
    return time.perf_counter() - start


def plot(lengths: list[int], paths: dict[str, list[int]], times: dict[str, list[float]]) -> Figure:
    figure, (left, right) = subplots(2, 3.6)
    plot_curves(left, lengths, paths, STYLES, xscale="log", yscale="log", ylabel="critical path (operations)")
    plot_curves(right, lengths, times, STYLES, xscale="log", yscale="log", ylabel="time per sequence (ms, median)")
    left.set_xlabel("sequence length (tokens)")
    right.set_xlabel("sequence length (tokens)")
    legend_below(figure, right)
    return figure
