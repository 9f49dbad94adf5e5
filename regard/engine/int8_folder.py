"""Save and load an int8 model folder: int8.safetensors in place of model.safetensors, all else as in any folder.

int8.json describes the memory layout, and its version refuses folders of another one.
"""

from __future__ import annotations

from pathlib import Path

import torch
from safetensors import safe_open
from torch import nn

from regard.atomic import write_json
from regard.engine.quantize import BLOCK, GROUP, Int8Linear, quantize_model
from regard.hub.folder import SourceCheckpoint, write_tensors
from regard.hub.weights import read_header
from regard.json_files import lexists, read_json
from regard.parts.heads import Model

CONFIG, WEIGHTS_FILE = "int8.json", "int8.safetensors"
FORMAT = {
    "format": "regard-int8",
    "version": 2,
    "group": GROUP,
    "block": BLOCK,
    "qweight": "(N/block, K/group, group/4, block, 4), 128 added",
    "scales": "(N/block, K/group, block), fp16",
}


def is_int8_folder(folder: Path) -> bool:
    return (folder / CONFIG).is_file()


def named_tensors(model: nn.Module) -> dict[str, tuple[nn.Module, str]]:
    """Tensors of the file by name: the module that owns each and its attribute. Shared tensors appear once."""
    names, owners = {*model.state_dict()}, {}
    for path, module in model.named_modules():
        for name in (*module._parameters, *module._buffers):
            if f"{path}.{name}" in names and getattr(module, name) is not None:
                owners[f"{path}.{name}"] = (module, name)
    return owners


def write_int8(folder: Path, model: Model, origin: SourceCheckpoint | None) -> None:
    """Write a quantized model (plain modules) with the config of the folder that it was loaded from."""
    if origin is None:
        raise ValueError("only a model loaded from a folder can be saved as int8: save it, and load it again")
    write_json(folder / "config.json", origin.config)
    if origin.generation:
        write_json(folder / "generation_config.json", origin.generation)
    tensors = {name: getattr(*owner).detach().contiguous() for name, owner in named_tensors(model).items()}
    write_tensors(folder / WEIGHTS_FILE, tensors, {"format": "pt"})
    write_json(folder / CONFIG, FORMAT)


def read_int8(folder: Path, model: Model) -> tuple[SourceCheckpoint, Model]:
    """Load the folder's weights; `model` has its architecture, with any weights."""
    stored_format, file = read_json(folder / CONFIG), folder / WEIGHTS_FILE
    if stored_format != FORMAT:
        raise ValueError(
            f"{folder / CONFIG} describes another layout than this version reads: load the original folder with "
            'speed="int8" and save it again'
        )
    quantized = quantize_model(model, Int8Linear.empty_like)
    owners, stored = named_tensors(quantized), read_header(file)
    if mismatched := sorted({*stored} ^ {*owners}):
        problem = "missing" if mismatched[0] in owners else "unexpected"
        raise ValueError(f"{file}: {mismatched[0]} is {problem} for this config.json")
    for name, owner in owners.items():
        expected, actual = getattr(*owner), stored[name]
        if (expected.shape, expected.dtype) != (actual.shape, actual.dtype):
            has, needs = (f"{tuple(t.shape)} of {t.dtype}" for t in (actual, expected))
            raise ValueError(f"{file}: {name} is {has}, and should be {needs}")
    for name, owner in owners.items():
        with safe_open(file, framework="pt") as tensor_file:  # opened anew each time: closing releases the memory
            getattr(*owner).detach().copy_(tensor_file.get_tensor(name))
    generation_file = folder / "generation_config.json"
    generation = read_json(generation_file) if lexists(generation_file) else None
    return SourceCheckpoint(read_json(folder / "config.json"), generation, torch.float32), quantized
