"""Whose fault it was: the examples of a step whose loss or gradient is no number, by file and line.

Each is tried alone, as validation would see it. Those whose own loss is no number are to blame; if there is none, the
step itself was too large, and the whole batch is told.
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import torch

from regard.atomic import replace_file
from regard.data.batches import Examples, Ints, to_device
from regard.parts.heads import Model
from regard.tasks.task import Task
from regard.training.checkpoint import list_checkpoints
from regard.training.loop import NonFiniteError

FILE = "bad-batch.jsonl"
SHOWN = 3  # examples that the message names


@torch.no_grad()
def to_blame(model: Model, task: Task, examples: Examples, rows: Ints) -> Ints:
    """Those of the rows whose loss alone is no number."""
    device = next(model.parameters()).device
    model.eval()
    alone = [task.loss(model, to_device(task.batch(examples, rows[i : i + 1]), device)).total for i in range(len(rows))]
    return rows[[not math.isfinite(loss.item()) for loss in alone]]


def blamed(
    bad: NonFiniteError, model: Model, task: Task, examples: Examples, data: Any, folder: Path
) -> FloatingPointError:
    """Write the batch into the run folder, and make the message that ends the run."""
    guilty = to_blame(model, task, examples, bad.rows)
    told = task.told(data, examples, bad.rows)
    for one, row in zip(told, bad.rows, strict=True):
        one["alone"] = "no number" if row in guilty else "fine"
    lines = "".join(json.dumps({"step": bad.step, **one}, ensure_ascii=False) + "\n" for one in told)
    replace_file(folder / FILE, lines.encode())
    chosen = [one for one in told if one["alone"] != "fine"] or told
    names = ", ".join(f"{one['file']}:{one['line']}" for one in chosen[:SHOWN])
    more = f" and {len(chosen) - SHOWN} more" if len(chosen) > SHOWN else ""
    why = "no number even alone" if len(guilty) else "fine alone, so a lower --lr or a longer --warmup-steps may help"
    kept = next((str(save) for save in list_checkpoints(folder)), "none yet")
    return FloatingPointError(
        f"{bad}; the weights are as before this step. It was to learn from {names}{more}, {why} (all in "
        f"{folder / FILE}). The last save: {kept}. --max-nonfinite 3 would pass over up to 3 such steps"
    )
