"""The run folder: a Hugging Face folder at its root, and beside it what a resumed run needs.

config.json, tokenizer.json ...   written once
model.safetensors                 the best so far, replaced by one rename
task.json, train.json             what it is for; every setting as resolved
metrics.jsonl, loss.png           what happened
step-N/, LATEST                   the newest saves: weights, optimiser, averages, position, checksums
"""

from __future__ import annotations

import fcntl
import json
import math
import os
import shutil
import sys
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch import Tensor
from torch.nn import Parameter

from regard.atomic import fsync, json_bytes, path_in_errors, remove_partial_files, replace_file, write_json
from regard.data.batches import Position
from regard.hub import folder as hub
from regard.hub.files import read_plain, there
from regard.hub.folder import read_json, write_config, write_tensors, write_weights
from regard.parts.heads import Model
from regard.purpose import facts_of, write_task
from regard.tasks.task import Task
from regard.training.loop import Progress, Step
from regard.training.save import LATEST, damage, keep_newest, recover, save_folder, saves, set_aside
from regard.validate import matches_type

LOCK = ".lock"
SPARE = 2**20  # bytes that a save takes beside its numbers
DESCRIPTION = (  # what `describe` writes, the settings last
    *("config.json", "generation_config.json", "preprocessor_config.json", "processor_config.json"),
    *("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json", "chat_template.jinja"),
    *("vocab.txt", "vocab.json", "merges.txt", "tokenizer.model", "source.spm", "target.spm"),
    *("sounds.json", "molecules.json"),
    *("modules.json", "sentence_bert_config.json", "config_sentence_transformers.json", "1_Pooling"),
    *("2_Normalize", "task.json", "train.json"),
)

MADE = (  # while it goes; somebody who acts has a policy as well
    *("model.safetensors", "metrics.jsonl", "README.md", "loss.png", "alignment.png", "returns.png", "episodes.npz"),
)


