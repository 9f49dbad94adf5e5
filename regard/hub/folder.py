"""A model folder as Hugging Face lays it out: config.json, model.safetensors, generation_config.json, the tokenizer.

What a folder of theirs says and we do not use is its `Origin`: written again, the folder is as it was.
"""

from __future__ import annotations

import errno
import json
import math
import os
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import MISSING, asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, get_type_hints

import torch
from safetensors import SafetensorError
from safetensors.torch import save_file
from torch import Tensor

from regard.atomic import write_json as write_json
from regard.hub.files import read_json as read_json
from regard.hub.files import there
from regard.hub.names import Names, Plain, at
from regard.hub.placing import placed
from regard.hub.placing import tensors_of as tensors_of
from regard.hub.tables import TABLES, must_be_supported, table_for, table_of
from regard.hub.weights import INDEX, WHOLE, Stored, stored_in
from regard.models import MODELS
from regard.parts.heads import Model
from regard.validate import FieldError, check_choice, matches_type

SPARE = 2**22  # numbers that a config may ask for beyond twice those of its file: a small mistake is told by its name
UNSAID = {  # what transformers takes if nothing is said, and old versions spelled out in config.json
    **{"max_length": 20, "min_length": 0, "do_sample": False, "temperature": 1.0, "top_k": 50, "top_p": 1.0},
    **{"num_beams": 1, "length_penalty": 1.0, "repetition_penalty": 1.0, "no_repeat_ngram_size": 0},
}
FARTHEST = 2**24  # the same of one size, and of a table that we compute


@dataclass
class Origin:
    """What has to stay as it was in a folder that we have read."""

    config: dict[str, Any]  # config.json
    generation: dict[str, Any] | None  # generation_config.json
    dtype: torch.dtype  # of most numbers
    kept: dict[str, Tensor] = field(default_factory=dict)  # theirs that our model has no use for
    dtypes: dict[str, torch.dtype] = field(default_factory=dict)  # of each weight, by our name
    bare: bool = False  # a body alone, whose names have no prefix


def names_of(body: Any, origin: Origin | None = None) -> Names | Plain:
    """Of the family that it came from, if it still is one of it."""
    model = next(name for name, family in MODELS.items() if isinstance(body.config, family.config))
    sizes = asdict(body.config)
    names = TABLES.get(str(origin.config.get("model_type"))) if origin else None
    if names and names.model == model and all(sizes[key] == value for key, value in fixed_by(names).items()):
        return names
    return table_for(model, sizes)


def fixed_by(names: Names | Plain) -> Mapping[str, Any]:
    return names.ours if isinstance(names, Names) else {}


def write_config(
    folder: Path, model: Any, facts: Mapping[str, Any] | None = None, origin: Origin | None = None
) -> None:
    """Of a model, or of a body alone. `facts` are keys that a task knows better: id2label, eos_token_id ..."""
    body, head = (model.body, model.head) if isinstance(model, Model) else (model, None)
    names = names_of(body, origin).under(head)
    config = names.config_to_theirs(asdict(body.config), facts)
    if origin and isinstance(names, Names) and names.family == origin.config["model_type"]:
        labels = names.head.says(head) if names.head else {}
        config = brought_up_to_date(origin.config, config, names, asdict(body.config), labels, facts or {})
        told = origin.generation or {}
        generation = told | {key: value for key, value in (facts or {}).items() if key in told} or None
    else:
        generation = generation_of(config) if config.get("eos_token_id") is not None else None
    if "torch_dtype" not in config:
        config.setdefault("dtype", str(origin.dtype if origin else torch.float32).removeprefix("torch."))
    write_json(folder / "config.json", config)
    if generation:
        write_json(folder / "generation_config.json", generation)
    else:
        (folder / "generation_config.json").unlink(missing_ok=True)


def brought_up_to_date(
    said: dict[str, Any], fresh: dict[str, Any], names: Names, sizes: Mapping[str, Any], labels: Any, facts: Any
) -> dict[str, Any]:
    """Their config as they said it, key by key and in their order, but for what is no longer so."""
    before = asdict(MODELS[names.model].config(**names.config_to_ours(said)))
    changed = {name for name, size in sizes.items() if before[name] != size}
    old = [key for key, size in names.sizes.items() if (size if isinstance(size, str) else size.field) in changed]
    if changed:
        old += [key for key in names.follows if names.said(said, key) not in (MISSING, None, at(fresh, key))]
    old += [key for key, new in labels.items() if isinstance(new, dict) and len(said.get(key) or ()) != len(new)]
    config = json.loads(json.dumps(said))
    for key in ("architectures", *old, *facts):
        spelled = next((one for one in (key, *names.older.get(key, ())) if at(said, one) is not MISSING), key)
        put(config, spelled, at(fresh, key))
    return config


