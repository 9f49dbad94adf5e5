"""Benchmark a model on this machine, exact and in int8, beside other backends that read its folder.

bandwidth share = weights · bytes per weight · steps per second / memory bandwidth
peak share      = FLOP/s / peak FLOP/s of large fp32 matrices; int8 may exceed 1
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import torch

from regard.bench.backend import Backend, BackendArgs
from regard.bench.peak_rss import measure_peak_rss
from regard.bench.peers import PEERS, open_peer
from regard.bench.regard_backend import available_speeds, load_on_cpu, regard_backend
from regard.bench.roofline import Roofline, measure_roofline
from regard.bench.timing import ReportProgress, ignore_progress, medians, step_time, time_rounds
from regard.bench.workload import FlopCounts, ForwardWorkload, GenerationWorkload, build_workload, count_flops
from regard.check.compare import relative_difference
from regard.check.transformers_parity import drop_padding
from regard.load import LoadedModel, load

BATCH_SIZES = (1, 8, 32)
COMPARED_ROWS = 8  # whose outputs are compared
BYTES_PER_WEIGHT = {"int8": 1}  # else 4


class Throughput(NamedTuple):
    """Of one backend: tokens per second of a generative task, inputs per second of any other."""

    name: str
    precision: str
    prefill: float | None  # prompt tokens per second, batch of 1
    single: float  # batch of 1
    bandwidth_share: float | None  # batch of 1
    best: float  # at the best batch size
    batch_size: int  # the best
    peak_share: float  # at the best batch size
    agreement: float  # share of tokens equal to those of the first backend, or the largest difference to its outputs
    peak_rss: float | None  # bytes; measured for ours only


class BenchReport(NamedTuple):
    task: str
    generative: bool
    parameters: int
    threads: int
    roofline: Roofline
    results: list[Throughput]
    unavailable: dict[str, str]  # peer -> reason


def benchmark(
    folder: Path,
    texts: Sequence[str] | None = None,
    threads: int | None = None,
    min_time: float = 60.0,
    no_peers: bool = False,
    progress: ReportProgress = ignore_progress,
) -> BenchReport:
    """Measure in at least three rounds, for at least `min_time` seconds; `no_peers` measures our backends only."""
    before = torch.get_num_threads()
    threads = threads or before
    torch.set_num_threads(threads)
    try:
        loaded = load_plain(folder)
        workload = build_workload(loaded, texts)
        progress("roofline")
        roofline = measure_roofline(threads)
        with TemporaryDirectory() as workdir:
            backends = [regard_backend(load_on_cpu(folder, speed), speed) for speed in available_speeds(folder)]
            unavailable = {}
            for name in () if no_peers else PEERS:
                progress(f"opening {name}")
                opened = open_peer(name, BackendArgs(folder, loaded, threads, Path(workdir)))
                if isinstance(opened, str):
                    unavailable[name] = opened
                else:
                    backends += opened
            measure: Any = measure_generation if isinstance(workload, GenerationWorkload) else measure_forward
            results = measure(backends, workload, count_flops(loaded, workload), roofline, min_time, progress)
        progress("peak RSS")
        results = [
            r._replace(peak_rss=measure_peak_rss(folder, r.precision, texts, threads)) if r.name == "regard" else r
            for r in results
        ]
    finally:
        torch.set_num_threads(before)
    task, generative = type(loaded.task).__name__.lower(), isinstance(workload, GenerationWorkload)
    return BenchReport(task, generative, count_parameters(loaded), threads, roofline, results, unavailable)


def load_plain(folder: Path) -> LoadedModel:
    """The plain PyTorch model, also of a folder saved in int8."""
    loaded = load(folder, "cpu")
    return LoadedModel(loaded.reference, loaded.task, loaded.origin)


def count_parameters(loaded: LoadedModel) -> int:
    int8_buffers = (buffer for buffer in loaded.model.buffers() if buffer.dtype == torch.uint8)
    return sum(weight.numel() for weight in (*loaded.model.parameters(), *int8_buffers))


def measure_generation(
    backends: list[Backend],
    workload: GenerationWorkload,
    flops: FlopCounts,
    roofline: Roofline,
    min_time: float,
    progress: ReportProgress,
) -> list[Throughput]:
    def make_call(backend: Backend, rows: int, new: int) -> Callable[[], object]:
        generate, prompts = backend.generate, workload.rows[:rows]
        assert generate is not None
        return lambda: generate(prompts, new, 1)

    last = workload.new_tokens
    calls = {
        (r.title, rows, new): make_call(r, rows, new) for rows in BATCH_SIZES for new in (1, last) for r in backends
    }
    times = time_rounds(calls, min_time, progress=progress)
    reference = greedy_tokens(backends[0], workload)
    results = []
    for backend in backends:
        steps = {n: step_time(times[backend.title, n, last], times[backend.title, n, 1], last - 1) for n in BATCH_SIZES}
        rates = {n: n / step for n, step in steps.items()}
        best = max(rates, key=lambda n: rates[n])
        prefill = medians(times)[backend.title, 1, 1] - backend.extra_steps * steps[1]
        step_bytes = flops.step / 2 * BYTES_PER_WEIGHT.get(backend.precision, 4)
        results.append(
            Throughput(
                backend.name, backend.precision, len(workload.rows[0]) / max(prefill, 1e-9), rates[1],
                step_bytes / steps[1] / roofline.bandwidth, rates[best], best, flops.step * rates[best] / roofline.peak,
                token_agreement(reference, greedy_tokens(backend, workload)), None,
            )
        )  # fmt: skip
    return results


def greedy_tokens(backend: Backend, workload: GenerationWorkload) -> list[list[int]]:
    assert backend.generate is not None
    return backend.generate(workload.rows[:COMPARED_ROWS], workload.new_tokens, 1)


def token_agreement(reference: list[list[int]], rows: list[list[int]]) -> float:
    """Share of equal tokens."""
    equal = [a == b for pair in zip(reference, rows, strict=True) for a, b in zip(*pair, strict=True)]
    return sum(equal) / len(equal)


def measure_forward(
    backends: list[Backend],
    workload: ForwardWorkload,
    flops: FlopCounts,
    roofline: Roofline,
    min_time: float,
    progress: ReportProgress,
) -> list[Throughput]:
    def make_call(backend: Backend, size: int) -> Callable[[], object]:
        forward = backend.forward
        assert forward is not None
        return lambda: [forward(inputs) for inputs in workload.batches(size)]

    calls = {(r.title, size): make_call(r, size) for size in BATCH_SIZES for r in backends}
    times = medians(time_rounds(calls, min_time, progress=progress))
    inputs = next(workload.batches(COMPARED_ROWS))
    results = []
    for backend in backends:
        rates = {size: len(workload) / times[backend.title, size] for size in BATCH_SIZES}
        best = max(rates, key=lambda size: rates[size])
        assert backend.forward is not None
        assert backends[0].forward is not None
        outputs = (forward(inputs) for forward in (backends[0].forward, backend.forward))
        difference = relative_difference(*(drop_padding(out, inputs) for out in outputs))
        share = flops.prompt / times[backend.title, best] / roofline.peak
        results.append(
            Throughput(
                backend.name, backend.precision, None, rates[1], None, rates[best], best, share, difference, None
            )
        )
    return results
