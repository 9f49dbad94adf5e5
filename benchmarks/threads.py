"""Eight threads ask one loaded model at the same time: every answer must be the one that a single thread gets.

    python benchmarks/threads.py [--calls 20000] [--threads 8]

Every task, with plain modules, in the engine (exact) and with int8 weights. Python switches threads a thousand times as
often as usual, and the engine works on two cores. Texts must be equal; numbers may differ by a rounding.
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

from regard.load import Loaded, load

sys.path.append(str(Path(__file__).parents[1] / "tests"))

SPEEDS = {None: "plain modules", "exact": "exact", "int8": "int8"}
MODELS = [
    ("translate", "transformer"), ("translate", "transcriber"), ("write", "gpt"), ("write", "llama"), ("write", "nano"),
    ("fill", "bert"), ("fill", "chain"), ("classify", "bert"), ("classify", "vit"), ("classify", "listener"),
    ("regress", "bert"), ("regress", "graph"), ("tag", "bert"), ("answer", "bert"), ("embed", "bert"),
    ("match", "clip"), ("predict", "world"), ("decide", "world"),
]  # fmt: skip
SWITCH = 5e-6  # seconds after which Python may switch to another thread
CLOSE = 1e-4  # numbers may differ by so much, absolutely and as a share


@contextmanager
def switching() -> Iterator[None]:
    before = sys.getswitchinterval()
    sys.setswitchinterval(SWITCH)
    try:
        yield
    finally:
        sys.setswitchinterval(before)


def alike(one: Any, other: Any) -> bool:
    """The same answer: all that is no number is equal, and numbers are close."""
    if isinstance(one, float) and isinstance(other, float):
        return math.isclose(one, other, rel_tol=CLOSE, abs_tol=CLOSE)
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(alike(one[name], other[name]) for name in one)
    if isinstance(one, list | tuple) and isinstance(other, list | tuple):
        return len(one) == len(other) and all(map(alike, one, other))
    return bool(one == other)


def build_requests(loaded: Loaded, texts: Sequence[str], how: dict[str, Any]) -> list[Callable[[], Any]]:
    """Each text alone, and all in one batch."""
    return [partial(lambda some: [*loaded.answers(some, **how)], some) for some in (*([text] for text in texts), texts)]


def find_differences(asks: Sequence[Callable[[], Any]], calls: int, threads: int) -> list[str]:
    """What was wrong with some of so many calls, made by so many threads, each of which begins with another request."""
    right = [ask() for ask in asks]
    wrong: list[str] = []
    begin = Barrier(threads)

    def work(number: int) -> None:
        begin.wait()
        for call in range(number, calls, threads):
            which = (call // threads + number) % len(asks)
            try:
                answer = asks[which]()
            except Exception as error:
                wrong.append(f"request {which}: {error!r}")
                continue
            if not alike(answer, right[which]):
                wrong.append(f"request {which}: {answer!r:.300} instead of {right[which]!r:.300}")

    workers = [Thread(target=work, args=(number,)) for number in range(threads)]
    with switching():
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
    return wrong


def cli() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--calls", type=int, default=20_000, help="of all models and speeds together")
    parser.add_argument("--threads", type=int, default=8)
    given = parser.parse_args()
    from test_every_task import how_of, job_of, raw

    from regard.training.train import carry_out

    torch.set_num_threads(2)
    each, bad = math.ceil(given.calls / len(MODELS) / len(SPEEDS)), 0
    with TemporaryDirectory() as room:
        os.environ["HOME"] = room
        runs = []
        for task, model in MODELS:
            at = Path(room) / f"{task}-{model}"
            job = job_of(task, model, at)
            [*carry_out(job)]
            runs.append((f"{task} {model}", job.run.folder, raw(task, model, at), how_of(job)))
        for speed, name in SPEEDS.items():
            wrong = 0
            for title, folder, texts, how in runs:
                found = find_differences(
                    build_requests(load(folder, "cpu", speed=speed), texts, how), each, given.threads
                )
                for line in found[:3]:
                    print(f"{title}, {name}: {line}", flush=True)
                wrong += len(found)
            count = f"{each * len(runs):,} calls"
            what = f"{given.threads} threads ask one model at the same time, {name}: {len(runs)} models, every task"
            print(f"| {what} | {count} | answers that differ from those of one thread: {wrong:,} |", flush=True)
            bad += wrong
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(cli())
