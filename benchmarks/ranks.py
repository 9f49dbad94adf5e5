"""Several ranks beside one process: the same bits, the same losses, and the speed.

    python benchmarks/ranks.py equality           every task: DDP x2 with accumulation 2 = one process
    python benchmarks/ranks.py shards             losses of 12 steps: 1, 2, 4 ranks, FSDP2, HSDP; fp32 and fp64
    python benchmarks/ranks.py schedules          every example once an epoch, over 500 changing numbers of ranks
    python benchmarks/ranks.py speed              DDP x2 with one thread each, beside one process with one thread
    python benchmarks/ranks.py before --path DIR  one process, beside the regard in DIR: seconds of a step, and bits

All tables but the last one start torchrun themselves.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch
from torch import nn

from regard.data.batches import bucket_by_length
from regard.tasks.task import Loss
from regard.training.file_job import FileJob
from regard.training.loop import Progress, TrainOptions, train_steps
from regard.training.ranks import SINGLE, Ranks, join_ranks
from regard.training.run_folder import RunFolder
from regard.training.start import make_settings

SMALL = {"dim": 64, "heads": 2, "hidden": 128, "dropout": 0.1, "batch_tokens": 512, "device": "cpu", "threads": 1}
ONE_LAYER = {"layers": 1}
TASKS: dict[str, dict[str, Any]] = {  # with the data that ships
    "translate": {"encoder_layers": 1, "decoder_layers": 1},
    "write": ONE_LAYER,
    "fill": ONE_LAYER,
    "classify": ONE_LAYER,
    "regress": ONE_LAYER,
    "tag": ONE_LAYER,
    "answer": ONE_LAYER,
    "embed": ONE_LAYER,
    "match": {"image_layers": 1, "layers": 1},
    "predict": ONE_LAYER,
    "decide": ONE_LAYER,
}
SPEED = {"model": "llama", "dim": 192, "layers": 4, "heads": 4, "hidden": 512, "context": 256, "dropout": 0.0}
SPEED |= {"batch_tokens": 8192, "grad_accum": 2, "device": "cpu", "threads": 1}  # 16k tokens a step
LAYOUTS = {"1 process": (1, 1), "DDP": (4, 1), "HSDP 2x2": (4, 2), "FSDP2": (4, 4)}


def open_job(task: str, folder: str, steps: int, **options: Any) -> FileJob:
    """A job of one process, in a folder of its own."""
    values = {"output_dir": f"{folder}/{task}-{os.environ.get('RANK', 0)}", "steps": steps, "evals": 1} | options
    return FileJob.open(make_settings(task, **values)).plan()


def train(job: FileJob, ranks: Ranks, dtype: torch.dtype = torch.float32) -> tuple[list[float], list[float], str]:
    """Losses and seconds of the steps, and the digest of the state."""
    options = job.settings.train_options
    progress = Progress.new(job.make_model().to(dtype), options, ranks)
    steps = [*train_steps(progress, job.task, job.examples, options)]
    with tempfile.TemporaryDirectory() as own_folder:
        checkpoint = RunFolder(Path(ranks.broadcast(own_folder)), ranks).save(progress, {}, 1, {})
        content = [file.read_bytes() for file in sorted(checkpoint.glob("*.safetensors"))]
        ranks.wait()  # the folder is that of the first rank
    digest = hashlib.sha256(b"".join(content)).hexdigest()
    return [step.loss for step in steps], [step.seconds for step in steps], digest


def alone(job: FileJob, ranks: Ranks, dtype: torch.dtype = torch.float32) -> tuple[list[float], list[float], str]:
    """The first rank trains alone, while the others wait."""
    return ranks.first(lambda: train(job, SINGLE, dtype))


def equality(ranks: Ranks, folder: str, tasks: list[str]) -> bool:
    equal = True
    for task in tasks:
        job = open_job(task, folder, 4, grad_accum=2, **SMALL, **TASKS[task])
        single, both = alone(job, ranks), train(job, ranks)
        same = ranks.broadcast((single[0], single[2]) == (both[0], both[2]))
        equal &= same
        if ranks.is_first:
            print(f"| {task} | {job.settings.model} | {'0 bits differ' if same else 'DIFFERENT'} |", flush=True)
    return equal


def shards(ranks: Ranks, folder: str, _: list[str]) -> bool:
    within = True
    job = open_job("translate", folder, 12, grad_accum=4, **SMALL, **TASKS["translate"])
    for dtype, bound in (torch.float32, 1e-5), (torch.float64, 1e-12):
        expected = np.array(alone(job, ranks, dtype)[0])
        for name, (size, parts) in LAYOUTS.items():
            if size == 1:
                continue
            losses = np.array(train(job, replace(ranks, shards=parts), dtype)[0])
            difference = float(abs(losses / expected - 1).max())
            within &= difference <= bound
            if ranks.is_first:
                print(f"| {name}, {ranks.size} ranks | {dtype} | relative difference {difference:.1e} |", flush=True)
    return within


def speed(ranks: Ranks, folder: str, _: list[str]) -> bool:
    job = open_job("write", folder, 2, **SPEED)
    times: dict[str, list[float]] = {"one": [], "two": []}
    for _ in range(3):  # interleaved; the first step of each round warms up
        times["one"] += alone(job, ranks)[1][1:]
        times["two"] += train(job, ranks)[1][1:]
    one, two = median(times["one"]), median(times["two"])
    if ranks.is_first:
        tokens = job.settings.train_options.batch_tokens * job.settings.train_options.grad_accum
        print(f"| one process, one thread | {one:.2f} s a step of {tokens:,} tokens | {times['one']}")
        print(f"| DDP x{ranks.size}, one thread each | {two:.2f} s | {one / two:.2f}x | {times['two']}")
    return one / two >= 1.7


class VirtualRank(Ranks):
    """A rank whose sums are its own: it trains without the others."""

    def sum(self, values: torch.Tensor) -> torch.Tensor:
        return values


class Rows:
    """Examples of some lengths."""

    def __init__(self, lengths: list[int]):
        self.lengths, self.units = np.array(lengths)[:, None], len(lengths)

    def epoch(self, budget: int, seed: int, epoch: int) -> Any:
        return bucket_by_length(self.lengths, budget, seed, epoch)


class RecordingTask:
    """Counts the rows of all batches that are computed."""

    def __init__(self) -> None:
        self.counts = Counter[int]()

    def collate(self, examples: Rows, rows: Any) -> Any:
        self.counts.update(rows.tolist())
        return rows

    def loss(self, model: nn.Module, rows: Any) -> Loss:
        return Loss(model.get_parameter("body.weight").sum() * 0.0 + len(rows), len(rows))


class Line(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Linear(1, 1)


def schedule_is_exact(seed: int) -> bool:
    """Whether, whenever the number of ranks changes, the complete epochs and the begun one have had each row once."""
    rng = random.Random(seed)
    examples: Any = Rows([rng.randint(1, 9) for _ in range(rng.randint(20, 80))])
    options = TrainOptions(steps=10**6, grad_accum=12, batch_tokens=12, lr=0.1, warmup_steps=0, ema=0.0, seed=seed)
    recording: Any = RecordingTask()
    model: Any = Line()
    progress = Progress.new(model, options)
    while progress.position.epoch < 4:
        size, steps = rng.choice([1, 2, 3, 4, 6, 12]), rng.randint(1, 4)
        start = progress.step, progress.position
        for rank in range(size):
            progress.step, progress.position, progress.ranks = *start, VirtualRank(rank, size)
            for step in train_steps(progress, recording, examples, options):
                if step.number == start[0] + steps:
                    break
        epoch, batch = progress.position
        begun = [row for rows in examples.epoch(options.batch_tokens, seed, epoch)[:batch] for row in rows.tolist()]
        if recording.counts != Counter([*range(examples.units)] * epoch + begun):
            return False
    return True


def schedules() -> int:
    exact = sum(schedule_is_exact(seed) for seed in range(500))
    print(f"| 500 schedules of rank changes, 4 epochs each | {exact} with every example once an epoch |")
    return 0 if exact == 500 else 1


def before(path: Path) -> int:
    """The same short run by both versions, interleaved."""
    results: dict[str, list[dict[str, Any]]] = {str(path): [], str(Path(__file__).parent.parent): []}
    for _ in range(3):
        for root, outcomes in results.items():
            environment = {**os.environ, "PYTHONPATH": root, "OMP_NUM_THREADS": "1"}
            command = [sys.executable, __file__, "steps"]
            output = subprocess.run(command, env=environment, check=True, capture_output=True, text=True).stdout
            outcomes.append(json.loads(output.splitlines()[-1]))
    (old, *_), (new, *_) = results.values()
    medians = [median(second for outcome in outcomes for second in outcome["seconds"]) for outcomes in results.values()]
    same = old["digest"] == new["digest"]
    print(
        f"| before | {medians[0]:.3f} s a step |\n| after | {medians[1]:.3f} s a step, {medians[1] / medians[0]:.3f}x |"
    )
    print(f"| weights after {len(new['seconds']) + 1} steps | {'0 bits differ' if same else 'DIFFERENT'} |")
    return 0 if same else 1


def steps() -> int:
    """Seconds of the steps of one process without accumulation, and the digest of its weights: by any version."""
    with tempfile.TemporaryDirectory() as folder:
        options = SPEED | {"grad_accum": 1, "batch_tokens": 4096, "steps": 4, "evals": 1, "dropout": 0.1}
        job = FileJob.open(make_settings("write", output_dir=f"{folder}/run", **options)).plan()
        seconds = [step.seconds for step in job.remaining_steps()]
    digest = hashlib.sha256()
    for weight in job.progress.model.parameters():
        digest.update(weight.detach().numpy().tobytes())
    print(json.dumps({"seconds": seconds[1:], "digest": digest.hexdigest()}))
    return 0


def cli() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    tables = {"equality": (2, equality), "shards": (4, shards), "speed": (2, speed)}
    parser.add_argument("table", choices=[*tables, "schedules", "before", "steps"])
    parser.add_argument("--tasks", nargs="+", default=list(TASKS), choices=list(TASKS), help="tasks of `equality`")
    parser.add_argument("--path", type=Path, help="folder that contains another version of regard")
    args = parser.parse_args()
    torch.set_num_threads(1)
    if args.table in ("schedules", "before", "steps"):
        return {"schedules": schedules, "steps": steps, "before": lambda: before(args.path)}[args.table]()
    size, table = tables[args.table]
    if "RANK" not in os.environ:
        launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(size)]
        words = [__file__, args.table, "--tasks", *args.tasks]
        return subprocess.run([*launcher, *words], env={**os.environ, "OMP_NUM_THREADS": "1"}).returncode
    ranks, start = join_ranks(), time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        passed = table(ranks, folder, args.tasks)
        ranks.wait()
    if ranks.is_first:
        print(f"{args.table}: {'passed' if passed else 'FAILED'} in {time.perf_counter() - start:.0f} s")
    return 0 if passed else 1


if __name__ == "__main__":
    sys.exit(cli())
