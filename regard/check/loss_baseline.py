"""Loss baseline: the model's loss is at most that of a uniform prediction.

loss / tokens <= log V          a trained model with a misplaced weight may exceed it
"""

from __future__ import annotations

import math

import torch

from regard.check.check_result import CheckResult
from regard.check.probes import Probes
from regard.data.batches import to_device
from regard.load import LoadedModel
from regard.tasks.fill import Fill
from regard.tasks.translate import Translate
from regard.tasks.write import Write


@torch.no_grad()
def loss_baseline(loaded: LoadedModel, probes: Probes) -> list[CheckResult]:
    """For tasks whose targets are in the text itself; the targets of other tasks are made up."""
    if not isinstance(loaded.task, Write | Fill | Translate):
        return []
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        batch = probes.batch(loaded.task, probes.example_rows)
    loss = loaded.task.loss(loaded.model, to_device(batch, next(loaded.model.parameters()).device))
    mean_loss, uniform_loss = float(loss.total) / loss.count, math.log(loaded.model.body.config.vocab)
    message = f"Loss {mean_loss:.2f} per token, of a uniform prediction {uniform_loss:.2f}"
    if mean_loss <= uniform_loss:
        return [CheckResult("loss baseline", "ok", message, mean_loss, uniform_loss)]
    advice = "Give texts of the training domain (--text); if that changes nothing, weights are untrained or misplaced."
    return [CheckResult("loss baseline", "note", message, mean_loss, uniform_loss, advice)]
