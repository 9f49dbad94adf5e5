"""Gradient flow: the loss reaches every module, and gradients neither vanish nor explode between layers.

|∂loss/∂W| / √size over all weights W of a module; a module is a layer, or a part outside of the layers
"""

from __future__ import annotations

import math
import re
from collections import defaultdict
from typing import Any

import torch

from regard.check.check_result import CheckResult, count_result, join_names
from regard.check.probes import Probes
from regard.check.weight_stats import MIN_LAYERS, group_by_layer, median_outliers
from regard.data.batches import to_device
from regard.load import LoadedModel

MAX_RATIO = 100.0  # to the median of all layers of a stack, or its inverse


def gradient_flow(loaded: LoadedModel, probes: Probes) -> list[CheckResult]:
    if probes.examples is None:
        return []
    rms_by_module = gradient_rms(loaded, probes)
    if nonfinite := [name for name, module_rms in rms_by_module.items() if not math.isfinite(module_rms)]:
        advice = f"{join_names(nonfinite)}: one training step would give NaN; lower the learning rate, or use float32."
        return [
            count_result("gradient flow", "FAILS", len(nonfinite), "modules have a NaN or infinite gradient", advice)
        ]
    if dead := [name for name, module_rms in rms_by_module.items() if module_rms == 0]:
        advice = f"{join_names(dead)}: the loss does not reach it, so it cannot train: find the zero or the detach."
        return [
            count_result(
                "gradient flow", "FAILS", len(dead), f"of {len(rms_by_module)} modules have no gradient", advice
            )
        ]
    ratios: dict[str, float] = {}
    for names in group_by_layer(f"{name}." for name in rms_by_module).values():
        layers = [name.removesuffix(".") for name in names]
        if len(layers) >= MIN_LAYERS:
            median = float(torch.tensor([rms_by_module[name] for name in layers]).median())
            ratios |= {name: rms_by_module[name] / median for name in layers}
    return [median_outliers("gradient flow", "layers", ratios, MAX_RATIO, "gradients vanish or explode")]


def gradient_rms(loaded: LoadedModel, probes: Probes) -> dict[str, float]:
    """Root mean square of the gradient, by module. The model stays unchanged."""
    model, task = loaded.model, loaded.task
    device = next(model.parameters()).device
    with torch.random.fork_rng(devices=[]), torch.enable_grad():
        torch.manual_seed(0)
        batch: Any = to_device(probes.batch(task, probes.example_rows), device)
        loss = task.loss(model, batch)
        weights = {name: weight for name, weight in model.named_parameters() if weight.requires_grad}
        grads = torch.autograd.grad(loss.total / max(1, loss.count), [*weights.values()], allow_unused=True)
    squares: dict[str, float] = defaultdict(float)
    counts: dict[str, int] = defaultdict(int)
    for (name, weight), grad in zip(weights.items(), grads, strict=True):
        squares[module_of(name)] += 0.0 if grad is None else float(grad.double().square().sum())
        counts[module_of(name)] += weight.numel()
    return {name: math.sqrt(total / counts[name]) for name, total in squares.items()}


def module_of(name: str) -> str:
    """body.blocks.3.mixer.inner.query.weight belongs to body.blocks.3, body.tokens.weight to body.tokens."""
    layer = re.match(r".*?\.\d+(?=\.)", name)
    return layer[0] if layer else name.rpartition(".")[0]
