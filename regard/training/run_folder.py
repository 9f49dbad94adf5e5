"""The run folder: a Hugging Face folder, and beside it what a resumed run needs.

config.json, tokenizer.json ...   written once
model.safetensors                 the best weights so far, replaced by one rename
task.json, train.json             the task; all settings as resolved, and a format number
metrics.jsonl, loss.png           one line per step and per evaluation; the loss curve
step-N/, LATEST                   the newest checkpoints: weights, optimiser state, EMA, position, checksums
"""

from __future__ import annotations

import fcntl
import json
import math
import os
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch import Tensor
from torch.nn import Parameter

from regard.atomic import fsync, json_bytes, path_in_errors, remove_partial_files, replace_file, write_json
from regard.data.batches import Position
from regard.hub.folder import write_config, write_tensors, write_weights
from regard.hub.match_state_dict import unique_state_dict
from regard.hub.task_config import task_config_keys, write_task
from regard.json_files import lexists, read_bounded, read_json
from regard.parts.heads import Model
from regard.tasks.task import Task
from regard.training.checkpoint import (
    LATEST,
    Files,
    find_damage,
    keep_newest,
    list_checkpoints,
    quarantine,
    recover,
    save_folder,
)
from regard.training.loop import Progress, Step
from regard.training.provenance import FORMAT
from regard.training.trackers import TRACKING_FILE
from regard.validate import matches_type

LOCK_FILE = ".lock"
CHECKPOINT_OVERHEAD = 2**20  # bytes of a checkpoint besides its tensors
DESCRIPTION_FILES = (  # written by `describe`, train.json last
    *("config.json", "generation_config.json", "preprocessor_config.json", "processor_config.json"),
    *("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json", "chat_template.jinja"),
    *("vocab.txt", "vocab.json", "merges.txt", "tokenizer.model", "source.spm", "target.spm"),
    *("logmel.json", "molecules.json"),
    *("modules.json", "sentence_bert_config.json", "config_sentence_transformers.json", "1_Pooling"),
    *("2_Normalize", "task.json", "train.json"),
)
OUTPUT_FILES = (  # written during a run; an RL session also has a policy
    *("model.safetensors", "metrics.jsonl", "README.md", "loss.png", "alignment.png", "returns.png", "episodes.npz"),
    TRACKING_FILE,
)

OUTPUT_FOLDERS = ("policy", "tensorboard", "wandb")  # written during a run, by it or by a tracker


