"""Benchmark a model on this machine, exact and in int8, beside other backends that read its folder.

bandwidth share = weights · bytes per weight · steps per second / memory bandwidth
peak share      = FLOP/s / peak FLOP/s of large fp32 matrices; int8 may exceed 1
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

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
from regard.load import load
from regard.loaded_model import LoadedModel

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
        original = load(folder, "cpu")
        loaded = LoadedModel(original.reference, original.task, original.origin)  # plain PyTorch, also if it is int8
        workload = build_workload(loaded, texts)
        sources = workload.sources if isinstance(workload, GenerationWorkload) else None
        progress("roofline")
        roofline = measure_roofline(threads)
        with TemporaryDirectory() as workdir:
            speeds = available_speeds(folder)
            backends = [regard_backend(load_on_cpu(folder, speed), speed, sources) for speed in speeds]
            unavailable = {}
            for name in () if no_peers else PEERS:
                progress(f"opening {name}")
                opened = open_peer(name, BackendArgs(folder, loaded, threads, Path(workdir)))
                if isinstance(opened, str):
                    unavailable[name] = opened
                else:
                    backends += opened
            arguments = (count_flops(loaded, workload), roofline, min_time, progress)
            if isinstance(workload, GenerationWorkload):
                results = measure_generation(backends, workload, *arguments)
            else:
                results = measure_forward(backends, workload, *arguments)
        progress("peak RSS")
        for i, result in enumerate(results):
            if result.name == "regard":
                results[i] = result._replace(peak_rss=measure_peak_rss(folder, result.precision, texts, threads))
    finally:
        torch.set_num_threads(before)
    task, generative = type(loaded.task).__name__.lower(), isinstance(workload, GenerationWorkload)
    return BenchReport(task, generative, count_parameters(loaded), threads, roofline, results, unavailable)


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
    keys = [(b, rows, new) for rows in BATCH_SIZES for new in (1, last) for b in backends]
    times = time_rounds({(b.title, *sizes): make_call(b, *sizes) for b, *sizes in keys}, min_time, progress=progress)
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
                backend.name, backend.precision, workload.prompt_tokens / max(prefill, 1e-9), rates[1],
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
        return lambda: [forward(batch) for batch in workload.batches(size)]

    calls = {(r.title, size): make_call(r, size) for size in BATCH_SIZES for r in backends}
    times = medians(time_rounds(calls, min_time, progress=progress))
    batch = next(workload.batches(COMPARED_ROWS))
    results = []
    for backend in backends:
        rates = {size: len(workload) / times[backend.title, size] for size in BATCH_SIZES}
        best = max(rates, key=lambda size: rates[size])
        assert backend.forward is not None
        assert backends[0].forward is not None
        outputs = (forward(batch) for forward in (backends[0].forward, backend.forward))
        difference = relative_difference(*(drop_padding(out, batch) for out in outputs))
        share = flops.prompt / times[backend.title, best] / roofline.peak
        speeds = (None, rates[1], None, rates[best], best)
        results.append(Throughput(backend.name, backend.precision, *speeds, share, difference, None))
    return results
