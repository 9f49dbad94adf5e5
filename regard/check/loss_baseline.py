"""Guessing: whether a model knows more of a text than one that finds all tokens alike.

loss / tokens <= log V          a trained model with a weight in the wrong place may do worse than that
"""

from __future__ import annotations

import math

import torch

from regard.check.check_result import Verdict
from regard.check.probes import Sample
from regard.data.batches import to_device
from regard.load import Loaded
from regard.tasks.fill import Fill
from regard.tasks.translate import Translate
from regard.tasks.write import Write


@torch.no_grad()
def guess(loaded: Loaded, sample: Sample) -> list[Verdict]:
    """Of tasks whose right answers are in the text itself; others were made up."""
    if not isinstance(loaded.task, Write | Fill | Translate):
        return []
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        batch = sample.batch(loaded.task, sample.chosen)
    loss = loaded.task.loss(loaded.model, to_device(batch, next(loaded.model.parameters()).device))
    each, chance = float(loss.total) / loss.count, math.log(loaded.model.body.config.vocab)
    says = f"a loss of {each:.2f} for each token, a guess has {chance:.2f}"
    if each <= chance:
        return [Verdict("guess", "ok", says, each, chance)]
    advice = "Give texts of its own kind (--text); if it stays worse than a guess, weights are untrained or misplaced."
    return [Verdict("guess", "note", says, each, chance, advice)]