class RunFolder:
    def __init__(self, folder: Path):
        self.folder = folder

    @classmethod
    def new(cls, folder: Path, overwrite: bool = False) -> RunFolder:
        """Create the folder. Raises ValueError if it exists, unless it is a run and `overwrite` is set."""
        existing = {file.name for file in folder.iterdir()} if folder.exists() else set()
        if existing - {LOCK_FILE}:
            # A run that stopped while it wrote these files has nothing to lose.
            names = {name.removeprefix(".") for name in existing - {LOCK_FILE}}
            incomplete = LOCK_FILE in existing and "train.json" not in existing and names <= {*DESCRIPTION_FILES}
            if not overwrite and not incomplete:
                remedy = "continue it with --resume, replace it with --overwrite, or choose another --output-dir"
                raise ValueError(f"{folder} exists: {remedy}")
            if "train.json" not in existing and not incomplete:
                raise ValueError(f"{folder} is not a run folder, so it is not replaced: choose another --output-dir")
        folder.mkdir(parents=True, exist_ok=True)
        return cls(folder)

    def clear(self) -> None:
        """Remove all files of an earlier run."""
        keep_newest(self.folder, 0)
        remove_partial_files(self.folder, {*DESCRIPTION_FILES, *OUTPUT_FILES, LATEST})
        outputs = (self.folder / name for name in OUTPUT_FOLDERS)
        for old in (*self.folder.glob("damaged-step-*"), *outputs):
            shutil.rmtree(old, ignore_errors=True)
        for name in (*OUTPUT_FILES, LATEST):
            (self.folder / name).unlink(missing_ok=True)

    @property
    def is_finished(self) -> bool:
        """The model card is written last, after the test; the checkpoint of the last step still exists."""
        if not all((self.folder / name).is_file() for name in ("README.md", "model.safetensors", "train.json")):
            return False
        last = max((line["step"] for line in self.metrics()), default=0)
        newest_checkpoint = list_checkpoints(self.folder)[:1]
        return any(folder.name == f"step-{last}" and not find_damage(folder) for folder in newest_checkpoint)

    def remove_if_empty(self) -> None:
        if [file.name for file in self.folder.iterdir()] == [LOCK_FILE]:
            shutil.rmtree(self.folder)

    def describe(self, model: Model, task: Task, settings: Mapping[str, object]) -> None:
        """Write the files that never change during a run."""
        write_config(self.folder, model, task_config_keys(task))
        write_task(self.folder, task)
        write_json(self.folder / "train.json", {"format": FORMAT, **settings})

    def log(self, **values: object) -> None:
        file = self.folder / "metrics.jsonl"
        with path_in_errors(file), file.open("a", encoding="utf-8") as stream:
            stream.write(json.dumps(values, ensure_ascii=False) + "\n")

    def metrics(self, max_bytes: int = sys.maxsize) -> list[dict[str, Any]]:
        """All lines of metrics.jsonl, of which `max_bytes` are read."""
        file = self.folder / "metrics.jsonl"
        lines = read_bounded(file, max_bytes).splitlines(keepends=True) if lexists(file) else []
        complete = [line for line in lines if line.endswith(b"\n")]  # a crash may truncate the last line
        return [parse_metrics_line(line, f"{file}:{number}") for number, line in enumerate(complete, 1)]

    def publish(self, model: Model) -> None:
        """Write these weights as model.safetensors: the best so far."""
        replace_file(self.folder / "model.safetensors", lambda file: write_weights(file, model))

    def save(self, progress: Progress, state: Mapping[str, object], keep: int, files: Files) -> Path:
        """Write a checkpoint, with further files, and remove all but the `keep` newest."""
        position = {"step": progress.step, "position": list(progress.position), "num_skipped": progress.num_skipped}
        tensors = state_tensors(progress)
        if (self.folder / "metrics.jsonl").exists():
            fsync(self.folder / "metrics.jsonl")  # the log reaches the disk before the checkpoint does
        states: Files = {
            "state.safetensors": lambda file: write_tensors(file, tensors),
            "state.json": lambda file: file.write_bytes(json_bytes({**position, **state})),
        }
        room = sum(tensor.nbytes for tensor in tensors.values()) + CHECKPOINT_OVERHEAD
        checkpoint = save_folder(self.folder, f"step-{progress.step}", {**states, **files}, room)
        keep_newest(self.folder, keep)
        return checkpoint

    def newest_checkpoint(self) -> tuple[Path, dict[str, Any], list[str]]:
        """The newest intact checkpoint, its state.json, and the problems of newer ones, which are quarantined."""
        problems = []
        recover(self.folder)
        remove_partial_files(self.folder, {*DESCRIPTION_FILES, *OUTPUT_FILES, LATEST})
        remove_partial_files(self.folder / "policy", {*DESCRIPTION_FILES, *OUTPUT_FILES})
        for folder in list_checkpoints(self.folder):
            if problem := find_damage(folder):
                problems.append(problem)
                quarantine(folder)
                continue
            return folder, read_json(folder / "state.json", finite=False), problems
        detail = f" ({'; '.join(problems)})" if problems else ""
        raise ValueError(f"{self.folder} has no checkpoint to resume from{detail}: start again with --overwrite")

    def restore(self, progress: Progress, folder: Path, state: dict[str, Any]) -> None:
        """Load a checkpoint into `progress`, and remove from the log what follows it."""
        load_state_tensors(progress, load_file(folder / "state.safetensors"))
        progress.step, progress.position = state["step"], Position(*state["position"])
        progress.num_skipped = state.get("num_skipped", 0)
        if not self.is_finished:
            (self.folder / "README.md").unlink(missing_ok=True)
            self._truncate_log(progress.step, state.get("last_eval", progress.step))

    def _truncate_log(self, step: int, last_eval: int) -> None:
        """Remove the lines that the resumed run will log again: later steps, an evaluation that the checkpoint does
        not include, and the test."""
        remaining: list[dict[str, Any]] = []
        for line in self.metrics():
            repeated = "valid" in line and any("valid" in r and r["step"] == line["step"] for r in remaining[-1:])
            if line["step"] <= (last_eval if "valid" in line else step) and "test" not in line and not repeated:
                remaining.append(line)
        lines = [json.dumps(line, ensure_ascii=False) + "\n" for line in remaining]
        replace_file(self.folder / "metrics.jsonl", "".join(lines).encode())

    def average_checkpoints(self, count: int, eval_every: int) -> dict[str, Tensor]:
        """The mean of the weights of the last evaluated checkpoints (Vaswani et al. 2017, section 6.1)."""
        newest_checkpoint, *older = list_checkpoints(self.folder)
        evaluated = [newest_checkpoint, *(f for f in older if int(f.name.removeprefix("step-")) % eval_every == 0)]
        states = [load_file(folder / "state.safetensors") for folder in evaluated[:count]]
        names = [name for name in states[0] if name.startswith("weights/")]
        return {name.removeprefix("weights/"): torch.stack([s[name] for s in states]).mean(0) for name in names}


