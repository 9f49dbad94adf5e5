"""A Hugging Face model folder: config.json, model.safetensors, generation_config.json.

A `SourceCheckpoint` holds what such a folder says and our model does not use: saved again, the folder is unchanged.
"""

from __future__ import annotations

import errno
import os
import re
from collections import Counter
from collections.abc import Mapping
from copy import deepcopy
from dataclasses import MISSING, asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, get_type_hints

import torch
from safetensors import SafetensorError
from safetensors.torch import save_file
from torch import Tensor

from regard.atomic import write_json
from regard.hub.family_map import FamilyMap, Fields, IdentityMap, field_name
from regard.hub.match_state_dict import match_state_dict, unique_state_dict
from regard.hub.tables import check_supported, map_for_body, map_for_type
from regard.hub.tensor_slices import slice_of
from regard.hub.weights import SAFE_INDEX, SAFE_WEIGHTS, TensorInfo, read_headers
from regard.json_files import get_nested, lexists, read_json, set_nested
from regard.models import MODELS
from regard.parts.heads import Body, Model
from regard.validate import FieldError, check_choice, matches_type

SPARE_WEIGHTS = 2**22  # parameters that a config may need beyond twice those in its file: small mismatches get a name
SPARE_SIZE = 2**24  # the same for a single size, and for computed tables


@dataclass
class SourceCheckpoint:
    """The parts of a loaded folder that saving has to reproduce."""

    config: dict[str, object]  # config.json
    generation: dict[str, object] | None  # generation_config.json
    dtype: torch.dtype  # of most parameters
    preserved: dict[str, Tensor] = field(default_factory=dict)  # tensors that our model does not use, by their name
    dtypes: dict[str, torch.dtype] = field(default_factory=dict)  # of each weight, by our name
    unprefixed: bool = False  # a body alone, whose names have no prefix


def find_family_map(body: Body, source: SourceCheckpoint | None = None) -> FamilyMap | IdentityMap:
    """The map of the family that a body was loaded from, if it still belongs to it; else of the first that fits."""
    model = next(name for name, family in MODELS.items() if isinstance(body.config, family.config))
    return map_for_body(model, asdict(body.config), source and source.config.get("model_type"))


def write_config(
    folder: Path, model: Model | Body, task_keys: Fields | None = None, source: SourceCheckpoint | None = None
) -> None:
    """Write config.json and generation_config.json of a model, or of a body alone. `task_keys` are keys that the task
    determines: id2label, eos_token_id ..."""
    body, head = (model.body, model.head) if isinstance(model, Model) else (model, None)
    family_map = find_family_map(body, source).with_head(head)
    config = family_map.config_to_hf(asdict(body.config), task_keys)
    if source and isinstance(family_map, FamilyMap) and family_map.family == source.config["model_type"]:
        head_keys = family_map.head.config_keys(head) if family_map.head else {}
        stale = stale_keys(source.config, config, family_map, asdict(body.config), head_keys)
        config = update_config(source.config, config, family_map, ["architectures", *stale, *(task_keys or {})])
        generation = dict(source.generation or {})
        generation |= {key: value for key, value in (task_keys or {}).items() if key in generation}
    else:
        generation = default_generation_config(config) if config.get("eos_token_id") is not None else {}
    if "torch_dtype" not in config:
        config.setdefault("dtype", str(source.dtype if source else torch.float32).removeprefix("torch."))
    write_json(folder / "config.json", config)
    if generation:
        write_json(folder / "generation_config.json", generation)
    else:
        (folder / "generation_config.json").unlink(missing_ok=True)


def stale_keys(original: Fields, fresh: Fields, family_map: FamilyMap, values: Fields, head_keys: Fields) -> list[str]:
    """Keys of a loaded config.json that no longer hold: those of changed fields, keys that are derived from these, and
    the labels of a head with another number of them."""
    loaded = asdict(MODELS[family_map.model].config(**family_map.config_from_hf(original)))
    changed = {name for name, value in values.items() if loaded[name] != value}
    stale = [key for key, target in family_map.config_fields.items() if field_name(target) in changed]
    for key in family_map.derived_keys if changed else ():
        if family_map.config_value(original, key) not in (MISSING, None, get_nested(fresh, key)):
            stale.append(key)
    labels = {key: value for key, value in head_keys.items() if isinstance(value, dict)}
    sizes = {key: len(names) for key, names in original.items() if isinstance(names, dict)}
    return stale + [key for key, value in labels.items() if sizes.get(key, 0) != len(value)]


