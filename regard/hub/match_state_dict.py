"""Match the tensors of a file to a model, and refuse each that does not fit by its name before a value is read.

A weight accepts the dtypes that it can represent without loss, and so write back: fp16 and bf16 into fp32, not fp64.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

import torch
from torch import Tensor, nn

from regard.hub.family_map import FamilyMap, IdentityMap, as_rule, name_pattern
from regard.hub.weights import TensorInfo, read_tensors
from regard.parts.heads import Model

LOSSLESS_DTYPES = {  # dtype of a weight -> dtypes that it can be read from
    torch.float32: (torch.float32, torch.float16, torch.bfloat16),
    torch.float64: (torch.float64, torch.float32, torch.float16, torch.bfloat16),
}


def unique_state_dict(model: nn.Module) -> dict[str, Tensor]:
    """The state dict by name, with tied weights once: parameters, then persistent buffers."""
    persistent = {*model.state_dict()} - {name for name, _ in model.named_parameters(remove_duplicate=False)}
    buffers = {name: buffer for name, buffer in model.named_buffers() if name in persistent}
    return {**dict(model.named_parameters()), **buffers}


def match_state_dict(
    stored: Mapping[str, TensorInfo], family_map: FamilyMap | IdentityMap, model: Model, only: str
) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """The weights of a model by our names, and the stored tensors that it does not use, by theirs."""
    expected = {name: tensor for name, tensor in unique_state_dict(model).items() if name.startswith(only)}
    preserved = []
    if isinstance(family_map, FamilyMap):
        canonical_names(family_map, stored)
        preserved = [name for name in stored if family_map.preserved and family_map.is_preserved(name)]
    meta = {
        name: info.meta_tensor()
        for name, info in stored.items()
        if name not in preserved and name not in family_map.computed
    }
    check_tensors(expected, rename_tensors(meta, family_map, model, only), family_map, stored)
    if isinstance(family_map, FamilyMap):
        check_round_trip(family_map, meta)
    computed = {name: model.get_buffer(buffer).cpu() for name, buffer in family_map.computed.items() if name in stored}
    for name, table in computed.items():
        check_computed(name, stored[name].meta_tensor(), table)
    tensors = read_tensors(stored)
    for name, table in computed.items():
        check_computed(name, tensors[name], table)
    weights = rename_tensors({name: tensors[name] for name in meta}, family_map, model, only)
    return weights, {name: tensors[name] for name in (*computed, *preserved)}


def check_round_trip(family_map: FamilyMap, meta: Mapping[str, Tensor]) -> None:
    """Refuse a tensor that fits by chance, but would be saved in another shape: a batch of one without the batch."""
    for name, tensor in meta.items():
        if match := family_map.match_rule(name):
            saved = match[0].join(list(match[0].split(tensor)))
            if saved.shape != tensor.shape:
                raise ValueError(f"{name} has shape {tuple(tensor.shape)}, and should have {tuple(saved.shape)}")


def canonical_names(family_map: FamilyMap, names: Iterable[str]) -> dict[str, str]:
    """Canonical name -> the name in the file; ValueError if two tensors have the same."""
    canonical = dict[str, str]()
    for name in names:
        first = canonical.setdefault(family_map.canonical_name(name), name)
        if first != name:
            raise ValueError(f"{name} occurs twice, the second time as {first}")
    return canonical


def rename_tensors(
    tensors: dict[str, Tensor], family_map: FamilyMap | IdentityMap, model: Model, only: str
) -> dict[str, Tensor]:
    """Stored tensors under our names. A tied weight may be stored under any or all of its names."""
    stored_ties = {}
    if isinstance(family_map, FamilyMap):
        names = canonical_names(family_map, tensors)
        stored_ties = {
            names[name]: names[first] for name, first in family_map.tied.items() if name in names and first in names
        }
    weights = family_map.tensors_from_hf(merge_tied(tensors, stored_ties))
    first_names = {id(weight): name for name, weight in model.named_parameters()}
    parameters = model.named_parameters(remove_duplicate=False)
    model_ties = {name: first_names[id(weight)] for name, weight in parameters if first_names[id(weight)] != name}
    weights = {name: tensor for name, tensor in weights.items() if name.startswith(only)}
    return merge_tied(weights, model_ties, lambda name: stored_name(name, family_map, tensors))


def merge_tied(
    tensors: dict[str, Tensor], ties: Mapping[str, str], show: Callable[[str], str] = str
) -> dict[str, Tensor]:
    """Drop each repeated tensor, or give it the first's name; ValueError if the two differ."""
    merged = dict(tensors)
    for name, first_name in ties.items():
        if name in merged:
            tensor = merged.pop(name)
            first = merged.setdefault(first_name, tensor)
            alike = tensor.shape == first.shape and tensor.dtype == first.dtype
            if not alike or not (tensor.is_meta or torch.equal(tensor, first)):
                raise ValueError(
                    f"{show(name)} and {show(first_name)} are one weight in this model, but differ in the file"
                )
    return merged


