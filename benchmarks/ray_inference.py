"""Ray: are the answers of two workers those of one process, and how much faster do they come?

    python benchmarks/ray_inference.py [--inputs 2000] [--model FOLDER]

Ray Data   2,000 English sentences, `regard.ray.answer` with two workers of one thread, beside one process of one
           thread, by the inputs per second while both workers are at work, without the time to start them
Ray Serve  `regard.ray.deployment` with two replicas: the same answers over HTTP, from both replicas

Exit code 1 if an answer differs, a worker did nothing, or the throughput is below 1.5 times that of one process.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import socket
import sys
import time
import urllib.request
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import regard
import regard.ray
from regard.loaded_model import LoadedModel
from regard.modalities.synthetic import phrasebook
from regard.ray import AnswerWorker, Batch

WORKERS, BATCH_SIZE, MIN_RATIO = 2, 50, 1.5
NUM_REQUESTS = 40


class TimedWorker(AnswerWorker):
    """Adds to each answer its process, when its batch started and ended, and its share of the batch's CPU time."""

    def __call__(self, batch: Batch) -> Batch:
        start, cpu = time.time(), time.process_time()
        batch = super().__call__(batch)
        size = len(batch["answer"])
        values = {"pid": os.getpid(), "start": start, "end": time.time(), "cpu": (time.process_time() - cpu) / size}
        return batch | {name: [value] * size for name, value in values.items()}


def small_translator(folder: Path) -> Path:
    sizes = {"dim": 128, "hidden": 512, "heads": 4, "encoder_layers": 3, "decoder_layers": 3}
    for _ in regard.train("translate", output_dir=folder, steps=40, evals=1, eval_examples=20, threads=1, **sizes):
        pass
    return folder


def rate_at_work(rows: list[dict[str, Any]]) -> tuple[float, Mapping[int, int]]:
    """Inputs per second while all workers are at work, and the inputs of each. The first batch of a worker loads the
    kernels, as the call before the measurement does in one process."""
    by_worker = defaultdict(list)
    for row in rows:
        by_worker[row["pid"]].append(row)
    begin = max(min(row["end"] for row in part) for part in by_worker.values())
    end = min(max(row["end"] for row in part) for part in by_worker.values())
    shares = (max(0.0, min(r["end"], end) - max(r["start"], begin)) / (r["end"] - r["start"]) for r in rows)
    return sum(shares) / (end - begin), {pid: len(part) for pid, part in by_worker.items()}


def answer_alone(model: LoadedModel, texts: list[str]) -> tuple[list[str], float, float]:
    """The answers of this process, its inputs per second, and the CPU time of an input."""
    start, cpu = time.perf_counter(), time.process_time()
    answers = [text for i in range(0, len(texts), BATCH_SIZE) for text in model(texts[i : i + BATCH_SIZE])]
    return answers, len(texts) / (time.perf_counter() - start), (time.process_time() - cpu) / len(texts)


def compare_data(folder: Path, texts: list[str]) -> tuple[bool, list[str]]:
    import ray.data

    model = regard.load(folder, speed="exact", threads=1)
    model(texts[:BATCH_SIZE])
    expected, alone_before, cpu = answer_alone(model, texts)
    regard.ray.AnswerWorker = TimedWorker  # type: ignore[misc]
    dataset = ray.data.from_items([{"id": i, "text": text} for i, text in enumerate(texts)])
    start = time.perf_counter()
    rows = regard.ray.answer(dataset, folder, workers=WORKERS, batch_size=BATCH_SIZE).take_all()
    total = time.perf_counter() - start
    rate, counts = rate_at_work(rows)
    alone = (alone_before + answer_alone(model, texts)[1]) / 2  # before and after: other programs may run meanwhile
    answers = [row["answer"] for row in sorted(rows, key=lambda row: row["id"])]
    equal = sum(answer == other for answer, other in zip(answers, expected, strict=True))
    print(f"Ray Data   {equal} of {len(texts)} answers equal; inputs of each worker: {[*counts.values()]}")
    print(f"           one process {alone:.1f} inputs/s; {len(counts)} workers {rate:.1f}: {rate / alone:.2f} times")
    workers_cpu = sum(row["cpu"] for row in rows) / len(rows)
    print(f"           CPU time of an input: {1000 * cpu:.2f} ms, in the workers {1000 * workers_cpu:.2f} ms")
    print(f"           {total:.1f} s with the start of the workers")
    return equal == len(texts) and len(counts) == WORKERS and rate >= MIN_RATIO * alone, expected


def compare_serve(folder: Path, texts: list[str], expected: list[str]) -> bool:
    from ray import serve

    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    serve.start(http_options={"host": "127.0.0.1", "port": port})
    server = regard.ray.deployment({"model": folder})
    serve.run(server.options(num_replicas=WORKERS, ray_actor_options={"num_cpus": 0.5}).bind())
    answers = []
    for text in texts:
        body = json.dumps({"input": text}).encode()
        headers = {"content-type": "application/json"}
        request = urllib.request.Request(f"http://127.0.0.1:{port}/v1/run/model", body, headers)
        answers.append(json.load(urllib.request.urlopen(request))["predictions"][0]["text"])
    metrics = urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics").read().decode()
    [count] = re.findall(r'^regard_requests_total\{.*"/v1/run/{model}".*\} (\d+)$', metrics, re.MULTILINE) or [0]
    serve.shutdown()
    equal = sum(answer == other for answer, other in zip(answers, expected, strict=True))
    print(
        f"Ray Serve  {equal} of {len(texts)} answers equal, {count} of them by the replica that was asked for metrics"
    )
    return equal == len(texts) and 0 < int(count) < len(texts)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--inputs", type=int, default=2000)
    parser.add_argument("--model", type=Path, help="a translation model; default: one that trains for 40 steps")
    args = parser.parse_args()
    texts = [*dict.fromkeys(phrase.english for phrase in phrasebook.phrases())][: args.inputs]
    import ray

    with TemporaryDirectory() as temporary:
        folder = args.model or small_translator(Path(temporary) / "model")
        os.environ.setdefault("RAY_worker_niceness", "0")  # Ray gives its workers a low priority: compare equals
        ray.init(num_cpus=WORKERS, include_dashboard=False, logging_level="ERROR", log_to_driver=False)
        try:
            data_is_right, expected = compare_data(folder.resolve(), texts)
            number = min(NUM_REQUESTS, len(texts))
            serve_is_right = compare_serve(folder.resolve(), texts[:number], expected[:number])
        finally:
            ray.shutdown()
    return 0 if data_is_right and serve_is_right else 1


if __name__ == "__main__":
    sys.exit(main())