def put(config: dict[str, Any], key: str, value: Any) -> None:
    """At a key with dots; MISSING takes it out."""
    *path, last = key.split(".")
    for part in path:
        config = config.setdefault(part, {})
    if value is MISSING:
        config.pop(last, None)
    else:
        config[last] = value


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


def asked_in(folder: Path, config: dict[str, Any]) -> tuple[dict[str, Any], Path]:
    """What is said of generation, and the file that says it: config.json in older folders."""
    file = folder / "generation_config.json"
    if there(file):
        return read_json(file), file
    return {key: value for key, value in config.items() if UNSAID.get(key) != value}, folder / "config.json"


def ends_of(folder: Path, config: dict[str, Any]) -> tuple[int, ...]:
    """The tokens that end a text. One that is not in the vocabulary never comes, and ends none."""
    said, size = said_of(folder, config, "eos_token_id", known=False), config.get("vocab_size")
    ends = said if isinstance(said, list) else [] if said is None else [said]
    return tuple(end for end in ends if not isinstance(size, int) or end < size)


def said_of(folder: Path, config: dict[str, Any], key: str, known: bool = True) -> Any:
    """What generation_config.json says, or else config.json; only tokens that are `known`."""
    file = folder / "generation_config.json"
    told = read_json(file) if file.is_file() else {}
    said = told.get(key, config.get(key))
    where = file if key in told else folder / "config.json"
    numbers = said if isinstance(said, list) else [0 if said is None else said]
    size = config.get("vocab_size")
    most = size if isinstance(size, int) and known else math.inf
    if not all(type(number) is int and 0 <= number < most for number in numbers):
        raise ValueError(f"{where}: {key} must be the number of a token, or several, not {said!r:.80}")
    return said


def write_weights(file: Path, model: Model, origin: Origin | None = None) -> None:
    names = names_of(model.body, origin).under(model.head)
    ours = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors_of(model).items()}
    made = {theirs: model.get_buffer(buffer).cpu().clone() for theirs, buffer in names.computed.items()}
    if not origin:
        return write_tensors(file, names.to_theirs(ours) | made, {"format": "pt"})
    ours = {name: narrowed(tensor, origin.dtypes.get(name, origin.dtype)) for name, tensor in ours.items()}
    made = {name: origin.kept.get(name, table) for name, table in made.items()}
    kept = {name: tensor for name, tensor in origin.kept.items() if isinstance(names, Names) and names.keeps(name)}
    prefixed = not origin.bare
    if isinstance(names, Names):
        prefixed = names.head is not None or (prefixed and origin.config.get("architectures") == [names.architecture])
        if prefixed == origin.bare:
            kept = {names.prefix * prefixed + name.removeprefix(names.prefix): kept[name] for name in kept}
    return write_tensors(file, kept | names.to_theirs(ours, prefixed) | made, {"format": "pt"})


def narrowed(tensor: Tensor, dtype: torch.dtype) -> Tensor:
    """In the type that it came in, unless it has grown too large for that."""
    if not tensor.is_floating_point():
        return tensor
    narrow = tensor.to(dtype)
    return narrow if torch.equal(narrow.isfinite(), tensor.isfinite()) else tensor


def write_tensors(file: Path, tensors: dict[str, Tensor], metadata: dict[str, str] | None = None) -> None:
    file.touch()
    usual = file.stat().st_mode  # the library writes files that only their owner may read
    try:
        save_file(tensors, file, metadata)
    except SafetensorError as error:
        told = re.search(r"os error (\d+)", str(error))
        number = int(told[1]) if told else errno.EIO
        raise OSError(number, os.strerror(number) if told else str(error), str(file)) from None
    file.chmod(usual)


