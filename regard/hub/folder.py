"""A model folder as Hugging Face lays it out: config.json, model.safetensors, generation_config.json, the tokenizer."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import MISSING, asdict, fields
from pathlib import Path
from typing import Any, get_args, get_type_hints

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

from regard.choose import choose
from regard.hub.names import Names, Plain
from regard.hub.tables import TABLES, table_for
from regard.models import MODELS
from regard.parts.heads import Model


def names_of(body: Any) -> Names | Plain:
    model = next(name for name, family in MODELS.items() if isinstance(body.config, family.config))
    return table_for(model, asdict(body.config))


def write_config(folder: Path, model: Any, facts: Mapping[str, Any] | None = None) -> None:
    """Of a model, or of a body alone. `facts` are keys that a task knows better: id2label, eos_token_id ..."""
    body, head = (model.body, model.head) if isinstance(model, Model) else (model, None)
    config = names_of(body).under(head).config_to_theirs(asdict(body.config), facts)
    write_json(folder / "config.json", config | {"dtype": "float32"})
    if config.get("eos_token_id") is not None:
        write_json(folder / "generation_config.json", generation_of(config))
    else:
        (folder / "generation_config.json").unlink(missing_ok=True)


def generation_of(config: Mapping[str, Any]) -> dict[str, Any]:
    """How a model that has an end of text is asked by default."""
    tokens = {"pad_token_id": config["pad_token_id"], "eos_token_id": config["eos_token_id"]}
    if not config.get("is_encoder_decoder"):
        return {"bos_token_id": config["bos_token_id"], **tokens, "do_sample": False}
    return {
        "decoder_start_token_id": config["decoder_start_token_id"],
        **tokens,
        "bad_words_ids": [[config["pad_token_id"]]],
        "max_length": config["max_position_embeddings"],
        "num_beams": 4,
        "length_penalty": 1.0,
    }


def tensors_of(model: nn.Module) -> dict[str, Tensor]:
    """Weights, each once even where it is shared, and what batch norms count."""
    kept = {*model.state_dict()} - {name for name, _ in model.named_parameters(remove_duplicate=False)}
    buffers = {name: buffer for name, buffer in model.named_buffers() if name in kept}
    return {**dict(model.named_parameters()), **buffers}


def write_weights(file: Path, model: Model) -> None:
    names = names_of(model.body).under(model.head)
    ours = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors_of(model).items()}
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


def read_config(folder: Path) -> tuple[Names | Plain, Any]:
    """The family of a folder, and the config of our body."""
    if not folder.is_dir():
        raise ValueError(
            f"{folder} is not a folder; a model folder holds config.json, model.safetensors and what reads its input"
        )
    file = folder / "config.json"
    said = read_json(file)
    kind = str(said.get("model_type"))
    choose(f"model_type that regard reads (in {file})", kind, TABLES)
    names = TABLES[kind]
    config = MODELS[names.model].config
    given = names.config_to_ours(said)
    kinds = get_type_hints(config)
    for name, value in given.items():
        choose(f"field (in {file})", name, kinds)
        if not fits(value, kinds[name]):
            raise ValueError(f"{file}: {name} must be a {getattr(kinds[name], '__name__', kinds[name])}, not {value!r}")
    lacks = [f.name for f in fields(config) if f.default is MISSING and f.name not in given]
    if lacks:
        raise ValueError(f"{file} has no {', '.join(lacks)}, which a {names.model} needs")
    made = config(**given)
    names.must_follow(said, asdict(made))
    return names, made


def fits(value: Any, kind: Any) -> bool:
    """Whether a value read from JSON is of the type of a field: numbers, switches, one of some words, or nothing."""
    if get_args(kind):
        return value in get_args(kind) or any(isinstance(k, type) and fits(value, k) for k in get_args(kind))
    if isinstance(value, bool) or kind is bool:
        return isinstance(value, bool) and kind is bool
    return isinstance(value, (int, float) if kind is float else kind)


def read_weights(file: Path, names: Names | Plain, model: Model, only: str = "") -> None:
    """Fill `model`, or refuse by name what is missing, left over, or of another shape; of the parts named `only`."""
    names = names.under(model.head)
    wanted = {name: tensor for name, tensor in tensors_of(model).items() if name.startswith(only)}
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
    ours = {name: tensor for name, tensor in names.to_ours(theirs).items() if name.startswith(only)}
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
