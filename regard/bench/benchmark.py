"""How fast a model of yours is on this machine, exact and in int8, beside the other programs that read its folder.

share of the bandwidth = weights · bytes of each · steps per second / bytes that can be read in a second
share of the peak      = operations per second / those that large matrices reach in fp32; int8 may pass it
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import torch

from regard.bench.backend import Asked, Runner
from regard.bench.peak_rss import peak_of
from regard.bench.peers import PEERS, invited
from regard.bench.regard_backend import open_ours, ours, speeds_of
from regard.bench.roofline import Limits, limits
from regard.bench.timing import Tell, a_step, medians, print_nothing, rounds
from regard.bench.workload import Cost, Read, Written, cost, work_for
from regard.check.compare import relative_difference
from regard.load import Loaded, load

BATCHES = (1, 8, 32)
COMPARED = 8  # rows whose answers are compared
BYTES = {"int8": 1}  # of a weight, which else has 4


class Speed(NamedTuple):
    """Of one runner. Tokens per second of what writes; texts or pictures per second of what reads."""

    name: str
    numbers: str
    prompt: float | None  # tokens read per second, of one row
    single: float  # one at a time
    bandwidth: float | None  # share of it, one at a time
    best: float  # with as many rows at once as are best
    rows: int
    peak: float  # share of it, with so many rows
    agrees: float  # share of tokens as the first of ours has them, or the largest difference to it
    memory: float | None  # bytes at most; measured of ours


class Report(NamedTuple):
    task: str
    writes: bool
    weights: int
    threads: int
    limits: Limits
    speeds: list[Speed]
    absent: dict[str, str]  # other programs, and why they are not among these


def bench(
    folder: Path,
    texts: Sequence[str] | None = None,
    threads: int | None = None,
    min_time: float = 60.0,
    alone: bool = False,
    tell: Tell = print_nothing,
) -> Report:
    """Rounds go on for at least `min_time` seconds, and there are never fewer than three. How far it is, is told."""
    before = torch.get_num_threads()
    threads = threads or before
    torch.set_num_threads(threads)
    try:
        loaded = plain(folder)
        work = work_for(loaded, texts)
        tell("what this machine can do")
        most = limits(threads)
        with TemporaryDirectory() as room:
            runners = [ours(open_ours(folder, speed), speed) for speed in speeds_of(folder)]
            absent = {}
            for name in () if alone else PEERS:
                tell(f"opening {name}")
                found = invited(name, Asked(folder, loaded, threads, Path(room)))
                if isinstance(found, str):
                    absent[name] = found
                else:
                    runners += found
            measure: Any = writing if isinstance(work, Written) else reading
            speeds = measure(runners, work, cost(loaded, work), most, min_time, tell)
        tell("memory")
        speeds = [
            speed._replace(memory=peak_of(folder, speed.numbers, texts, threads)) if speed.name == "regard" else speed
            for speed in speeds
        ]
    finally:
        torch.set_num_threads(before)
    task = type(loaded.task).__name__.lower()
    return Report(task, isinstance(work, Written), weights_of(loaded), threads, most, speeds, absent)


def plain(folder: Path) -> Loaded:
    """As others see it, also if it was saved in int8."""
    loaded = load(folder, "cpu")
    return Loaded(loaded.plain, loaded.task, loaded.origin)


def weights_of(loaded: Loaded) -> int:
    rounded = (buffer for buffer in loaded.model.buffers() if buffer.dtype == torch.uint8)
    return sum(weight.numel() for weight in (*loaded.model.parameters(), *rounded))


def writing(runners: list[Runner], work: Written, ops: Cost, most: Limits, min_time: float, tell: Tell) -> list[Speed]:
    def act(runner: Runner, rows: int, new: int) -> Callable[[], object]:
        write, some = runner.write, work.rows[:rows]
        assert write is not None
        return lambda: write(some, new, 1)

    counts = (1, work.new)
    acts = {(r.title, rows, new): act(r, rows, new) for rows in BATCHES for new in counts for r in runners}
    took = rounds(acts, min_time, tell=tell)
    right = answers(runners[0], work)
    speeds = []
    for runner in runners:
        steps = {n: a_step(took[runner.title, n, work.new], took[runner.title, n, 1], work.new - 1) for n in BATCHES}
        rates = {n: n / step for n, step in steps.items()}
        best = max(rates, key=lambda n: rates[n])
        prompt = medians(took)[runner.title, 1, 1] - runner.extra * steps[1]
        read = ops.step / 2 * BYTES.get(runner.numbers, 4)  # bytes
        speeds.append(
            Speed(
                runner.name, runner.numbers, len(work.rows[0]) / max(prompt, 1e-9), rates[1],
                read / steps[1] / most.bandwidth, rates[best], best, ops.step * rates[best] / most.peak,
                same(right, answers(runner, work)), None,
            )
        )  # fmt: skip
    return speeds


def answers(runner: Runner, work: Written) -> list[list[int]]:
    assert runner.write is not None
    return runner.write(work.rows[:COMPARED], work.new, 1)


def same(right: list[list[int]], found: list[list[int]]) -> float:
    """Share of the tokens that are the same."""
    pairs = [one == other for a, b in zip(right, found, strict=True) for one, other in zip(a, b, strict=True)]
    return sum(pairs) / len(pairs)


def reading(runners: list[Runner], work: Read, ops: Cost, most: Limits, min_time: float, tell: Tell) -> list[Speed]:
    def act(runner: Runner, size: int) -> Callable[[], object]:
        read = runner.read
        assert read is not None
        return lambda: [read(given) for given in work.batches(size)]

    took = medians(rounds({(r.title, size): act(r, size) for size in BATCHES for r in runners}, min_time, tell=tell))
    some = next(work.batches(COMPARED))
    speeds = []
    for runner in runners:
        rates = {size: len(work) / took[runner.title, size] for size in BATCHES}
        best = max(rates, key=lambda size: rates[size])
        assert runner.read is not None
        assert runners[0].read is not None
        difference = relative_difference(*(kept(read(some), some.mask) for read in (runners[0].read, runner.read)))
        share = ops.prompt / took[runner.title, best] / most.peak
        speeds.append(
            Speed(runner.name, runner.numbers, None, rates[1], None, rates[best], best, share, difference, None)
        )
    return speeds


def kept(out: torch.Tensor, mask: torch.Tensor | None) -> torch.Tensor:
    """Without what stands in the padding."""
    return out if out.dim() < 3 or mask is None else out[mask[:, 0, 0]]
