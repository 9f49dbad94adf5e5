"""A model folder as Hugging Face lays it out: config.json, model.safetensors, generation_config.json, the tokenizer."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from regard.choose import choose
from regard.hub.names import Names
from regard.hub.tables import TABLES, table_for
from regard.models import MODELS
from regard.parts.heads import Model


def names_of(body: Any) -> Names:
    model = next(name for name, family in MODELS.items() if isinstance(body, family.body))
    return table_for(model, asdict(body.config))


def write_config(folder: Path, body: Any) -> None:
    config = names_of(body).config_to_theirs(asdict(body.config))
    generation = {
        "decoder_start_token_id": config["decoder_start_token_id"],
        "pad_token_id": config["pad_token_id"],
        "eos_token_id": config["eos_token_id"],
        "bad_words_ids": [[config["pad_token_id"]]],
        "max_length": config["max_position_embeddings"],
        "num_beams": 4,
        "length_penalty": 1.0,
    }
    write_json(folder / "config.json", config | {"dtype": "float32"})
    write_json(folder / "generation_config.json", generation)


def write_weights(file: Path, model: Model) -> None:
    names = names_of(model.body)
    ours = {name: w.detach().cpu().contiguous() for name, w in model.named_parameters()}
    made = {theirs: model.get_buffer(buffer).cpu().clone() for theirs, buffer in names.computed.items()}
    write_tensors(file, names.to_theirs(ours) | made, {"format": "pt"})


def write_tensors(file: Path, tensors: dict[str, Tensor], metadata: dict[str, str] | None = None) -> None:
    file.touch()
    usual = file.stat().st_mode  # the library writes files that only their owner may read
    try:
        save_file(tensors, file, metadata)
    except SafetensorError as error:
        raise OSError(f"{file} cannot be written: {error}") from None
    file.chmod(usual)


def read_config(folder: Path) -> tuple[Names, Any]:
    """The family of a folder, and the config of our body."""
    said = read_json(folder / "config.json")
    kind = str(said.get("model_type"))
    choose(f"model_type that regard reads (in {folder / 'config.json'})", kind, TABLES)
    names = TABLES[kind]
    config = MODELS[names.model].config
    given = names.config_to_ours(said)
    for field in fields(config):
        wanted: Any = {"int": int, "float": (int, float), "bool": bool}[str(field.type)]
        if field.name in given and (
            not isinstance(given[field.name], wanted) or isinstance(given[field.name], bool) != (wanted is bool)
        ):
            raise ValueError(
                f"{folder / 'config.json'}: {field.name} must be a {field.type}, not {given[field.name]!r}"
            )
    return names, config(**given)


def read_weights(file: Path, names: Names, model: Model) -> None:
    """Fill `model`, or refuse by name what is missing, left over, or of another shape."""
    wanted = dict(model.named_parameters())
    try:
        with safe_open(file, framework="pt") as tensors:
            theirs: dict[str, Tensor] = {name: tensors.get_tensor(name) for name in tensors.keys()}  # noqa: SIM118
    except (SafetensorError, OSError) as error:
        raise ValueError(f"{file} cannot be read as safetensors: {error}") from None
    for name, buffer in names.computed.items():
        stored, mine = theirs.pop(name, None), model.get_buffer(buffer).cpu()
        if stored is not None and (stored.shape != mine.shape or not torch.allclose(stored, mine, atol=1e-5)):
            raise ValueError(
                f"{file}: {name} {tuple(stored.shape)} is not what config.json asks for {tuple(mine.shape)}"
            )
    ours = names.to_ours(theirs)
    missing = [name for name in wanted if name not in ours]
    if missing:
        raise ValueError(f"{file} lacks {len(missing)} weights of this model: {', '.join(missing[:5])}")
    for name, tensor in ours.items():
        if name not in wanted:
            raise ValueError(f"{file}: {name} has no place in a model of these sizes")
        if tensor.shape != wanted[name].shape:
            raise ValueError(
                f"{file}: {name} has shape {tuple(tensor.shape)}, but config.json asks for {tuple(wanted[name].shape)}"
            )
    with torch.no_grad():
        for name, weight in wanted.items():
            weight.copy_(ours[name])


def read_json(file: Path) -> dict[str, Any]:
    try:
        said = json.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ValueError(f"{file.parent} is not a model folder: it has no {file.name}") from None
    except (OSError, UnicodeDecodeError, json.JSONDecodeError, RecursionError) as error:
        raise ValueError(f"{file} cannot be read as JSON: {error}") from None
    if not isinstance(said, dict):
        raise ValueError(f"{file} must hold a JSON object, not a {type(said).__name__}")
    return said


def write_json(file: Path, said: Mapping[str, Any]) -> None:
    file.write_text(json.dumps(said, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