class Run:
    def __init__(self, folder: Path):
        self.folder = folder

    @classmethod
    def new(cls, folder: Path, overwrite: bool = False) -> Run:
        """A folder of our own. One that is there is refused, unless it is a run and may be overwritten."""
        found = {file.name for file in folder.iterdir()} if folder.exists() else set()
        if found - {LOCK}:
            # One that was stopped before it had written them all has nothing to lose.
            names = {name.removeprefix(".") for name in found - {LOCK}}
            began = LOCK in found and "train.json" not in found and names <= {*DESCRIPTION}
            if not overwrite and not began:
                raise ValueError(
                    f"{folder} exists: go on with --resume, start again with --overwrite, or choose another --out"
                )
            if "train.json" not in found and not began:
                raise ValueError(f"{folder} is not a run of regard's, so it is not overwritten: choose another --out")
        folder.mkdir(parents=True, exist_ok=True)
        return cls(folder)

    def clear(self) -> None:
        """Nothing of an earlier run is left to be mixed up with this one."""
        keep_newest(self.folder, 0)
        remove_partial_files(self.folder, {*DESCRIPTION, *MADE, LATEST})
        for old in (*self.folder.glob("damaged-step-*"), self.folder / "policy"):
            shutil.rmtree(old, ignore_errors=True)
        for name in (*MADE, LATEST):
            (self.folder / name).unlink(missing_ok=True)

    @property
    def finished(self) -> bool:
        """The model card is written last, after the best weights were tested; the last step is still saved."""
        if not all((self.folder / name).is_file() for name in ("README.md", "model.safetensors", "train.json")):
            return False
        last = max((line["step"] for line in self.metrics()), default=0)
        newest = saves(self.folder)[:1]
        return any(folder.name == f"step-{last}" and not damage(folder) for folder in newest)

    def abandon(self) -> None:
        """A folder that was made for nothing goes again."""
        if [file.name for file in self.folder.iterdir()] == [LOCK]:
            shutil.rmtree(self.folder)

    def describe(self, model: Model, task: Task, settings: dict[str, Any]) -> None:
        """All that never changes in a run."""
        write_config(self.folder, model, facts_of(task))
        write_task(self.folder, task)
        write_json(self.folder / "train.json", settings)

    def log(self, **facts: Any) -> None:
        file = self.folder / "metrics.jsonl"
        with path_in_errors(file), file.open("a", encoding="utf-8") as stream:
            stream.write(json.dumps(facts, ensure_ascii=False) + "\n")

    def metrics(self, most: int = sys.maxsize) -> list[dict[str, Any]]:
        """All lines; of a folder of others `most` bytes of them."""
        file = self.folder / "metrics.jsonl"
        lines = read_plain(file, most).splitlines(keepends=True) if there(file) else []
        whole = [line for line in lines if line.endswith(b"\n")]  # a crash may cut the last one short
        return [facts_in(line, f"{file}:{number}") for number, line in enumerate(whole, 1)]

    def publish(self, model: Model) -> None:
        """These weights are the best so far."""
        replace_file(self.folder / "model.safetensors", lambda file: write_weights(file, model))

    def save(self, progress: Progress, facts: dict[str, Any], keep: int) -> Path:
        state = {"step": progress.step, "position": list(progress.position), "skipped": progress.skipped, **facts}
        tensors = tensors_of(progress)
        if (self.folder / "metrics.jsonl").exists():
            fsync(self.folder / "metrics.jsonl")  # what was logged before a save is there when the save is
        saved = save_folder(
            self.folder,
            f"step-{progress.step}",
            {
                "state.safetensors": lambda file: write_tensors(file, tensors),
                "state.json": lambda file: file.write_bytes(json_bytes(state)),
            },
            room=sum(tensor.nbytes for tensor in tensors.values()) + SPARE,
        )
        keep_newest(self.folder, keep)
        return saved

    def resume(self, progress: Progress) -> tuple[dict[str, Any], list[str]]:
        """Put the newest whole save into `progress`; its facts, and what was wrong with newer ones."""
        folder, facts, wrong = self.newest()
        self.take(progress, folder, facts)
        return facts, wrong

    def newest(self) -> tuple[Path, dict[str, Any], list[str]]:
        """The newest whole save, its facts, and what was wrong with newer ones, which are set aside."""
        wrong = []
        recover(self.folder)
        remove_partial_files(self.folder, {*DESCRIPTION, *MADE, LATEST})
        remove_partial_files(self.folder / "policy", {*DESCRIPTION, *MADE})
        for folder in saves(self.folder):
            if trouble := damage(folder):
                wrong.append(trouble)
                set_aside(folder)
                continue
            return folder, read_json(folder / "state.json", finite=False), wrong
        why = f" ({'; '.join(wrong)})" if wrong else ""
        raise ValueError(f"{self.folder} has no save to go on from{why}: start again with --overwrite")

    def take(self, progress: Progress, folder: Path, facts: dict[str, Any]) -> None:
        fill(progress, load_file(folder / "state.safetensors"))
        progress.step, progress.position = facts["step"], Position(*facts["position"])
        progress.skipped = facts.get("skipped", 0)
        if not self.finished:
            (self.folder / "README.md").unlink(missing_ok=True)
            self._forget_after(progress.step, facts.get("checked", progress.step))

    def _forget_after(self, step: int, checked: int) -> None:
        """What was logged after the save will be logged again: later steps, a validation that it does not hold, and
        all that `finish` does."""
        kept: list[dict[str, Any]] = []
        for line in self.metrics():
            again = "valid" in line and any("valid" in one and one["step"] == line["step"] for one in kept[-1:])
            if line["step"] <= (checked if "valid" in line else step) and "test" not in line and not again:
                kept.append(line)
        lines = [json.dumps(line, ensure_ascii=False) + "\n" for line in kept]
        replace_file(self.folder / "metrics.jsonl", "".join(lines).encode())

    def averaged(self, count: int, every: int) -> dict[str, Tensor]:
        """The mean of the weights at the last checks (Vaswani et al. 2017, section 6.1)."""
        newest, *older = saves(self.folder)
        at_checks = [newest, *(f for f in older if int(f.name.removeprefix("step-")) % every == 0)]
        chosen = [load_file(folder / "state.safetensors") for folder in at_checks[:count]]
        names = [name for name in chosen[0] if name.startswith("weights/")]
        return {name.removeprefix("weights/"): torch.stack([c[name] for c in chosen]).mean(0) for name in names}


