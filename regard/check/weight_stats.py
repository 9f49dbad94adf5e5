"""Statistics of the weights: NaN, zeros, outlying norms, tied embeddings.

finite weights   no NaN, no infinity
zero weights     no matrix is all 0, no row constant
weight norms     |W| / √size, relative to the median of the same weight in all layers
tied weights     W_out is E
"""

from __future__ import annotations

import re
from collections import defaultdict
from typing import Any

import torch
from torch import Tensor, nn

from regard.check.check_result import CheckResult, count_result, join_names
from regard.load import LoadedModel
from regard.parts.heads import BiasedLMHead, MaskedLMHead

MAX_RATIO = 10.0  # to the median of the same weight in all layers, or its inverse
MIN_LAYERS = 3  # for a median


def finite_weights(model: nn.Module) -> CheckResult:
    tensors = {name: tensor for name, tensor in model.state_dict().items() if tensor.is_floating_point()}
    if not (nonfinite := [name for name, tensor in tensors.items() if not bool(tensor.isfinite().all())]):
        return CheckResult("finite weights", "ok", f"All {len(tensors)} tensors are finite", 0, 0)
    advice = f"{join_names(nonfinite)}: restore an earlier checkpoint; training went on after a NaN."
    return count_result(
        "finite weights", "FAILS", len(nonfinite), f"of {len(tensors)} tensors contain NaN or infinity", advice
    )


def zero_weights(model: nn.Module) -> list[CheckResult]:
    """Biases may be 0, as may a segment embedding of one row (RoBERTa's); matrices and the scale of a norm may not."""
    weights = dict(model.named_parameters())
    scales = {f"{name}.weight" for name, part in model.named_modules() if "Norm" in type(part).__name__}
    biases = {"head.bias", *(f"{n}.weight" for n, p in model.named_modules() if getattr(p, "num_embeddings", 0) == 1)}
    checked = {n: w for n, w in weights.items() if (w.dim() > 1 or n in scales) and n not in biases}
    if zeros := [name for name, weight in checked.items() if not bool(weight.any())]:
        advice = f"{join_names(zeros)}: such a module has no effect; it was never trained, never loaded, or pruned."
        return [count_result("zero weights", "FAILS", len(zeros), f"of {len(weights)} weights are all 0", advice)]
    rows = {name: constant_rows(model, name, weight) for name, weight in weights.items()}
    if total := sum(rows.values()):
        names = join_names([f"{name} ({count})" for name, count in rows.items() if count])
        advice = f"{names}: constant rows belong to tokens or units that training never used."
        return [CheckResult("zero weights", "note", f"{total} constant rows", total, 0, advice)]
    return [CheckResult("zero weights", "ok", f"None of {len(weights)} weights is all 0, no row is constant", 0, 0)]


def constant_rows(model: nn.Module, name: str, weight: Tensor) -> int:
    """How many; the row of the padding token is 0 by design and does not count."""
    if weight.dim() < 2 or min((flat := weight.detach().flatten(1)).shape) < 2:
        return 0
    is_constant = flat.amax(1) == flat.amin(1)
    pad = getattr(model.get_submodule(name.rpartition(".")[0]), "padding_idx", None)
    if pad is not None:
        is_constant[pad] = False
    return int(is_constant.sum())


def group_by_layer(names: Any) -> dict[str, list[str]]:
    """The same weight in all layers: {"body.blocks.{}.mixer.inner.query.weight": [...]}."""
    groups = defaultdict(list)
    for name in names:
        groups[re.sub(r"\.\d+\.", ".{}.", name)].append(name)
    return groups


def weight_norms(model: nn.Module) -> list[CheckResult]:
    rms_by_name = {name: rms(weight) for name, weight in model.named_parameters() if weight.dim() > 1}
    ratios: dict[str, float] = {}
    for names in group_by_layer(rms_by_name).values():
        median = float(torch.tensor([rms_by_name[name] for name in names]).median())
        if len(names) >= MIN_LAYERS and median > 0:
            ratios |= {name: rms_by_name[name] / median for name in names}
    return [
        median_outliers("weight norms", "weights", ratios, MAX_RATIO, "the layer was rescaled, replaced, or diverged")
    ]


def median_outliers(check: str, noun: str, ratios: dict[str, float], max_ratio: float, cause: str) -> CheckResult:
    """Names whose ratio to the median of their layers is above `max_ratio` or below its inverse."""
    outliers = [name for name, ratio in ratios.items() if not 1 / max_ratio <= ratio <= max_ratio]
    if not ratios:
        return CheckResult(check, "ok", f"Fewer than {MIN_LAYERS} layers to compare")
    if not outliers:
        largest = max(max(ratio, 1 / ratio) for ratio in ratios.values())
        message = f"All {noun} are within {largest:.1f} times their median over layers (limit {max_ratio:g})"
        return CheckResult(check, "ok", message, largest, max_ratio)
    worst = max(outliers, key=lambda name: max(ratios[name], 1 / max(ratios[name], 1e-30)))
    advice = f"{worst} is {ratios[worst]:.2g} times the median over layers: {cause}."
    return CheckResult(
        check, "note", f"{len(outliers)} of {len(ratios)} {noun} are outliers", ratios[worst], max_ratio, advice
    )


def rms(weight: Tensor) -> float:
    return float(weight.detach().float().square().mean().sqrt())


def tied_weights(loaded: LoadedModel) -> list[CheckResult]:
    """For models with an output layer over the vocabulary."""
    head, body = loaded.model.head, loaded.model.body
    if getattr(head, "weight", None) is None or not hasattr(body, "tokens"):
        return []
    should_tie = isinstance(head, BiasedLMHead | MaskedLMHead) or bool(getattr(body.config, "tie_embeddings", False))
    out, embedding = head.weight, body.tokens.weight
    is_shared = out is embedding or out.data_ptr() == embedding.data_ptr()
    is_equal = is_shared or (out.shape == embedding.shape and torch.equal(out, embedding))
    if should_tie and not is_shared:
        message = f"The output layer {'is a copy of' if is_equal else 'differs from'} the token embedding"
        advice = "config.json ties them: tie the weights, or set tie_word_embeddings to false in config.json."
        return [CheckResult("tied weights", "FAILS", message, 1, 0, advice)]
    if is_equal and not should_tie:
        advice = "config.json does not tie output layer and token embedding, so training will separate them."
        return [CheckResult("tied weights", "note", "Equal, but not tied", 1, 0, advice)]
    state = "one tensor" if is_shared else "two tensors, as in config.json"
    return [CheckResult("tied weights", "ok", f"Output layer and token embedding are {state}", 0, 0)]
