"""parallel: who must wait for whom, and how much longer does a longer sequence take?

    recurrence   h₁ → h₂ → … → h_T        a step needs the one before it
    attention    y₁   y₂   …   y_T        each is made of all x, and of no other y

Claim (deck N, "Improve the efficiency of RNN"; deck R, "Limitations of Recurrent Models"): recurrence is sequential, so
its time grows with the length and it cannot be parallelised; attention lets all pairs of words meet at once.

Two things are measured. The longest chain of operations that wait for each other, read off the graph that autograd
keeps of an `LSTM` and of `SelfAttention` at work: with machines enough, this is the time, and the claim stands or falls
with it. Beside it the median time on this machine, which proves nothing: a processor does few things at once, so
attention with its T² pairs grows too, and PyTorch's fused LSTM, which saves the calls and not the chain, may grow less.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from statistics import median
from typing import Any

import torch
from matplotlib.figure import Figure
from torch import Tensor

from regard.choose import must
from regard.lab.result import Each, Finding, at_least, curves, drawing, legend_below, rows, under
from regard.look import look
from regard.parts.attention import SelfAttention
from regard.parts.cache import Cache
from regard.parts.recurrence import LSTM

LSTM_BY_STEPS, ATTENTION, LSTM_FUSED = "LSTM, step by step", "attention", "LSTM, fused kernel"
STYLES = {LSTM_BY_STEPS: "k-o", ATTENTION: "C1--s", LSTM_FUSED: "C0:^"}


@dataclass(frozen=True)
class Knobs:
    lengths: tuple[int, ...] = (8, 16, 32, 64, 128, 256)  # words in a sequence
    dim: int = 32  # width of a word
    heads: int = 2  # of attention
    times: int = 21  # how often each is timed
    seed: int = 1  # of weights and words

    def __post_init__(self) -> None:
        must(self, lengths=(len(set(self.lengths)) > 1 and min(self.lengths) >= 1, "two or more, each at least 1"))
        at_least(1, self, "times")


QUICK = Knobs(lengths=(8, 32, 128), times=11)


def run(knobs: Knobs, each: Each) -> Finding:
    torch.manual_seed(knobs.seed)
    lstm, attention = LSTM(knobs.dim), SelfAttention(knobs.dim, knobs.heads)
    lengths = sorted(set(knobs.lengths))
    words = {length: torch.randn(1, length, knobs.dim) for length in lengths}
    readers: dict[str, Callable[[Tensor], Tensor]] = {
        LSTM_BY_STEPS: lambda x: step_by_step(lstm, x),
        ATTENTION: attention,
        LSTM_FUSED: lstm,
    }
    with look(attention, gradients=True):  # so that no kernel hides a part of the chain
        chains = {name: [chain(readers[name](words[n])) for n in lengths] for name in (LSTM_BY_STEPS, ATTENTION)}
    timed: dict[tuple[str, int], list[float]] = {(name, length): [] for name in readers for length in lengths}
    for _ in each(range(knobs.times)):  # by turns: whatever else the machine does meets all alike
        for name, length in timed:
            timed[name, length].append(seconds(readers[name], words[length]))
    times = {name: [round(1000 * median(timed[name, length]), 3) for length in lengths] for name in readers}
    grown = {name: found[-1] / found[0] for name, found in times.items()}
    return Finding(
        drawn(lengths, chains, times),
        rows({"words": lengths}, under("chain", chains), under("ms", times)),
        says=f"From {lengths[0]} words to {lengths[-1]}, {lengths[-1] / lengths[0]:.0f} times as many, the chain grows "
        f"from {chains[LSTM_BY_STEPS][0]} operations to {chains[LSTM_BY_STEPS][-1]} with an LSTM; with attention it "
        f"has {chains[ATTENTION][0]} and {chains[ATTENTION][-1]}. On this machine the LSTM takes "
        f"{grown[LSTM_BY_STEPS]:.0f} times as long step by step and {grown[LSTM_FUSED]:.1f} times in a fused kernel, "
        f"attention {grown[ATTENTION]:.1f} times.",
        wanted="a chain of operations that grows in proportion to the length with recurrence, and stays the same with "
        "attention",
        holds=in_proportion(lengths, chains[LSTM_BY_STEPS]) and len(set(chains[ATTENTION])) == 1,
    )


def step_by_step(mixer: LSTM, x: Tensor) -> Tensor:
    cache = Cache()
    return torch.cat([mixer(word, cache=cache) for word in x.split(1, dim=1)], 1)


def chain(y: Tensor) -> int:
    """Most operations that had to follow one another to make y."""
    count, after = 0, {y.grad_fn}
    while after:
        before: set[Any] = {node for late in after if late for node, _ in late.next_functions if node}
        count, after = count + 1, before
    return count


def in_proportion(lengths: list[int], chains: list[int]) -> bool:
    """Every word more adds as many operations, at least one."""
    more, later = ([b - a for a, b in pairwise(numbers)] for numbers in (lengths, chains))
    added = {late / words for words, late in zip(more, later, strict=True)}
    return len(added) == 1 and added.pop() >= 1


@torch.no_grad()
def seconds(reader: Callable[[Tensor], Tensor], x: Tensor) -> float:
    reader(x)  # what ran before must not matter
    began = time.perf_counter()
    reader(x)
    return time.perf_counter() - began


def drawn(lengths: list[int], chains: dict[str, list[int]], times: dict[str, list[float]]) -> Figure:
    figure, (left, right) = drawing(2, 3.6)
    curves(left, lengths, chains, STYLES, xscale="log", yscale="log", ylabel="operations that wait for each other")
    curves(right, lengths, times, STYLES, xscale="log", yscale="log", ylabel="time of a sequence (ms, median)")
    left.set_xlabel("words in the sequence")
    right.set_xlabel("words in the sequence")
    legend_below(figure, right)
    return figure