def state_tensors(progress: Progress) -> dict[str, Tensor]:
    """Weights, optimiser state, EMA and buffers, each as KIND/WEIGHT: as they were after the last complete step, even
    if another step or an evaluation is under way."""
    tensors: dict[str, Tensor] = {}
    weights, ema = "weights", "ema"
    if progress.ema is not None and progress.ema.swapped:
        weights, ema = ema, weights
    for i, (name, weight) in enumerate(progress.model.named_parameters()):
        tensors[f"{weights}/{name}"] = weight.detach()
        for optimizer in progress.optimizers:
            for moment, value in optimizer.state.get(weight, {}).items():
                tensors[f"{moment}/{name}"] = value
        if progress.ema is not None:
            tensors[f"{ema}/{name}"] = progress.ema.means[i]
    before = dict(zip((name for name, _ in progress.model.named_buffers()), progress.buffers or (), strict=False))
    for name, buffer in persistent_buffers(progress.model).items():
        tensors[f"buffers/{name}"] = before.get(name, buffer)
    return {name: tensor.cpu().contiguous() for name, tensor in tensors.items()}


@torch.no_grad()
def load_state_tensors(progress: Progress, tensors: dict[str, Tensor]) -> None:
    for i, (name, weight) in enumerate(progress.model.named_parameters()):
        weight.copy_(tensors[f"weights/{name}"])
        for optimizer in progress.optimizers:
            if any(weight is w for group in optimizer.param_groups for w in group["params"]):
                kinds = {key.split("/")[0] for key in tensors if key.endswith(f"/{name}")} - {"weights", "ema"}
                optimizer.state[weight] = {kind: tensors[f"{kind}/{name}"].to(weight.device) for kind in kinds}
        if progress.ema is not None:
            progress.ema.means[i].copy_(tensors[f"ema/{name}"])
    for name, buffer in persistent_buffers(progress.model).items():
        buffer.copy_(tensors[f"buffers/{name}"])


def persistent_buffers(model: Model) -> dict[str, Tensor]:
    """The running statistics of batch norms."""
    return {name: tensor for name, tensor in unique_state_dict(model).items() if not isinstance(tensor, Parameter)}


class RunLock:
    """Only one process at a time trains in a folder. The operating system releases the lock when the process ends."""

    def __init__(self, folder: Path):
        folder.mkdir(parents=True, exist_ok=True)
        self.handle = (folder / LOCK_FILE).open("a+")
        try:
            fcntl.flock(self.handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            self.handle.seek(0)
            owner = self.handle.read().strip() or "unknown"
            self.handle.close()
            remedy = "wait for it, or choose another --output-dir"
            raise ValueError(f"{folder} is in use by process {owner}: {remedy}") from None
        self.handle.truncate(0)
        self.handle.write(str(os.getpid()))
        self.handle.flush()

    def release(self) -> None:
        self.handle.close()


NUMBERS = ("step", "epoch", "loss", "lr", "grad_norm", "count", "seconds")  # in a line of metrics.jsonl
STEP_KEYS = {"loss", "lr", "grad_norm"}  # in the line of every step that was not skipped
NUMBER_OBJECTS = ("module_grad_norms", "valid", "test")  # each maps names to numbers


def parse_metrics_line(line: bytes, location: str) -> dict[str, Any]:
    try:
        values = json.loads(line)
        numbers = [values[name] for name in NUMBERS if name in values]
        numbers += [value for name in NUMBER_OBJECTS if name in values for value in values[name].values()]
        is_valid = "step" in values and ("loss" not in values or {*values} >= STEP_KEYS)
    except (ValueError, TypeError, AttributeError, RecursionError):
        is_valid = False
    if not is_valid or not all(matches_type(number, float) for number in numbers):
        raise ValueError(f"{location}: not a valid line of metrics: remove the line")
    return dict(values)


def metrics_line(step: Step) -> dict[str, object]:
    """A step as metrics.jsonl stores it. The line of a skipped step has no loss."""
    if math.isnan(step.loss):
        return {"step": step.number, "epoch": step.position.epoch, "skipped": True, "seconds": round(step.seconds, 4)}
    norms = {module: float(f"{norm:.5g}") for module, norm in step.module_grad_norms.items()}  # may be very small
    return {
        "step": step.number,
        "epoch": step.position.epoch,
        "loss": round(step.loss, 6),
        "lr": step.lr,
        "grad_norm": round(step.grad_norm, 6),
        "count": step.count,
        "seconds": round(step.seconds, 4),
    } | ({"module_grad_norms": norms} if norms else {})