def update_config(original: Fields, fresh: Fields, family_map: FamilyMap, keys: list[str]) -> dict[str, object]:
    """A loaded config.json with the `fresh` values of these keys; all else stays, in its own order and spelling."""
    config = deepcopy(dict(original))
    for key in keys:
        candidates = (key, *family_map.aliases.get(key, ()))
        present_key = next((name for name in candidates if get_nested(original, name) is not MISSING), key)
        set_nested(config, present_key, get_nested(fresh, key))
    return config


def default_generation_config(config: Fields) -> dict[str, object]:
    """The generation_config.json of a model that has an end-of-text token."""
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


def write_weights(file: Path, model: Model, source: SourceCheckpoint | None = None) -> None:
    """Write the weights by the names of Hugging Face; those of a `source` in its dtypes, with its unused tensors."""
    family_map = find_family_map(model.body, source).with_head(model.head)
    weights = {name: tensor.detach().cpu().contiguous() for name, tensor in unique_state_dict(model).items()}
    computed = {name: model.get_buffer(buffer).cpu().clone() for name, buffer in family_map.computed.items()}
    if not source:
        return write_tensors(file, family_map.tensors_to_hf(weights) | computed, {"format": "pt"})
    weights = {name: cast_if_finite(tensor, source.dtypes.get(name, source.dtype)) for name, tensor in weights.items()}
    computed = {name: source.preserved.get(name, table) for name, table in computed.items()}
    preserved, prefixed = dict[str, Tensor](), not source.unprefixed
    if isinstance(family_map, FamilyMap):
        preserved = {name: tensor for name, tensor in source.preserved.items() if family_map.is_preserved(name)}
        same_class = source.config.get("architectures") == [family_map.architecture]
        prefixed = family_map.head is not None or (prefixed and same_class)
        if prefixed == source.unprefixed:
            prefix = family_map.prefix
            preserved = {prefix * prefixed + name.removeprefix(prefix): preserved[name] for name in preserved}
    return write_tensors(file, preserved | family_map.tensors_to_hf(weights, prefixed) | computed, {"format": "pt"})


def cast_if_finite(tensor: Tensor, dtype: torch.dtype) -> Tensor:
    """The tensor in `dtype`, unless a value would overflow."""
    if not tensor.is_floating_point():
        return tensor
    cast = tensor.to(dtype)
    return cast if torch.equal(cast.isfinite(), tensor.isfinite()) else tensor


def write_tensors(file: Path, tensors: dict[str, Tensor], metadata: dict[str, str] | None = None) -> None:
    file.touch()
    mode = file.stat().st_mode  # safetensors writes files that only their owner may read
    try:
        save_file(tensors, file, metadata)
    except SafetensorError as error:
        match = re.search(r"os error (\d+)", str(error))
        code = int(match[1]) if match else errno.EIO
        raise OSError(code, os.strerror(code) if match else str(error), str(file)) from None
    file.chmod(mode)


def read_config(folder: Path, weights: bool = True) -> tuple[FamilyMap | IdentityMap, Any]:
    """The family map of a folder and the config of our body, refused if it needs more memory than its weights hold.
    `weights` False does not read their headers: a new run has none yet."""
    if not folder.is_dir():
        raise ValueError(
            f"{folder} is not a folder; a model folder holds config.json, model.safetensors and what reads its input, "
            "and a model on the hub is named owner/repo"
        )
    file = folder / "config.json"
    hf_config = read_json(file)
    try:
        stored = read_headers(folder) if weights else {}
        family_map = map_for_type(hf_config.get("model_type"), stored)
    except ValueError as error:
        raise ValueError(f"{file}: {error}") from None
    if isinstance(family_map, FamilyMap):
        check_supported(family_map, hf_config, stored, folder)
    kind = MODELS[family_map.model].config
    try:
        values = family_map.config_from_hf(hf_config)
    except ValueError as error:
        raise ValueError(f"{folder}: {error}") from None
    except (TypeError, KeyError, AttributeError, ArithmeticError) as error:
        raise ValueError(f"{file} is not a valid config of a {family_map.family} model: {error!r}") from None
    types = get_type_hints(kind)
    for name, value in values.items():
        check_choice(f"field (in {file})", name, types)
        if not matches_type(value, types[name]):
            expected = getattr(types[name], "__name__", types[name])
            raise ValueError(f"{file}: {hf_keys(family_map, name)}{name} must be a {expected}, not {value!r:.80}")
    missing = [f.name for f in fields(kind) if f.default is MISSING and f.name not in values]
    if missing:
        raise ValueError(f"{file} has no {', '.join(missing)}, which a {family_map.model} needs")
    try:
        config = kind(**values)
        family_map.check_derived_keys(hf_config, asdict(config))
        if weights:
            check_sizes(config, family_map.model, stored)
    except ValueError as error:
        keys = hf_keys(family_map, error.field) if isinstance(error, FieldError) else ""
        raise ValueError(str(error) if str(folder) in str(error) else f"{file}: {keys}{error}") from None
    return family_map, config