def check_tensors(
    expected: Mapping[str, Tensor],
    weights: Mapping[str, Tensor],
    family_map: FamilyMap | IdentityMap,
    stored: Iterable[str],
) -> None:
    """Refuse missing and unexpected weights, and those of another shape or a dtype that cannot be read without loss."""

    def both_names(name: str) -> str:
        hf_name = stored_name(name, family_map, stored)
        return name if hf_name == name else f"{hf_name}: {name}"

    if missing := [name for name in expected if name not in weights]:
        names = [f"{name} ({stored_name(name, family_map, stored)})" for name in missing[:5]]
        raise ValueError(f"it lacks {len(missing)} weights of this model: {', '.join(names)}")
    for name, tensor in weights.items():
        if name not in expected:
            raise ValueError(f"{both_names(name)} has no place in a model of these sizes")
        shape, dtype = expected[name].shape, expected[name].dtype
        if tensor.shape != shape:
            asks = "config.json asks" if name.startswith("body.") else "task.json or config.json asks"
            raise ValueError(f"{both_names(name)} has shape {tuple(tensor.shape)}, but {asks} for {tuple(shape)}")
        if tensor.dtype not in LOSSLESS_DTYPES.get(dtype, (dtype,)):
            dtypes = " or ".join(str(dtype) for dtype in LOSSLESS_DTYPES.get(dtype, (dtype,)))
            raise ValueError(
                f"{both_names(name)} is stored as {tensor.dtype}, and only {dtypes} can be read without loss"
            )


def check_computed(name: str, stored: Tensor, table: Tensor) -> None:
    """Refuse a stored table that differs from the one we compute, within the precision of its dtype."""
    equal = stored.shape == table.shape and stored.dtype in LOSSLESS_DTYPES[torch.float32]
    if equal and not stored.is_meta:
        equal = torch.allclose(stored.float(), table, atol=max(1e-5, torch.finfo(stored.dtype).eps))
    if not equal:
        shape = f"{tuple(stored.shape)} of {stored.dtype}"
        raise ValueError(f"{name} {shape} is not the table that config.json asks for {tuple(table.shape)}")


def stored_name(name: str, family_map: FamilyMap | IdentityMap, stored: Iterable[str]) -> str:
    """The name of a weight of ours in a file, or the one that it would have."""
    if isinstance(family_map, IdentityMap):
        return name
    for hf_name in stored:
        match = family_map.match_rule(hf_name)
        if match and name in [part.format(*match[1]) for part in match[0].names]:
            return hf_name
    for hf_name, rule in {**family_map.weights, **family_map.head_weights}.items():
        matches = [name_pattern(part).fullmatch(name) for part in as_rule(rule).names]
        if layers := next(filter(None, matches), None):
            prefix = family_map.prefix if family_map.head and hf_name not in family_map.head_weights else ""
            return prefix + hf_name.format(*layers.groups())
    return name.removeprefix("head.") if name.removeprefix("head.") in stored else name
