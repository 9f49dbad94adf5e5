"""The published weights of a run: model.safetensors or, above `MAX_SHARD` bytes, several files and their index.

model.safetensors                       one file, replaced by one rename
model-2-00001-of-00003.safetensors      during a run: the second set. Each set has names of its own, and replacing
model.safetensors.index.json            the index, one rename, switches to it: no reader mixes two sets
model-00001-of-00003.safetensors        after the run: the names that Hugging Face writes

Weights that are divided over ranks are gathered for one file after the other, which the first rank writes.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from functools import partial
from pathlib import Path

import torch
from torch import Tensor

from regard.atomic import fsync, replace_file, write_json
from regard.hub.family_map import Sources, TensorRule
from regard.hub.folder import find_family_map, write_tensors
from regard.hub.match_state_dict import unique_state_dict
from regard.hub.tensor_slices import whole_tensor
from regard.hub.weights import SAFE_INDEX, SAFE_WEIGHTS, read_index
from regard.json_files import read_json
from regard.parts.heads import Model
from regard.training.ranks import SINGLE, Ranks

MAX_SHARD = 5 * 10**9  # bytes of a file of weights, as Hugging Face's libraries count them
SHARD_NAME = re.compile(r"\.?model(?:-(\d+))?(-\d{5}-of-\d{5}\.safetensors)")


def publish_weights(folder: Path, model: Model, ranks: Ranks = SINGLE, max_shard: int = MAX_SHARD) -> None:
    """Write the weights by the names of Hugging Face. A reader sees the old ones or the new ones, whenever this stops.
    All ranks call it together."""
    weights = unique_state_dict(model)
    family_map = find_family_map(model.body).with_head(model.head)
    sources: Sources = family_map.sources_of_hf(weights)
    for name, buffer in family_map.computed.items():
        weights[f"computed/{name}"] = model.get_buffer(buffer).clone()  # two tensors may hold the same table
        sources[name] = TensorRule((buffer,)), [f"computed/{name}"]
    plan = plan_shards(weights, sources, max_shard, ranks.broadcast(next_version(folder)))
    try:
        for file, names in plan.items():
            write_joined(folder / file, weights, {name: sources[name] for name in names}, ranks)
        ranks.first(partial(switch, folder, plan, sum(tensor_bytes(weights, sources).values())))
    finally:
        if ranks.is_first:
            remove_stale(folder)


def plan_shards(weights: dict[str, Tensor], sources: Sources, max_shard: int, version: int) -> dict[str, list[str]]:
    """The tensors of each file, by the rule of Hugging Face's libraries."""
    sizes = tensor_bytes(weights, sources)
    if sum(sizes.values()) <= max_shard:
        return {SAFE_WEIGHTS: [*sizes]}
    from huggingface_hub import split_torch_state_dict_into_shards

    empty = {name: torch.empty(size, dtype=torch.uint8, device="meta") for name, size in sizes.items()}
    pattern = f"model-{version}{{suffix}}.safetensors"
    split = split_torch_state_dict_into_shards(empty, filename_pattern=pattern, max_shard_size=max_shard)
    return split.filename_to_tensors


def tensor_bytes(weights: dict[str, Tensor], sources: Sources) -> dict[str, int]:
    """The size of each tensor of Hugging Face: rules copy numbers, and change none."""
    sizes = {name: tensor.numel() * tensor.element_size() for name, tensor in weights.items()}
    return {name: sum(sizes[part] for part in parts) for name, (_, parts) in sources.items()}


def write_joined(file: Path, weights: dict[str, Tensor], sources: Sources, ranks: Ranks) -> None:
    """Write one file: the first rank joins the tensors that all ranks help to gather."""
    tensors = dict[str, Tensor]()
    for name, (rule, parts) in sources.items():
        whole = [whole_tensor(weights[part]) for part in parts]
        if ranks.is_first:
            tensors[name] = rule.join([tensor.cpu() for tensor in whole])
        del whole
    ranks.first(partial(replace_file, file, partial(write_shard, tensors)))


def write_shard(tensors: dict[str, Tensor], file: Path) -> None:
    write_tensors(file, tensors, {"format": "pt"})


def switch(folder: Path, plan: dict[str, list[str]], total_size: int) -> None:
    """Let readers see the files of `plan`. They prefer a single file to an index."""
    if SAFE_WEIGHTS in plan:
        return
    weight_map = {name: file for file, names in plan.items() for name in names}
    write_index(folder, {"total_size": total_size}, weight_map)
    (folder / SAFE_WEIGHTS).unlink(missing_ok=True)
    fsync(folder)


def write_index(folder: Path, metadata: dict[str, int], weight_map: dict[str, str]) -> None:
    write_json(folder / SAFE_INDEX, {"metadata": metadata, "weight_map": dict(sorted(weight_map.items()))})


def name_shards(folder: Path) -> None:
    """Give the files of a finished run the names that Hugging Face writes: new links to them, then the index that names
    these, then the old links go."""
    remove_stale(folder)
    if not (folder / SAFE_INDEX).exists():
        return None
    weight_map = read_index(folder / SAFE_INDEX)
    names = {file: SHARD_NAME.sub(r"model\2", file) for file in weight_map.values()}
    if all(file == name for file, name in names.items()):
        return None
    try:
        for file, name in names.items():
            os.link(folder / file, folder / name)
    except OSError:  # no hard links on this file system: the index holds for any names
        return remove_stale(folder)
    fsync(folder)
    metadata = read_json(folder / SAFE_INDEX)["metadata"]
    write_index(folder, metadata, {tensor: names[file] for tensor, file in weight_map.items()})
    return remove_stale(folder)


def next_version(folder: Path) -> int:
    """A number that no file of weights in a folder has."""
    return 1 + max((int(match[1] or 0) for match in shard_names(folder)), default=0)


def shard_names(folder: Path) -> Iterable[re.Match[str]]:
    """The files of a set of weights, hidden ones too, which a killed process left."""
    names = (file.name for file in folder.glob("*.safetensors"))
    return filter(None, map(SHARD_NAME.fullmatch, names))


def has_weights(folder: Path) -> bool:
    return (folder / SAFE_WEIGHTS).is_file() or (folder / SAFE_INDEX).is_file()


def remove_stale(folder: Path) -> None:
    """Remove all files of weights that readers do not see, complete or not."""
    single, index = folder / SAFE_WEIGHTS, folder / SAFE_INDEX
    if single.exists() and index.exists():  # readers prefer the single file
        index.unlink()
    current = {*read_index(index).values()} if index.exists() else set()
    for match in shard_names(folder):
        if match.string not in current:
            (folder / match.string).unlink(missing_ok=True)