def read_config(folder: Path, weights: bool = True) -> tuple[Names | Plain, Any]:
    """The family of a folder, and the config of our body, which asks for no more memory than its weights hold; unless
    `weights`, they are not looked at: a run of our own may have none yet."""
    if not folder.is_dir():
        raise ValueError(
            f"{folder} is not a folder; a model folder holds config.json, model.safetensors and what reads its input, "
            "and a model on the hub is named owner/repo"
        )
    file = folder / "config.json"
    said = read_json(file)
    try:
        names = table_of(said.get("model_type"), stored_in(folder) if weights else ())
    except ValueError as error:
        raise ValueError(f"{file}: {error}") from None
    if isinstance(names, Names):
        must_be_supported(names, said, stored_in(folder) if weights else (), folder)
    config = MODELS[names.model].config
    try:
        given = names.config_to_ours(said)
    except ValueError as error:
        raise ValueError(f"{folder}: {error}") from None
    except (TypeError, KeyError, AttributeError, ArithmeticError) as error:
        raise ValueError(f"{file} says something that no {names.family} model has: {error!r}") from None
    kinds = get_type_hints(config)
    for name, value in given.items():
        check_choice(f"field (in {file})", name, kinds)
        if not matches_type(value, kinds[name]):
            wanted = getattr(kinds[name], "__name__", kinds[name])
            raise ValueError(f"{file}: {key_of(names, name)}{name} must be a {wanted}, not {value!r:.80}")
    lacks = [f.name for f in fields(config) if f.default is MISSING and f.name not in given]
    if lacks:
        raise ValueError(f"{file} has no {', '.join(lacks)}, which a {names.model} needs")
    try:
        made = config(**given)
        names.must_follow(said, asdict(made))
        if weights:
            must_hold(made, names.model, stored_in(folder))
    except ValueError as error:
        key = key_of(names, error.field) if isinstance(error, FieldError) else ""
        told = str(error) if str(folder) in str(error) else f"{file}: {key}{error}"
        raise ValueError(told) from None
    return names, made


def key_of(names: Names | Plain, ours: str) -> str:
    """How a message about a field of ours begins, for those who know what it is called in config.json."""
    sizes = names.sizes if isinstance(names, Names) else {}
    keys = [key for key, size in sizes.items() if ours == (size if isinstance(size, str) else size.field)]
    return f"{' and '.join(keys)}: " if keys and keys != [ours] else ""


def must_hold(config: Any, model: str, stored: Mapping[str, Stored]) -> None:
    """Refuse sizes that the weights in the file are far too few for, before anything of that size is made."""
    held = sum(tensor.numbers for tensor in stored.values())
    for one in (one for one in fields(config) if one.type == "int"):
        size, most = getattr(config, one.name), len(stored) if one.name.endswith("layers") else held + FARTHEST
        if abs(size) > most:
            raise ValueError(f"{one.name} is {size:,}, but the weights are {held:,} numbers in {len(stored):,} tensors")
    try:
        with torch.device("meta"):  # tensors there have a shape and no numbers
            bodies = [body(config) for body in set(MODELS[model].bodies.values())]
    except (RuntimeError, AssertionError, ArithmeticError) as error:
        raise ValueError(f"no model can have these sizes: {error}") from None
    body = min(bodies, key=lambda body: sum(weight.numel() for weight in body.parameters()))
    asked = sum(weight.numel() for weight in body.parameters())
    tables = sum(table.numel() for table in body.buffers())
    if asked > 2 * held + SPARE or tables > held + FARTHEST:
        raise ValueError(f"these sizes ask for {asked + tables:,} numbers, but the weights are {held:,}")
    if len(stored) > 4 * len(body.state_dict()) + 100:
        raise ValueError(f"these sizes ask for {len(body.state_dict())} tensors, but the weights are {len(stored):,}")


def read_weights(folder: Path, names: Names | Plain, model: Model, only: str = "") -> Origin:
    """Fill `model`, or refuse by name what is missing, left over, of another shape or type, or not the same in two
    places that share it; of the parts named `only`. What is refused leaves the model as it was."""
    names, stored = names.under(model.head), stored_in(folder)
    config, generation = read_json(folder / "config.json"), folder / "generation_config.json"
    asking = read_json(generation) if there(generation) else None
    try:
        ours, beside = placed(stored, names, model, only)
    except ValueError as error:
        file = folder / (WHOLE if there(folder / WHOLE) else INDEX)
        raise ValueError(str(error) if str(folder) in str(error) else f"{file}: {error}") from None
    with torch.no_grad():
        for name, weight in tensors_of(model).items():
            if name in ours:
                weight.copy_(ours[name])
    numbers = Counter[torch.dtype]()
    for tensor in ours.values():
        numbers[tensor.dtype] += tensor.numel() * tensor.is_floating_point()
    return Origin(
        config,
        asking,
        dtype=numbers.most_common(1)[0][0],
        kept={name: tensor.clone() for name, tensor in beside.items()},
        dtypes={name: tensor.dtype for name, tensor in ours.items()},
        bare=isinstance(names, Names) and not any(name.startswith(names.prefix) for name in stored),
    )
