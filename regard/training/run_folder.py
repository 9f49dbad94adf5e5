"""The run folder: a Hugging Face folder, and beside it what a resumed run needs.

config.json, tokenizer.json ...   written once
model.safetensors                 the best weights so far, replaced by one rename; large ones are several files
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
from functools import partial
from pathlib import Path
from typing import Any

from regard.atomic import fsync, json_bytes, path_in_errors, remove_partial_files, replace_file, write_json
from regard.data.batches import Position
from regard.hub.folder import write_config
from regard.hub.task_config import task_config_keys, write_task
from regard.hub.weights import SAFE_INDEX, SAFE_WEIGHTS
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
from regard.training.publish import MAX_SHARD, has_weights, name_shards, publish_weights, remove_stale
from regard.training.rank_checkpoint import find_damage_on_ranks, save_on_ranks
from regard.training.ranks import SINGLE, Ranks
from regard.training.sharded_state import StateReader, state_files
from regard.training.trackers import TRACKING_FILE
from regard.training.training_state import load_average, restore_state, state_slices
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
    *(
        SAFE_WEIGHTS,
        SAFE_INDEX,
        "metrics.jsonl",
        "README.md",
        "loss.png",
        "alignment.png",
        "returns.png",
        "episodes.npz",
    ),
    TRACKING_FILE,
)
OUTPUT_FOLDERS = ("policy", "tensorboard", "wandb")  # written during a run, by it or by a tracker

OUTPUT_FOLDERS = ("policy", "tensorboard", "wandb")  # written during a run, by it or by a tracker


class RunFolder:
    """The run folder. With several ranks, all of them call what writes or reads weights together: `publish`, `save`,
    `newest_checkpoint`, `restore`, `load_average`, `finish_weights`."""

    max_shard = MAX_SHARD  # bytes of a file of published weights

    def __init__(self, folder: Path, ranks: Ranks = SINGLE):
        self.folder, self.ranks = folder, ranks
        self.intact: Path | None = None  # a checkpoint that has been compared with its checksums

    @classmethod
    def new(cls, folder: Path, overwrite: bool = False, ranks: Ranks = SINGLE) -> RunFolder:
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
        return cls(folder, ranks)

    def clear(self) -> None:
        """Remove all files of an earlier run."""
        keep_newest(self.folder, 0)
        remove_partial_files(self.folder, {*DESCRIPTION_FILES, *OUTPUT_FILES, LATEST})
        outputs = (self.folder / name for name in OUTPUT_FOLDERS)
        for old in (*self.folder.glob("damaged-step-*"), *outputs):
            shutil.rmtree(old, ignore_errors=True)
        for name in (*OUTPUT_FILES, LATEST):
            (self.folder / name).unlink(missing_ok=True)
        remove_stale(self.folder)

    @property
    def is_finished(self) -> bool:
        """The model card is written last, after the test; the checkpoint of the last step still exists."""
        if not all((self.folder / name).is_file() for name in ("README.md", "train.json")) or not has_weights(
            self.folder
        ):
            return False
        last = max((line["step"] for line in self.metrics()), default=0)
        newest_checkpoint = list_checkpoints(self.folder)[:1]
        ended = any(folder.name == f"step-{last}" for folder in newest_checkpoint)
        return ended and (newest_checkpoint == [self.intact] or not find_damage(newest_checkpoint[0]))

    def remove_if_empty(self) -> None:
        if [file.name for file in self.folder.iterdir()] == [LOCK_FILE]:
            shutil.rmtree(self.folder)

    def describe(self, model: Model, task: Task, settings: Mapping[str, object]) -> None:
        """Write the files that never change during a run."""
        write_config(self.folder, model, task_config_keys(task))
        write_task(self.folder, task)
        write_json(self.folder / "train.json", {"format": FORMAT, **settings})

    def log(self, **values: object) -> None:
        if not self.ranks.is_first:
            return
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
        publish_weights(self.folder, model, self.ranks, self.max_shard)

    def finish_weights(self) -> None:
        """Give the files of published weights their usual names, if there are several."""
        self.ranks.first(lambda: name_shards(self.folder))

    def save(self, progress: Progress, state: Mapping[str, object], keep: int, files: Files) -> Path:
        """Write a checkpoint, with further files of the first rank, and remove all but the `keep` newest."""
        position = {"step": progress.step, "position": list(progress.position), "num_skipped": progress.num_skipped}
        self.ranks.first(self._sync_log)
        states, size = state_files(state_slices(progress), self.ranks)
        if self.ranks.is_first:
            content = json_bytes({**position, **state})
            states = {**states, "state.json": lambda file: file.write_bytes(content), **files}
        name, room = f"step-{progress.step}", size + CHECKPOINT_OVERHEAD
        if self.ranks.size == 1:
            checkpoint = save_folder(self.folder, name, states, room)
        else:
            checkpoint = save_on_ranks(self.ranks, self.folder, name, states, room)
        self.ranks.first(lambda: keep_newest(self.folder, keep))
        return checkpoint

    def _sync_log(self) -> None:
        """The log reaches the disk before the checkpoint does."""
        if (self.folder / "metrics.jsonl").exists():
            fsync(self.folder / "metrics.jsonl")

    def newest_checkpoint(self) -> tuple[Path, dict[str, Any], list[str]]:
        """The newest intact checkpoint, its state.json, and the problems of newer ones, which are quarantined."""
        problems: list[str] = []
        self.ranks.first(self._repair)
        for folder in self.ranks.broadcast(list_checkpoints(self.folder)):
            damage = find_damage(folder) if self.ranks.size == 1 else find_damage_on_ranks(self.ranks, folder)
            if not damage:
                self.intact = folder
                return folder, read_json(folder / "state.json", finite=False), problems
            problems.append(damage)
            self.ranks.first(partial(quarantine, folder))
        detail = f" ({'; '.join(problems)})" if problems else ""
        raise ValueError(f"{self.folder} has no checkpoint to resume from{detail}: start again with --overwrite")

    def _repair(self) -> None:
        """Complete or remove what a crash left."""
        recover(self.folder)
        remove_stale(self.folder)
        remove_partial_files(self.folder, {*DESCRIPTION_FILES, *OUTPUT_FILES, LATEST})
        remove_partial_files(self.folder / "policy", {*DESCRIPTION_FILES, *OUTPUT_FILES})

    def restore(self, progress: Progress, folder: Path, state: dict[str, Any]) -> None:
        """Load a checkpoint into `progress`, and remove from the log what follows it."""
        restore_state(progress, StateReader(folder))
        progress.step, progress.position = state["step"], Position(*state["position"])
        progress.num_skipped = state.get("num_skipped", 0)
        self.ranks.first(lambda: self._truncate_outputs(progress.step, state))

    def _truncate_outputs(self, step: int, state: Mapping[str, Any]) -> None:
        if not self.is_finished:
            (self.folder / "README.md").unlink(missing_ok=True)
            self._truncate_log(step, state.get("last_eval", step))

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

    def load_average(self, model: Model, count: int, eval_every: int) -> None:
        """Set the weights to their mean over the last evaluated checkpoints."""
        newest_checkpoint, *older = list_checkpoints(self.folder)
        evaluated = [newest_checkpoint, *(f for f in older if int(f.name.removeprefix("step-")) % eval_every == 0)]
        load_average(model, evaluated[:count])


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
