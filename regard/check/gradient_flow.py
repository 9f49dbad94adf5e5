"""Gradients: whether the loss reaches every part of a model, and none of them far more than the others.

|∂loss/∂W| of all weights of a part, divided by √size; a part is a layer, or what stands outside of the layers
"""

from __future__ import annotations

import math
import re
from collections import defaultdict
from typing import Any

import torch

from regard.check.check_result import Verdict, named
from regard.check.probes import Sample
from regard.check.weight_stats import LAYERS, far_off, kinds
from regard.data.batches import to_device
from regard.load import Loaded

FAR = 100.0  # times the median of all layers of a stack, or that part of it


def gradients(loaded: Loaded, sample: Sample) -> list[Verdict]:
    sizes = sizes_of(loaded, sample)
    broken = [name for name, size in sizes.items() if not math.isfinite(size)]
    if broken:
        advice = (
            f"{named(broken)}: the first step of training would break the model; use a lower rate, a clip, or float32."
        )
        return [Verdict("gradients", "FAILS", f"{len(broken)} parts have no finite gradient", len(broken), 0, advice)]
    dead = [name for name, size in sizes.items() if size == 0]
    if dead:
        advice = f"{named(dead)}: the loss does not reach it, so it cannot learn: something between is 0, or cut off."
        return [Verdict("gradients", "FAILS", f"{len(dead)} of {len(sizes)} parts have none", len(dead), 0, advice)]
    ratios: dict[str, float] = {}
    for names in kinds(f"{name}." for name in sizes).values():
        some = [name.removesuffix(".") for name in names]
        if len(some) >= LAYERS:
            middle = float(torch.tensor([sizes[name] for name in some]).median())
            ratios |= {name: sizes[name] / middle for name in some}
    return [far_off("gradients", "layers", ratios, FAR, "gradients vanish or explode on the way")]


def sizes_of(loaded: Loaded, sample: Sample) -> dict[str, float]:
    """By part. The model is left as it was."""
    model, task = loaded.model, loaded.task
    device = next(model.parameters()).device
    with torch.random.fork_rng(devices=[]), torch.enable_grad():
        torch.manual_seed(0)
        batch: Any = to_device(sample.batch(task, sample.chosen), device)
        loss = task.loss(model, batch)
        weights = {name: weight for name, weight in model.named_parameters() if weight.requires_grad}
        found = torch.autograd.grad(loss.total / max(1, loss.count), [*weights.values()], allow_unused=True)
    squares: dict[str, float] = defaultdict(float)
    counts: dict[str, int] = defaultdict(int)
    for (name, weight), grad in zip(weights.items(), found, strict=True):
        squares[part_of(name)] += 0.0 if grad is None else float(grad.double().square().sum())
        counts[part_of(name)] += weight.numel()
    return {name: math.sqrt(total / counts[name]) for name, total in squares.items()}


def part_of(name: str) -> str:
    """body.blocks.3.mixer.inner.query.weight is of body.blocks.3, body.tokens.weight of body.tokens."""
    layer = re.match(r".*?\.\d+(?=\.)", name)
    return layer[0] if layer else name.rpartition(".")[0]
