"""An int8 model as a folder: int8.safetensors beside what any folder of ours holds.

int8.json says how the bytes lie, so that nobody takes them for something else.
"""

from __future__ import annotations

from pathlib import Path

import torch
from safetensors import safe_open
from torch import nn

from regard.atomic import write_json
from regard.engine.quantize import BLOCK, GROUP, Int8, rounded
from regard.hub.files import read_json, there
from regard.hub.folder import Origin, write_tensors
from regard.hub.weights import read_header
from regard.parts.heads import Model

TOLD, WEIGHTS = "int8.json", "int8.safetensors"
LAYOUT = {
    "format": "regard-int8",
    "version": 1,
    "group": GROUP,
    "block": BLOCK,
    "bytes": "(N/block, K/group, group/4, block, 4), 128 added",
    "scales": "(N/block, K/group, block), half precision",
}


def holds_int8(folder: Path) -> bool:
    return (folder / TOLD).is_file()


def tensors_of(model: nn.Module) -> dict[str, tuple[nn.Module, str]]:
    """What a file has to hold, by name: whose it is, and what it is called there. What is shared is there once."""
    wanted, found = {*model.state_dict()}, {}
    for path, module in model.named_modules():
        for name in (*module._parameters, *module._buffers):
            if f"{path}.{name}" in wanted and getattr(module, name) is not None:
                found[f"{path}.{name}"] = (module, name)
    return found


def write_int8(folder: Path, model: Model, origin: Origin | None) -> None:
    """Of a model with int8 weights, as plain modules, and what the folder that it came from said of it."""
    if origin is None:
        raise ValueError("only a model that was loaded from a folder can be saved as int8: save it, and load it again")
    write_json(folder / "config.json", origin.config)
    if origin.generation:
        write_json(folder / "generation_config.json", origin.generation)
    tensors = {name: getattr(*at).detach().contiguous() for name, at in tensors_of(model).items()}
    write_tensors(folder / WEIGHTS, tensors, {"format": "pt"})
    write_json(folder / TOLD, LAYOUT)


def read_int8(folder: Path, model: Model) -> tuple[Origin, Model]:
    """`model` has the sizes of the folder's, and any weights."""
    said, file = read_json(folder / TOLD), folder / WEIGHTS
    if said != LAYOUT:
        raise ValueError(f"{folder / TOLD} tells of another layout than this version reads: round the model again")
    empty = rounded(model, Int8.empty)
    places, stored = tensors_of(empty), read_header(file)
    if odd := sorted({*stored} ^ {*places}):
        raise ValueError(f"{file}: {odd[0]} is {'missing' if odd[0] in places else 'too much'} for this config.json")
    for name, (module, attribute) in places.items():
        wanted, found = getattr(module, attribute), stored[name]
        if (wanted.shape, wanted.dtype) != (found.shape, found.dtype):
            has, needs = (f"{tuple(one.shape)} of {one.dtype}" for one in (found, wanted))
            raise ValueError(f"{file}: {name} is {has}, and should be {needs}")
    for name, at in places.items():
        with safe_open(file, framework="pt") as opened:  # each time anew, so that what was read is let go
            getattr(*at).detach().copy_(opened.get_tensor(name))
    asking = folder / "generation_config.json"
    told = read_json(asking) if there(asking) else None
    return Origin(read_json(folder / "config.json"), told, torch.float32), empty
