"""The script that each rank of the tests runs: many small trainings in one process group. It prints one JSON object.

python rank_jobs.py pair FOLDER         two ranks: replicas, shards, mutants, stop and resume
python rank_jobs.py square FOLDER       four ranks: replicas, shards, replicas of shards
"""

from __future__ import annotations

import hashlib
import itertools
import json
import sys
from dataclasses import replace
from pathlib import Path

import torch

from regard.seeds import derive_seed
from regard.training import loop, sharding
from regard.training.file_job import FileJob
from regard.training.loop import Step
from regard.training.ranks import SINGLE, OtherRankError, Ranks, join_ranks
from regard.training.start import make_settings

SIZES = {"dim": 16, "hidden": 24, "heads": 2, "context": 32, "dropout": 0.2}
COMMON = {"steps": 4, "evals": 2, "grad_accum": 2, "batch_tokens": 64, "threads": 1, "device": "cpu", "keep": 9}
COUNTER = itertools.count()
TASKS = {
    "translate": {"data": "pairs.tsv", "encoder_layers": 1, "decoder_layers": 1, "layer_decay": 0.9},
    "write": {"data": "text.txt", "model": "llama", "dim": 64, "hidden": 128, "layers": 2, "tokenizer": "bytes"},
    "classify": {"data": "labels.tsv", "model": "bert", "layers": 1, "freeze": ("tokens",)},
    "embed": {"data": "pairs.tsv", "layers": 1},
}


def write_data(folder: Path) -> None:
    words = ["tea", "milk", "bread", "and", "no", "water"]
    texts = [" ".join(words[(i * 7 + k * (i // 5 + 1)) % 6] for k in range(2 + i % 5)) + f" {i}" for i in range(60)]
    (folder / "pairs.tsv").write_text("".join(f"{text}\t{text.upper()}\n" for text in texts))
    (folder / "labels.tsv").write_text("".join(f"{text}\t{'ab'[i % 2]}\n" for i, text in enumerate(texts)))
    (folder / "text.txt").write_text("".join(f"{text}.\n\n" for text in texts * 3))


def open_job(folder: Path, task: str, ranks: Ranks, output: str = "", **options: object) -> FileJob:
    """A job of its own folder."""
    output = output or f"{task}-{'ranks' if ranks.size > 1 else 'alone'}-{next(COUNTER)}"
    values = COMMON | SIZES | TASKS[task] | {"output_dir": str(folder / output), "shards": ranks.shards} | options
    values["data"] = str(folder / str(values["data"]))
    settings = ranks.first(lambda: make_settings(task, **values))
    return FileJob.open(settings, replace(ranks, shards=1)).plan()


def outcome(job: FileJob) -> dict[str, object]:
    """The losses, and the digest of all that the run wrote but times."""
    steps: list[Step] = [*job.train()]
    job.ranks.wait()
    lines = [{k: v for k, v in line.items() if k != "seconds"} for line in job.run.metrics()]
    digest = hashlib.sha256(json.dumps(lines).encode())
    checkpoint = job.run.folder / f"step-{job.progress.step}"
    names = ["model.safetensors", "README.md", "config.json", *sorted(checkpoint.glob("*.safetensors"))]
    for file in (job.run.folder / name for name in names):
        digest.update(file.read_bytes())
    return {"losses": [step.loss for step in steps], "digest": digest.hexdigest()}


def alone(folder: Path, task: str, ranks: Ranks, **options: object) -> dict[str, object]:
    """The outcome of one process, which trains while the others wait."""
    return ranks.first(lambda: outcome(open_job(folder, task, SINGLE, **options)))


def stop_and_resume(folder: Path, ranks: Ranks, later: Ranks, steps: int = 8) -> list[float]:
    """The losses of a run that the last rank stops after step 3, and that continues on other ranks."""
    name = f"stopped-{next(COUNTER)}"
    job = open_job(folder, "translate", ranks, name, steps=steps)
    job.progress.stop = lambda: ranks.rank == ranks.size - 1 and job.progress.step >= 2
    losses = []
    for step in job.train():
        losses.append(step.loss)
        if job.progress.is_stopping:
            job.save_interrupted()
            job.lock.release()
            break
    assert len(losses) == 3
    ranks.wait()
    if later.size == 1:
        return losses + alone(folder, "translate", ranks, output=name, steps=steps)["losses"]
    job = open_job(folder, "translate", later, name, steps=steps)
    assert job.is_resumed
    losses += outcome(job)["losses"]
    is_whole = (job.run.folder / f"step-{steps}" / "state.safetensors").exists()
    assert is_whole == (later.shards == 1), "replicas save one file, also after they resumed"
    return losses


def pair(folder: Path, ranks: Ranks) -> dict[str, object]:
    results: dict[str, object] = {}
    for task in TASKS:
        results[task] = [alone(folder, task, ranks), outcome(open_job(folder, task, ranks))]
    results["long"] = alone(folder, "translate", ranks, steps=12)["losses"]
    results["shards"] = outcome(open_job(folder, "translate", replace(ranks, shards=2), steps=12))["losses"]
    results["whole"] = outcome(open_job(folder, "translate", ranks, steps=8))["losses"]
    results["same ranks"] = stop_and_resume(folder, ranks, ranks)
    results["fewer ranks"] = stop_and_resume(folder, ranks, SINGLE)
    results["shards to replicas"] = stop_and_resume(folder, replace(ranks, shards=2), ranks)
    loop.derive_seed = lambda seed, step, batch=0: derive_seed(seed, step)
    results["mutant: seed without batch"] = outcome(open_job(folder, "translate", ranks))
    loop.derive_seed, right = derive_seed, sharding.sum_gradients
    sharding.sum_gradients = lambda bucket: right(bucket).then(lambda done: done.value() / 2)
    results["mutant: mean"] = outcome(open_job(folder, "translate", ranks))
    sharding.sum_gradients = right
    results["one rank's loss is NaN"] = ranks.gather(nan_on_last_rank(folder, ranks))
    return results


def nan_on_last_rank(folder: Path, ranks: Ranks) -> str:
    job = open_job(folder, "translate", ranks)
    loss = job.task.loss
    if ranks.rank == ranks.size - 1:
        job.task.loss = lambda *args: (right := loss(*args)) and replace(right, total=right.total * torch.nan)
    try:
        return f"{len([*job.train()])} steps"
    except (FloatingPointError, OtherRankError) as error:
        return f"{type(error).__name__} before step {job.progress.step + 1}"


def square(folder: Path, ranks: Ranks) -> dict[str, object]:
    options = {"steps": 12, "grad_accum": 4}
    groups = {"4": ranks, "2x2": replace(ranks, shards=2), "shards 4": replace(ranks, shards=4)}
    single = alone(folder, "translate", ranks, **options)["losses"]
    return {"1": single} | {
        name: outcome(open_job(folder, "translate", group, **options))["losses"] for name, group in groups.items()
    }


if __name__ == "__main__":
    torch.set_num_threads(1)
    data = Path(sys.argv[2])
    everyone = join_ranks()
    everyone.first(lambda: write_data(data))
    results = {"pair": pair, "square": square}[sys.argv[1]](data, everyone)
    if everyone.is_first:
        print("RESULT" + json.dumps(results))
