"""Every tensor of a file finds its place in a model, or is refused by its name before a number is read.

A weight takes in only types whose every number it can hold, and so give back: fp16 and bf16 in fp32, but not fp64.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

import torch
from torch import Tensor, nn

from regard.hub.family_map import FamilyMap, IdentityMap, pattern, rule_of
from regard.hub.weights import Stored, read_tensors
from regard.parts.heads import Model

HELD = {
    torch.float32: (torch.float32, torch.float16, torch.bfloat16),
    torch.float64: (torch.float64, torch.float32, torch.float16, torch.bfloat16),
}


def unique_state_dict(model: nn.Module) -> dict[str, Tensor]:
    """Weights, each once even where it is shared, and what batch norms count."""
    kept = {*model.state_dict()} - {name for name, _ in model.named_parameters(remove_duplicate=False)}
    buffers = {name: buffer for name, buffer in model.named_buffers() if name in kept}
    return {**dict(model.named_parameters()), **buffers}


def placed(
    stored: Mapping[str, Stored], names: FamilyMap | IdentityMap, model: Model, only: str
) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """The weights of a model by our names, and those beside them that stay as they are, by theirs."""
    wanted = {name: tensor for name, tensor in unique_state_dict(model).items() if name.startswith(only)}
    kept = []
    if isinstance(names, FamilyMap):
        bare_names(names, stored)
        kept = [name for name in stored if names.kept and names.keeps(name)]
    blank = {name: one.blank() for name, one in stored.items() if name not in kept and name not in names.computed}
    must_match(wanted, sorted_out(blank, names, model, only), names, stored)
    if isinstance(names, FamilyMap):
        must_go_back(names, blank)
    computed = {name: model.get_buffer(buffer).cpu() for name, buffer in names.computed.items() if name in stored}
    for name, table in computed.items():
        must_be_computed(name, stored[name].blank(), table)
    tensors = read_tensors(stored)
    for name, table in computed.items():
        must_be_computed(name, tensors[name], table)
    ours = sorted_out({name: tensors[name] for name in blank}, names, model, only)
    return ours, {name: tensors[name] for name in (*computed, *kept)}


def must_go_back(names: FamilyMap, blank: Mapping[str, Tensor]) -> None:
    """Refuse what fits by chance, but would not be written as it was read: a batch of one without the batch."""
    for name, tensor in blank.items():
        if found := names.found(name):
            back = found[0].join(list(found[0].split(tensor)))
            if back.shape != tensor.shape:
                raise ValueError(f"{name} has shape {tuple(tensor.shape)}, and should have {tuple(back.shape)}")


def bare_names(names: FamilyMap, theirs: Iterable[str]) -> dict[str, str]:
    """By what they are called without their prefix and in today's spelling."""
    bare = dict[str, str]()
    for name in theirs:
        other = bare.setdefault(names.respelled(name.removeprefix(names.prefix)), name)
        if other != name:
            raise ValueError(f"{name} is there twice, the second time as {other}")
    return bare


def sorted_out(theirs: dict[str, Tensor], names: FamilyMap | IdentityMap, model: Model, only: str) -> dict[str, Tensor]:
    """Their tensors under our names. One that is used in two places may be stored twice, or in either of them."""
    twins = {}
    if isinstance(names, FamilyMap):
        bare = bare_names(names, theirs)
        twins = {bare[one]: bare[same] for one, same in names.twins.items() if one in bare and same in bare}
    ours = names.to_ours(merged(theirs, twins))
    first = {id(weight): name for name, weight in model.named_parameters()}
    used = model.named_parameters(remove_duplicate=False)
    again = {name: first[id(weight)] for name, weight in used if first[id(weight)] != name}
    ours = {name: tensor for name, tensor in ours.items() if name.startswith(only)}
    return merged(ours, again, lambda name: spelled(name, names, theirs))


def merged(tensors: dict[str, Tensor], twins: Mapping[str, str], told: Callable[[str], str] = str) -> dict[str, Tensor]:
    single = dict(tensors)
    for twin, name in twins.items():
        if twin in single:
            one = single.pop(twin)
            other = single.setdefault(name, one)
            alike = one.shape == other.shape and one.dtype == other.dtype
            if not alike or not (one.is_meta or torch.equal(one, other)):
                raise ValueError(f"{told(twin)} and {told(name)} are one weight in this model, but differ in the file")
    return single


def must_match(
    wanted: Mapping[str, Tensor], ours: Mapping[str, Tensor], names: FamilyMap | IdentityMap, stored: Iterable[str]
) -> None:
    def told(name: str) -> str:
        theirs = spelled(name, names, stored)
        return name if theirs == name else f"{theirs}: {name}"

    if missing := [name for name in wanted if name not in ours]:
        listed = [f"{name} ({spelled(name, names, stored)})" for name in missing[:5]]
        raise ValueError(f"it lacks {len(missing)} weights of this model: {', '.join(listed)}")
    for name, tensor in ours.items():
        if name not in wanted:
            raise ValueError(f"{told(name)} has no place in a model of these sizes")
        want = wanted[name]
        if tensor.shape != want.shape:
            asks = "config.json asks" if name.startswith("body.") else "task.json or config.json asks"
            raise ValueError(f"{told(name)} has shape {tuple(tensor.shape)}, but {asks} for {tuple(want.shape)}")
        if tensor.dtype not in HELD.get(want.dtype, (want.dtype,)):
            held = " or ".join(str(dtype) for dtype in HELD.get(want.dtype, (want.dtype,)))
            raise ValueError(f"{told(name)} is stored as {tensor.dtype}, and only {held} can be read without loss")


def must_be_computed(name: str, stored: Tensor, table: Tensor) -> None:
    """They store what we compute: it has to be the same, as far as the type of theirs can tell."""
    right = stored.shape == table.shape and stored.dtype in HELD[torch.float32]
    if right and not stored.is_meta:
        right = torch.allclose(stored.float(), table, atol=max(1e-5, torch.finfo(stored.dtype).eps))
    if not right:
        told = f"{tuple(stored.shape)} of {stored.dtype}"
        raise ValueError(f"{name} {told} is not the table that config.json asks for {tuple(table.shape)}")


def spelled(ours: str, names: FamilyMap | IdentityMap, stored: Iterable[str]) -> str:
    """What a weight of ours is called in a file, or would be called if it were there."""
    if isinstance(names, IdentityMap):
        return ours
    for name in stored:
        found = names.found(name)
        if found and ours in [one.format(*found[1].groups()) for one in found[0].ours]:
            return name
    outside = names.head.weights if names.head else {}
    for theirs, rule in {**names.weights, **outside}.items():
        matches = [pattern(one).fullmatch(ours) for one in rule_of(rule).ours]
        if match := next(filter(None, matches), None):
            prefix = names.prefix if names.head and theirs not in outside else ""
            return prefix + theirs.format(*match.groups())
    return ours.removeprefix("head.") if ours.removeprefix("head.") in stored else ours
