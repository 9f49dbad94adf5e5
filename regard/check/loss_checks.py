"""Loss checks: the loss reaches every module, gradients neither vanish nor explode, and the loss is not too high.

gradient flow   |∂loss/∂W| / √size over all weights W of a module; a module is a layer, or a part outside of the layers
loss baseline   loss / tokens <= log V, that of a uniform prediction; a misplaced weight may exceed it
"""

from __future__ import annotations

import math
import re
from collections import defaultdict

import torch

from regard.check.check_result import CheckResult, names_result
from regard.check.compare import on_device
from regard.check.probes import Probes
from regard.check.weight_stats import median_outliers, median_ratios
from regard.loaded_model import LoadedModel
from regard.modalities.protocols import Target

MAX_RATIO = 100.0  # to the median of all layers of a stack, or its inverse


def gradient_flow(loaded: LoadedModel, probes: Probes) -> list[CheckResult]:
    if probes.examples is None:
        return []
    rms_by_module = gradient_rms(loaded, probes)
    name, count = "gradient flow", len(rms_by_module)
    if nonfinite := [module for module, rms in rms_by_module.items() if not math.isfinite(rms)]:
        cause = "one training step would give NaN; lower the learning rate, or use float32."
        return [names_result(name, "FAILS", nonfinite, "modules have a NaN or infinite gradient", cause)]
    if dead := [module for module, rms in rms_by_module.items() if rms == 0]:
        cause = "the loss does not reach it, so it cannot train: find the zero or the detach."
        return [names_result(name, "FAILS", dead, f"of {count} modules have no gradient", cause)]
    ratios = median_ratios({f"{module}.": rms for module, rms in rms_by_module.items()})
    ratios = {module.removesuffix("."): ratio for module, ratio in ratios.items()}
    return [median_outliers(name, "layers", ratios, MAX_RATIO, "gradients vanish or explode")]


def gradient_rms(loaded: LoadedModel, probes: Probes) -> dict[str, float]:
    """Root mean square of the gradient, by module. The model stays unchanged."""
    model, task = loaded.model, loaded.task
    with torch.enable_grad():
        loss = task.loss(model, on_device(model, probes.loss_batch(task)))
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


@torch.no_grad()
def loss_baseline(loaded: LoadedModel, probes: Probes) -> list[CheckResult]:
    """For tasks that predict tokens of the probes themselves; the targets of other tasks are made up."""
    task, model = loaded.task, loaded.model
    if not (task.generates or task.target is Target.MASKED):
        return []
    loss = task.loss(model, on_device(model, probes.loss_batch(task)))
    mean_loss, uniform_loss = float(loss.total) / loss.count, math.log(model.body.config.vocab)
    message = f"Loss {mean_loss:.2f} per token, of a uniform prediction {uniform_loss:.2f}"
    if mean_loss <= uniform_loss:
        return [CheckResult("loss baseline", "ok", message, mean_loss, uniform_loss)]
    advice = "Give texts of the training domain (--text); if that changes nothing, weights are untrained or misplaced."
    return [CheckResult("loss baseline", "note", message, mean_loss, uniform_loss, advice)]