def hf_keys(family_map: FamilyMap | IdentityMap, name: str) -> str:
    """The keys of config.json that set a field of ours, as the start of a message; empty if they have the same name."""
    keys = [key for key, target in family_map.config_fields.items() if field_name(target) == name]
    return f"{' and '.join(keys)}: " if keys and keys != [name] else ""


def check_sizes(config: Any, model: str, stored: Mapping[str, TensorInfo]) -> None:
    """Refuse sizes that need far more parameters than the file has, before anything of that size is allocated."""
    total = sum(info.numel() for info in stored.values())
    for name in (size.name for size in fields(config) if size.type == "int"):
        size, limit = getattr(config, name), len(stored) if name.endswith("layers") else total + SPARE_SIZE
        if abs(size) > limit:
            raise ValueError(f"{name} is {size:,}, but the weights are {total:,} numbers in {len(stored):,} tensors")
    try:
        with torch.device("meta"):
            bodies = [body(config) for body in set(MODELS[model].bodies.values())]
    except (RuntimeError, AssertionError, ArithmeticError) as error:
        raise ValueError(f"invalid sizes: {error}") from None
    body = min(bodies, key=lambda body: sum(weight.numel() for weight in body.parameters()))
    parameters = sum(weight.numel() for weight in body.parameters())
    buffers = sum(buffer.numel() for buffer in body.buffers())
    if parameters > 2 * total + SPARE_WEIGHTS or buffers > total + SPARE_SIZE:
        raise ValueError(f"these sizes need {parameters + buffers:,} numbers, but the weights are {total:,}")
    if len(stored) > 4 * len(body.state_dict()) + 100:
        raise ValueError(f"these sizes need {len(body.state_dict())} tensors, but the weights are {len(stored):,}")


def read_weights(folder: Path, family_map: FamilyMap | IdentityMap, model: Model, only: str = "") -> SourceCheckpoint:
    """Load the weights whose names start with `only`. A tensor that is missing, unexpected, of another shape or dtype,
    or tied to a different one, is refused by its name, and the model stays as it was."""
    family_map, stored = family_map.with_head(model.head), read_headers(folder)
    config, generation_file = read_json(folder / "config.json"), folder / "generation_config.json"
    generation = read_json(generation_file) if lexists(generation_file) else None
    try:
        weights, unused = match_state_dict(stored, family_map, model, only)
    except ValueError as error:
        file = folder / (SAFE_WEIGHTS if lexists(folder / SAFE_WEIGHTS) else SAFE_INDEX)
        raise ValueError(str(error) if str(folder) in str(error) else f"{file}: {error}") from None
    with torch.no_grad():
        for name, weight in unique_state_dict(model).items():
            if name in weights:
                part = slice_of(name, weight)  # of a sharded weight, only its slice is read
                part.tensor.copy_(part.of(weights[name]))
    counts = Counter[torch.dtype]()
    for tensor in weights.values():
        counts[tensor.dtype] += tensor.numel() * tensor.is_floating_point()
    return SourceCheckpoint(
        config,
        generation,
        dtype=counts.most_common(1)[0][0],
        preserved={name: tensor.clone() for name, tensor in unused.items()},
        dtypes={name: tensor.dtype for name, tensor in weights.items()},
        unprefixed=isinstance(family_map, FamilyMap) and not any(name.startswith(family_map.prefix) for name in stored),
    )
