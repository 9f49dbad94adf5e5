"""Saves of a run under FSDP2 on 4 ranks: the peak memory of each rank, and the time beside other ways to save.

    python benchmarks/sharded_saves.py [--ranks 4] [--layers 10] [-o DIR]

The state is weights, the two moments of AdamW and the EMA of a GPT of width 768, 16 bytes a parameter. The memory of a
rank is its peak (VmHWM) above that of the same process with an empty model: everything is imported, and no weight has
memory. It is compared with the rank's share of the state plus one block: what reading keeps mapped at most (`BLOCK`)
or, to publish, one file and four times the largest tensor, which is gathered.

gathered     every tensor is gathered, and rank 0 writes all of them into one file
torch        torch.distributed.checkpoint with HuggingFaceStorageWriter: no manifest, no checksums, no fsync of folders
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import torch
import torch.distributed.checkpoint as dcp
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

from regard.bench.peak_rss import PROC_CLEAR_REFS, status_bytes
from regard.hub.folder import write_tensors
from regard.hub.tensor_slices import TensorSlice, local_part, whole_tensor
from regard.models import MODELS
from regard.parts.heads import Model
from regard.training.checkpoint import save_folder
from regard.training.loop import Progress, TrainOptions
from regard.training.ranks import Ranks, join_ranks
from regard.training.run_folder import RunFolder
from regard.training.sharded_state import BLOCK
from regard.training.training_state import state_slices

VOCAB, DIM, CONTEXT, MAX_SHARD = 8192, 768, 512, 10**8
OPTIONS = TrainOptions(steps=1, optimizer="adamw", lr=1e-3, ema=0.9)
PHASES = ("sharded save", "sharded load", "publish", "gathered save", "gathered load", "torch save", "torch load")


def empty_model(layers: int, dim: int, ranks: Ranks) -> Model:
    """A sharded GPT whose weights have no memory."""
    family = MODELS["gpt"]
    with torch.device("meta"):
        config = family.config(vocab=VOCAB, context=CONTEXT, dim=dim, layers=layers, heads=12, hidden=4 * dim)
        body = next(iter(family.bodies.values()))(config)
        model = Model(body, body.lm_head())
    fully_shard(model, mesh=init_device_mesh("cpu", (ranks.size,)))
    return model


def training(model: Model, ranks: Ranks) -> Progress:
    """A training after a step of AdamW, with random numbers everywhere."""
    progress = Progress.new(model.to_empty(device="cpu"), OPTIONS)
    generator = torch.Generator().manual_seed(ranks.rank)
    for weight in progress.model.parameters():
        local_part(weight).normal_(generator=generator)
    for optimizer in progress.optimizers:
        for weight in (w for group in optimizer.param_groups for w in group["params"]):
            moments = {name: torch.empty_like(weight).detach() for name in ("exp_avg", "exp_avg_sq")}
            optimizer.state[weight] = {"step": torch.tensor(1.0), **moments}
            for moment in moments.values():
                local_part(moment).uniform_(generator=generator)
    assert progress.ema is not None
    for mean in progress.ema.means:
        local_part(mean).normal_(generator=generator)
    return progress


def gathered_save(folder: Path, progress: Progress, ranks: Ranks) -> None:
    tensors = {}
    for name, tensor in state_tensors(progress).items():
        whole = whole_tensor(tensor)
        if ranks.is_first:
            tensors[name] = whole
    if ranks.is_first:
        save_folder(folder, "step-0", {"state.safetensors": lambda file: write_tensors(file, tensors)})
        (folder / "step-0" / "state.json").write_text("{}")
    ranks.wait()


def state_tensors(progress: Progress) -> dict[str, torch.Tensor]:
    """The same state as tensors and DTensors, which other writers take."""
    tensors: dict[str, torch.Tensor] = {}
    assert progress.ema is not None
    for i, (name, weight) in enumerate(progress.model.named_parameters()):
        tensors |= {f"weights/{name}": weight.detach(), f"ema/{name}": progress.ema.means[i]}
        for optimizer in progress.optimizers:
            moments: dict[str, torch.Tensor] = optimizer.state.get(weight, {})
            tensors |= {f"{kind}/{name}": value for kind, value in moments.items()}
    return tensors


def run_phase(phase: str, folder: Path, progress: Progress, ranks: Ranks) -> None:
    run = RunFolder(folder / phase.split()[0], ranks)
    match phase:
        case "sharded save":
            run.save(progress, {}, 1, {})
        case "sharded load" | "gathered load":
            checkpoint, _, _ = run.newest_checkpoint()
            state = {"step": 0, "position": [0, 0]}
            run.restore(progress, checkpoint, state)
        case "publish":
            run.max_shard = MAX_SHARD
            run.publish(progress.model)
        case "gathered save":
            gathered_save(run.folder, progress, ranks)
        case "torch save":
            writer = dcp.HuggingFaceStorageWriter(str(run.folder), save_distributed=True)
            dcp.save(state_tensors(progress), storage_writer=writer)
        case "torch load":
            dcp.load(state_tensors(progress), storage_reader=dcp.HuggingFaceStorageReader(str(run.folder)))


def checksum(parts: list[TensorSlice]) -> float:
    """Of all numbers of this rank: equal before a save and after a load. In small blocks, which take no memory."""
    return sum(block.double().sum().item() for part in parts for block in part.tensor.flatten().split(2**14))


def measure(phase: str, folder: Path, layers: int) -> dict[str, float]:
    """One rank of one phase: bytes of its share and of its peak, and seconds."""
    ranks = join_ranks(int(os.environ["WORLD_SIZE"]))
    torch.set_num_threads(1)
    warm_up(folder / "warm", ranks)
    model = empty_model(layers, DIM, ranks)
    before = status_bytes("VmRSS")
    progress = training(model, ranks)
    share = sum(part.tensor.nbytes for part in state_slices(progress))
    expected = checksum(state_slices(progress))
    if phase.endswith("load"):
        for part in state_slices(progress):
            part.tensor.zero_()
    if phase in ("sharded load", "gathered load"):  # a run that resumes has no moments yet
        for optimizer in progress.optimizers:
            optimizer.state.clear()
    ranks.wait()
    PROC_CLEAR_REFS.write_text("5")  # resets VmHWM
    start = time.perf_counter()
    run_phase(phase, folder, progress, ranks)
    ranks.wait()
    seconds = time.perf_counter() - start
    peak = status_bytes("VmHWM")
    assert checksum(state_slices(progress)) == expected, f"{phase}: other numbers"
    return {"share": share, "peak": peak - before, "seconds": seconds}


def warm_up(folder: Path, ranks: Ranks) -> None:
    """Save and load a small state, so that everything is imported."""
    progress = training(empty_model(1, 24, ranks), ranks)
    for phase in PHASES:
        ranks.first(lambda phase=phase: (folder / phase.split()[0]).mkdir(parents=True, exist_ok=True))
        run_phase(phase, folder, progress, ranks)


def start_ranks(size: int, arguments: list[str]) -> list[dict[str, float]]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    shared = {"WORLD_SIZE": str(size), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "OMP_NUM_THREADS": "1"}
    processes = [
        subprocess.Popen(
            [sys.executable, __file__, *arguments],
            env={**os.environ, **shared, "RANK": str(rank)},
            stdout=subprocess.PIPE,
            text=True,
        )
        for rank in range(size)
    ]
    outputs = [process.communicate()[0] for process in processes]
    if any(process.returncode for process in processes):
        raise SystemExit("a rank failed")
    return [json.loads(output.splitlines()[-1]) for output in outputs]


def report(ranks: int, folder: Path, layers: int, phases: Sequence[str]) -> None:
    for number, phase in enumerate(phases):
        shutil.rmtree(folder / "warm", ignore_errors=True)
        (folder / phase.split()[0]).mkdir(parents=True, exist_ok=True)
        results = start_ranks(ranks, ["--phase", phase, "--layers", str(layers), "-o", str(folder)])
        if not number:
            total = sum(result["share"] for result in results)
            print(f"{ranks} ranks, {total / 1e9:.2f} GB of state, block {BLOCK / 1e6:.0f} MB", flush=True)
        block = MAX_SHARD + 4 * 4 * VOCAB * DIM if phase == "publish" else BLOCK
        ratios = [result["peak"] / (result["share"] + block) for result in results]
        peaks = ", ".join(f"{result['peak'] / 1e6:.0f}" for result in results)
        print(
            f"{phase:<14} {max(result['seconds'] for result in results):6.2f} s   peaks {peaks} MB   "
            f"share {results[0]['share'] / 1e6:.0f} MB   largest peak / (share + block) {max(ratios):.2f}",
            flush=True,
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--layers", type=int, default=10)
    parser.add_argument("-o", "--output-dir", type=Path)
    parser.add_argument("--phase", choices=PHASES, help=argparse.SUPPRESS)
    parser.add_argument("--phases", choices=PHASES, nargs="+", default=PHASES, help="a load follows its save")
    arguments = parser.parse_args()
    if arguments.phase:
        print(json.dumps(measure(arguments.phase, arguments.output_dir, arguments.layers)))
        return
    with tempfile.TemporaryDirectory(dir=arguments.output_dir) as folder:
        report(arguments.ranks, Path(folder), arguments.layers, arguments.phases)


if __name__ == "__main__":
    main()
