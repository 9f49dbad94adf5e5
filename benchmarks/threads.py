"""Thread safety: eight threads call one loaded model at the same time, and get the answers of a single thread.

    python benchmarks/threads.py [--calls 20000] [--threads 8]

Every task, with plain modules, in the engine (exact) and with int8 weights. Python switches threads a thousand times as
often as by default, and the engine runs on two cores. Texts must be equal; numbers may differ by rounding.
"""

from __future__ import annotations

import argparse
import math
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Barrier, Thread
from typing import Any

import torch

from regard.load import load
from regard.loaded_model import LoadedModel

sys.path.append(str(Path(__file__).parents[1] / "tests"))

SPEEDS = {None: "plain modules", "exact": "exact", "int8": "int8"}
MODELS = [
    ("translate", "transformer"), ("translate", "speech2text"), ("write", "gpt"), ("write", "llama"),
    ("write", "nanochat"), ("fill", "bert"), ("fill", "protein_encoder"), ("classify", "bert"), ("classify", "vit"),
    ("classify", "audio_encoder"), ("regress", "bert"), ("regress", "graphormer"), ("tag", "bert"), ("answer", "bert"),
    ("embed", "bert"),
    ("match", "clip"), ("predict", "world_model"), ("decide", "world_model"),
]  # fmt: skip
SWITCH_INTERVAL = 5e-6  # seconds after which Python may switch to another thread
TOLERANCE = 1e-4  # of numbers, absolute and relative


@contextmanager
def frequent_switches() -> Iterator[None]:
    before = sys.getswitchinterval()
    sys.setswitchinterval(SWITCH_INTERVAL)
    try:
        yield
    finally:
        sys.setswitchinterval(before)


def is_close(a: Any, b: Any) -> bool:
    """Whether two answers are equal, except that numbers need only be close."""
    if isinstance(a, float) and isinstance(b, float):
        return math.isclose(a, b, rel_tol=TOLERANCE, abs_tol=TOLERANCE)
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(is_close(a[name], b[name]) for name in a)
    if isinstance(a, list | tuple) and isinstance(b, list | tuple):
        return len(a) == len(b) and all(map(is_close, a, b))
    return bool(a == b)


def build_requests(loaded: LoadedModel, texts: Sequence[str], options: dict[str, Any]) -> list[Callable[[], Any]]:
    """Each text alone, and all in one batch."""
    batches = (*([text] for text in texts), texts)
    return [partial(lambda batch: [*loaded.generate(batch, **options)], batch) for batch in batches]


def find_differences(requests: Sequence[Callable[[], Any]], calls: int, threads: int) -> list[str]:
    """What differs in `calls` calls by `threads` threads, each of which starts with another request."""
    expected = [request() for request in requests]
    differences: list[str] = []
    barrier = Barrier(threads)

    def work(number: int) -> None:
        barrier.wait()
        for call in range(number, calls, threads):
            index = (call // threads + number) % len(requests)
            try:
                answer = requests[index]()
            except Exception as error:
                differences.append(f"request {index}: {error!r}")
                continue
            if not is_close(answer, expected[index]):
                differences.append(f"request {index}: {answer!r:.300} instead of {expected[index]!r:.300}")

    workers = [Thread(target=work, args=(number,)) for number in range(threads)]
    with frequent_switches():
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
    return differences


def cli() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--calls", type=int, default=20_000, help="total number of calls of all models and speeds")
    parser.add_argument("--threads", type=int, default=8)
    args = parser.parse_args()
    from test_every_task import job_of, raw, short_options

    torch.set_num_threads(2)
    calls, failures = math.ceil(args.calls / len(MODELS) / len(SPEEDS)), 0
    with TemporaryDirectory() as scratch:
        os.environ["HOME"] = scratch
        runs = []
        for task, model in MODELS:
            folder = Path(scratch) / f"{task}-{model}"
            job = job_of(task, model, folder)
            [*job.train()]
            runs.append((f"{task} {model}", job.run.folder, raw(task, model, folder), short_options(job)))
        for speed, name in SPEEDS.items():
            count = 0
            for title, folder, texts, options in runs:
                requests = build_requests(load(folder, "cpu", speed=speed), texts, options)
                differences = find_differences(requests, calls, args.threads)
                for line in differences[:3]:
                    print(f"{title}, {name}: {line}", flush=True)
                count += len(differences)
            case = f"{args.threads} threads call one model at the same time, {name}: {len(runs)} models, every task"
            outcome = f"answers that differ from those of one thread: {count:,}"
            print(f"| {case} | {calls * len(runs):,} calls | {outcome} |", flush=True)
            failures += count
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(cli())