def tensors_of(progress: Progress) -> dict[str, Tensor]:
    """Weights, what the optimisers remember of each, and the moving average, all under the weight's name: as they were
    after the last whole step, even in the middle of the next or of validation."""
    tensors: dict[str, Tensor] = {}
    weights, average = "weights", "average"
    if progress.average is not None and progress.average.swapped:
        weights, average = average, weights
    for i, (name, weight) in enumerate(progress.model.named_parameters()):
        tensors[f"{weights}/{name}"] = weight.detach()
        for optimizer in progress.optimizers:
            for moment, value in optimizer.state.get(weight, {}).items():
                tensors[f"{moment}/{name}"] = value
        if progress.average is not None:
            tensors[f"{average}/{name}"] = progress.average.means[i]
    before = dict(zip((name for name, _ in progress.model.named_buffers()), progress.buffers or (), strict=False))
    for name, buffer in buffers_of(progress.model).items():
        tensors[f"buffers/{name}"] = before.get(name, buffer)
    return {name: tensor.cpu().contiguous() for name, tensor in tensors.items()}


@torch.no_grad()
def fill(progress: Progress, tensors: dict[str, Tensor]) -> None:
    for i, (name, weight) in enumerate(progress.model.named_parameters()):
        weight.copy_(tensors[f"weights/{name}"])
        for optimizer in progress.optimizers:
            if any(weight is mine for group in optimizer.param_groups for mine in group["params"]):
                kept = [key.split("/")[0] for key in tensors if key.endswith(f"/{name}")]
                optimizer.state[weight] = {
                    moment: tensors[f"{moment}/{name}"].to(weight.device)
                    for moment in kept
                    if moment not in ("weights", "average")
                }
        if progress.average is not None:
            progress.average.means[i].copy_(tensors[f"average/{name}"])
    for name, buffer in buffers_of(progress.model).items():
        buffer.copy_(tensors[f"buffers/{name}"])


def buffers_of(model: Model) -> dict[str, Tensor]:
    """What batch norms count."""
    return {name: tensor for name, tensor in hub.tensors_of(model).items() if not isinstance(tensor, Parameter)}


class Lock:
    """One process trains in a folder at a time. The lock ends with the process, however that ends."""

    def __init__(self, folder: Path):
        folder.mkdir(parents=True, exist_ok=True)
        self.handle = (folder / LOCK).open("a+")
        try:
            fcntl.flock(self.handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            self.handle.seek(0)
            owner = self.handle.read().strip() or "another one"
            self.handle.close()
            raise ValueError(f"{folder} is in use by process {owner}: wait for it, or choose another --out") from None
        self.handle.truncate(0)
        self.handle.write(str(os.getpid()))
        self.handle.flush()

    def release(self) -> None:
        self.handle.close()


NUMBERS = ("step", "epoch", "loss", "rate", "norm", "count", "seconds")  # in a line of metrics.jsonl
DRAWN = ("loss", "rate", "norm")  # of every step that was taken
OBJECTS = ("norms", "valid", "test")  # each holds numbers by name


def facts_in(line: bytes, where: str) -> dict[str, Any]:
    try:
        told = json.loads(line)
        numbers = [told[name] for name in NUMBERS if name in told]
        numbers += [value for name in OBJECTS if name in told for value in told[name].values()]
        whole = "step" in told and ("loss" not in told or {*DRAWN} <= {*told})
    except (ValueError, TypeError, AttributeError, RecursionError):
        whole = False
    if not whole or not all(matches_type(number, float) for number in numbers):
        raise ValueError(f"{where}: this is not what a run writes: take the line out")
    return dict(told)


def as_line(step: Step) -> dict[str, Any]:
    """A step as metrics.jsonl keeps it. One that was passed over has no loss, and says so."""
    if math.isnan(step.loss):
        return {"step": step.number, "epoch": step.position.epoch, "skipped": True, "seconds": round(step.seconds, 4)}
    line = {
        "step": step.number,
        "epoch": step.position.epoch,
        "loss": round(step.loss, 6),
        "rate": step.rate,
        "norm": round(step.norm, 6),
        "count": step.count,
        "seconds": round(step.seconds, 4),
    }
    norms = {part: float(f"{norm:.5g}") for part, norm in step.norms.items()}  # some are very small
    return line | {"norms": norms} if norms else line
