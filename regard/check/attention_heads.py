"""Attention heads: dead, uniform and saturated ones.

attention heads     outputs change when a head's attention weights are set to 0                  Michel et al. 2019
attention entropy   - Σ_s w_s log w_s, from 0 (one token) to log n (uniform over n tokens)       Voita et al. 2019
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from regard.check.check_result import CheckResult, count_result, join_names, names_result
from regard.check.compare import model_outputs, relative_difference
from regard.check.probes import Probes
from regard.loaded_model import LoadedModel
from regard.look import ablate_heads, look
from regard.tasks.task import Batch

DEAD_TOLERANCE = 1e-7  # relative difference of the outputs without a head, up to which it counts as dead
UNIFORM_TOLERANCE = 1e-6  # relative deviation from 1/n, up to which attention counts as uniform
SATURATED_ENTROPY = 0.01  # share of log n, up to which attention counts as saturated
PROBE_ROWS = 3


class LayerAttention(NamedTuple):
    name: str  # of the traced weights
    weights: Tensor  # (B,H,T,S)
    visible: Tensor  # broadcasts to (B,1,T,1): number of unmasked keys

    def head(self, number: int) -> str:
        return f"{self.name.removesuffix('.weights').removesuffix('.inner')} head {number}"


def attention_heads(loaded: LoadedModel, probes: Probes) -> list[CheckResult]:
    batch = probes.forward.batch(*range(min(PROBE_ROWS, len(probes.forward))))
    layers = trace_attention(loaded, batch)
    if not layers:
        return []
    count = sum(layer.weights.size(1) for layer in layers)
    ablation = CheckResult("attention heads", "ok", f"Each of {count} heads changes the outputs", 0, 0)
    if dead_names := [layer.head(i) for layer in layers for i in dead_heads(loaded, layer, batch)]:
        advice = f"Without {join_names(dead_names)} the outputs stay the same: prune it, or load or train its weights."
        ablation = count_result("attention heads", "FAILS", len(dead_names), f"of {count} heads are dead", advice)
    return [ablation, attention_entropy(layers, count)]


def trace_attention(loaded: LoadedModel, batch: Batch) -> list[LayerAttention]:
    """The weights of every attention layer."""
    with look(loaded.model) as trace:
        model_outputs(loaded, batch)
    layers = []
    for name, weights in trace.items():
        if name.endswith(".weights") and weights.dim() == 4:
            mask = trace.get(f"{name.removesuffix('weights')}mask", weights > 0)
            layers.append(LayerAttention(name, weights, mask.sum(-1, keepdim=True)))
    return layers


def dead_heads(loaded: LoadedModel, layer: LayerAttention, batch: Batch) -> list[int]:
    """Heads whose ablation leaves the outputs as they are. The reference replaces the weights by a clone, because a
    layer with a hook computes attention by its unfused path."""
    with look(loaded.model, change={layer.name: torch.clone}):
        reference = model_outputs(loaded, batch)
    dead = []
    for head in range(layer.weights.size(1)):
        with look(loaded.model, change={layer.name: ablate_heads(head)}):
            difference = relative_difference(reference, model_outputs(loaded, batch))
        dead += [head] if difference <= DEAD_TOLERANCE else []
    return dead


def attention_entropy(layers: list[LayerAttention], count: int) -> CheckResult:
    uniform_heads: list[str] = []
    saturated_heads: list[str] = []
    for layer in layers:
        deviation, entropy = uniformity_and_entropy(layer)
        uniform_heads += [layer.head(i) for i in (deviation <= UNIFORM_TOLERANCE).nonzero()[:, 0].tolist()]
        saturated_heads += [layer.head(i) for i in (entropy <= SATURATED_ENTROPY).nonzero()[:, 0].tolist()]
    name = "attention entropy"
    if uniform_heads:
        cause = "every key gets the same weight, as if queries or keys were 0; load them."
        return names_result(name, "FAILS", uniform_heads, f"of {count} heads attend uniformly", cause)
    if saturated_heads:
        cause = "the softmax is saturated; common, but no gradient passes through it."
        return names_result(name, "note", saturated_heads, f"of {count} heads attend to one token only", cause)
    return CheckResult(name, "ok", "No head is uniform, none is saturated", 0, 0)


def uniformity_and_entropy(layer: LayerAttention) -> tuple[Tensor, Tensor]:
    """(H,) each: the largest relative deviation of a weight from 1/n, and the largest entropy as a share of log n.
    Queries with one unmasked key do not count."""
    weights, visible = layer.weights.double(), layer.visible
    has_choice = (visible > 1).expand(*weights.shape[:-1], 1).squeeze(-1)  # (B,H,T)
    deviation = ((weights * visible - 1).abs() * (weights > 0)).amax(-1)
    entropy = -torch.xlogy(weights, weights).sum(-1, keepdim=True) / visible.clamp(min=2).log()
    unmeasured = ~has_choice.any(2).any(0)
    maxima = ((part * has_choice).amax((0, 2)) for part in (deviation, entropy.squeeze(-1)))
    return tuple(part.masked_fill(unmeasured, torch.inf).cpu() for part in maxima)  # type: ignore[return-value]
