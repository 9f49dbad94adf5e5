"""The numbers themselves: what is shared is one tensor, and none is broken, empty or far from its kind.

finite   no NaN, no infinity
zeros    no matrix is all 0, no row of it constant
norms    |W| / √size, beside the median of the same weight in all layers
tied     W_out is E
"""

from __future__ import annotations

import re
from collections import defaultdict
from typing import Any

import torch
from torch import Tensor, nn

from regard.check.check_result import Verdict, named
from regard.load import Loaded
from regard.parts.heads import MaskedOutput, Unembed

FAR = 10.0  # times the median of its kind, or that part of it
LAYERS = 3  # fewer have no median worth the name


def finite(model: nn.Module) -> Verdict:
    tensors = {name: tensor for name, tensor in model.state_dict().items() if tensor.is_floating_point()}
    broken = [name for name, tensor in tensors.items() if not bool(tensor.isfinite().all())]
    if not broken:
        return Verdict("finite", "ok", f"{len(tensors)} tensors", 0, 0)
    advice = f"{named(broken)}: take an earlier save; training went on after a number was no number."
    return Verdict(
        "finite", "FAILS", f"{len(broken)} of {len(tensors)} tensors hold NaN or infinity", len(broken), 0, advice
    )


def zeros(model: nn.Module) -> list[Verdict]:
    """Vectors may be zero where they are added, as the only segment of RoBERTa is; a norm that multiplies by them may
    not."""
    weights = dict(model.named_parameters())
    scales = {f"{name}.weight" for name, part in model.named_modules() if "Norm" in type(part).__name__}
    added = {"head.bias", *(f"{n}.weight" for n, p in model.named_modules() if getattr(p, "num_embeddings", 0) == 1)}
    empty = [n for n, w in weights.items() if (w.dim() > 1 or n in scales) and n not in added and not bool(w.any())]
    if empty:
        advice = f"{named(empty)}: such a part says nothing; it was never trained, never loaded, or pruned."
        return [Verdict("zeros", "FAILS", f"all 0: {len(empty)} of {len(weights)} weights", len(empty), 0, advice)]
    rows = {name: constant_rows(model, name, weight) for name, weight in weights.items()}
    constant = [f"{name} ({count})" for name, count in rows.items() if count]
    if constant:
        advice = f"{named(constant)}: rows of one number are those of tokens or units that were never used."
        return [Verdict("zeros", "note", f"{sum(rows.values())} constant rows", sum(rows.values()), 0, advice)]
    return [Verdict("zeros", "ok", f"none of {len(weights)} weights is empty, no row constant", 0, 0)]


def constant_rows(model: nn.Module, name: str, weight: Tensor) -> int:
    """The row of the padding is meant to be zero."""
    if weight.dim() < 2 or min((flat := weight.detach().flatten(1)).shape) < 2:
        return 0
    same = flat.amax(1) == flat.amin(1)
    pad = getattr(model.get_submodule(name.rpartition(".")[0]), "padding_idx", None)
    if pad is not None:
        same[pad] = False
    return int(same.sum())


def kinds(names: Any) -> dict[str, list[str]]:
    """The same weight in all layers: {"body.blocks.{}.mixer.inner.query.weight": [...]}."""
    found = defaultdict(list)
    for name in names:
        found[re.sub(r"\.\d+\.", ".{}.", name)].append(name)
    return found


def norms(model: nn.Module) -> list[Verdict]:
    size = {name: rms(weight) for name, weight in model.named_parameters() if weight.dim() > 1}
    ratios: dict[str, float] = {}
    for names in kinds(size).values():
        middle = float(torch.tensor([size[name] for name in names]).median())
        if len(names) >= LAYERS and middle > 0:
            ratios |= {name: size[name] / middle for name in names}
    return [far_off("norms", "weights", ratios, FAR, "a layer that was scaled, loaded from elsewhere, or ran away")]


def far_off(check: str, what: str, ratios: dict[str, float], far: float, why: str) -> Verdict:
    """Those that are far from the median of their kind."""
    off = [name for name, ratio in ratios.items() if not 1 / far <= ratio <= far]
    if not ratios:
        return Verdict(check, "ok", f"too few {what} of a kind to compare")
    if not off:
        most = max(max(ratio, 1 / ratio) for ratio in ratios.values())
        return Verdict(
            check, "ok", f"{what} within {most:.1f} times the median of their kind (at most {far:g})", most, far
        )
    worst = max(off, key=lambda name: max(ratios[name], 1 / max(ratios[name], 1e-30)))
    advice = f"{worst} is {ratios[worst]:.2g} times the median of its kind: {why}."
    return Verdict(check, "note", f"{len(off)} of {len(ratios)} {what} are far off", ratios[worst], far, advice)


def rms(weight: Tensor) -> float:
    return float(weight.detach().float().square().mean().sqrt())


def tied(loaded: Loaded) -> list[Verdict]:
    """Of models with an output layer over the vocabulary."""
    head, body = loaded.model.head, loaded.model.body
    if getattr(head, "weight", None) is None or not hasattr(body, "tokens"):
        return []
    wanted = isinstance(head, Unembed | MaskedOutput) or bool(getattr(body.config, "tied", False))
    one = head.weight is body.tokens.weight or head.weight.data_ptr() == body.tokens.weight.data_ptr()
    same = one or (head.weight.shape == body.tokens.weight.shape and torch.equal(head.weight, body.tokens.weight))
    if wanted and not one:
        told = "is a copy" if same else "differs"
        advice = (
            "The output layer should be the token embedding itself: tie them, or say in config.json that they are two."
        )
        return [Verdict("tied", "FAILS", f"the output layer {told}", 1, 0, advice)]
    if same and not wanted:
        advice = "Output layer and embedding are equal, but config.json says they are two: training will part them."
        return [Verdict("tied", "note", "equal, but not tied", 1, 0, advice)]
    return [
        Verdict(
            "tied", "ok", "output layer and embedding are one" if one else "they are two, as config.json says", 0, 0
        )
    ]
