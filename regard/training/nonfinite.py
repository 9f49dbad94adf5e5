"""The cause of a non-finite step: which examples of its batch have a loss that is NaN or infinite, by file and line.

Each example runs alone, in evaluation mode. If all of their losses are finite, the update itself diverged, and the
message names the whole batch.
"""

from __future__ import annotations

import json
import math
from pathlib import Path

import torch

from regard.atomic import replace_file
from regard.data.batches import Examples, Ints, to_device
from regard.data.documents import RowSet
from regard.parts.heads import Model
from regard.tasks.task import Task
from regard.training.checkpoint import list_checkpoints
from regard.training.loop import NonFiniteError

BATCH_FILE = "bad-batch.jsonl"
MAX_NAMED = 3  # examples that the message names


@torch.no_grad()
def nonfinite_rows(model: Model, task: Task, examples: Examples, rows: Ints) -> Ints:
    """Those of the rows whose own loss is NaN or infinite."""
    device = next(model.parameters()).device
    model.eval()
    losses = [task.loss(model, to_device(task.collate(examples, rows[i : i + 1]), device)) for i in range(len(rows))]
    return rows[[not math.isfinite(loss.total.item()) for loss in losses]]


def explain_nonfinite(
    error: NonFiniteError, model: Model, task: Task, examples: Examples, data: RowSet, folder: Path
) -> FloatingPointError:
    """Write the batch to the run folder, and return the error that ends the run."""
    bad_rows = nonfinite_rows(model, task, examples, error.rows)
    batch = task.describe_examples(data, examples, error.rows)
    for example, row in zip(batch, error.rows, strict=True):
        example["alone"] = "nonfinite" if row in bad_rows else "finite"
    lines = "".join(json.dumps({"step": error.step, **example}, ensure_ascii=False) + "\n" for example in batch)
    replace_file(folder / BATCH_FILE, lines.encode())
    suspects = [example for example in batch if example["alone"] == "nonfinite"] or batch
    names = ", ".join(f"{example['file']}:{example['line']}" for example in suspects[:MAX_NAMED])
    more = f" and {len(suspects) - MAX_NAMED} more" if len(suspects) > MAX_NAMED else ""
    cause = "non-finite even alone" if len(bad_rows) else "finite alone: lower --lr, or raise --warmup-steps"
    last = next((str(checkpoint) for checkpoint in list_checkpoints(folder)), "none yet")
    return FloatingPointError(
        f"{error}; the weights are those before this step. Its examples: {names}{more}, {cause} (all in "
        f"{folder / BATCH_FILE}). Last checkpoint: {last}. --max-nonfinite 3 skips up to 3 such steps"
    )
