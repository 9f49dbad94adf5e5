"""The weights: NaN, zeros, outlying norms, tied embeddings, pickles beside them.

finite weights   no NaN, no infinity
zero weights     no matrix is all 0, no row constant
weight norms     |W| / √size, relative to the median of the same weight in all layers
tied weights     W_out is E
pickles          no pickle beside the weights: unpickling runs arbitrary code
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor, nn

from regard.check.check_result import CheckResult, join_names, names_result
from regard.hub.weights import MAGIC_BYTES, PICKLE_PATTERNS
from regard.loaded_model import LoadedModel
from regard.parts.heads import BiasedLMHead, MaskedLMHead

MAX_RATIO = 10.0  # to the median of the same weight in all layers, or its inverse
MIN_LAYERS = 3  # for a median


def finite_weights(model: nn.Module) -> CheckResult:
    tensors = {name: tensor for name, tensor in model.state_dict().items() if tensor.is_floating_point()}
    if not (nonfinite := [name for name, tensor in tensors.items() if not bool(tensor.isfinite().all())]):
        return CheckResult("finite weights", "ok", f"All {len(tensors)} tensors are finite", 0, 0)
    text, cause = "tensors contain NaN or infinity", "restore an earlier checkpoint; training went on after a NaN."
    return names_result("finite weights", "FAILS", nonfinite, f"of {len(tensors)} {text}", cause)


def zero_weights(model: nn.Module) -> list[CheckResult]:
    """Biases may be 0, as may a segment embedding of one row (RoBERTa's); matrices and the scale of a norm may not."""
    weights = dict(model.named_parameters())
    scales = {f"{name}.weight" for name, part in model.named_modules() if "Norm" in type(part).__name__}
    biases = {"head.bias", *(f"{n}.weight" for n, p in model.named_modules() if getattr(p, "num_embeddings", 0) == 1)}
    checked = {n: w for n, w in weights.items() if (w.dim() > 1 or n in scales) and n not in biases}
    if zeros := [name for name, weight in checked.items() if not bool(weight.any())]:
        cause = "such a module has no effect; it was never trained, never loaded, or pruned."
        return [names_result("zero weights", "FAILS", zeros, f"of {len(weights)} weights are all 0", cause)]
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


def median_ratios(values: Mapping[str, float]) -> dict[str, float]:
    """The ratio of each value to the median of the same weight in all layers: body.blocks.{}.mixer.inner.query ..."""
    groups, ratios = defaultdict(list), dict[str, float]()
    for name in values:
        groups[re.sub(r"\.\d+\.", ".{}.", name)].append(name)
    for names in groups.values():
        median = float(torch.tensor([values[name] for name in names]).median())
        if len(names) >= MIN_LAYERS and median > 0:
            ratios |= {name: values[name] / median for name in names}
    return ratios


def weight_norms(model: nn.Module) -> list[CheckResult]:
    rms_by_name = {name: rms(weight) for name, weight in model.named_parameters() if weight.dim() > 1}
    cause = "the layer was rescaled, replaced, or diverged"
    return [median_outliers("weight norms", "weights", median_ratios(rms_by_name), MAX_RATIO, cause)]


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
    message = f"{len(outliers)} of {len(ratios)} {noun} are outliers"
    return CheckResult(check, "note", message, ratios[worst], max_ratio, advice)


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


def find_pickles(folder: Path) -> list[CheckResult]:
    if not (files := [file.name for file in sorted(folder.iterdir()) if file.is_file() and is_pickle(file)]):
        return [CheckResult("pickles", "ok", "No pickle in the folder", 0, 0)]
    advice = f"Opening {files[0]} can run arbitrary code: delete it, the weights are in safetensors."
    return [CheckResult("pickles", "note", f"Pickle files: {len(files)}", len(files), 0, advice)]


def is_pickle(file: Path) -> bool:
    if any(file.match(pattern) for pattern in PICKLE_PATTERNS):
        return True
    with file.open("rb") as stream:
        header = stream.read(8)
    return any(kind == "pickle" and header.startswith(magic) for magic, kind in MAGIC_BYTES.items())
