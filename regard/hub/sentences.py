"""The modules of sentence-transformers: which pooling a folder of theirs asks for, and whether vectors get length 1.

modules.json              Transformer, Pooling, Normalize, each with its folder
1_Pooling/config.json     pooling_mode_mean_tokens: true ...
sentence_bert_config.json max_seq_length
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

from regard.hub.files import MOST, read_json, read_plain
from regard.places import write_json

MODES = {"mean": "pooling_mode_mean_tokens", "first": "pooling_mode_cls_token", "last": "pooling_mode_lasttoken"}
KINDS = ("Transformer", "Pooling", "Normalize")


class Modules(NamedTuple):
    pooling: str = "mean"  # theirs if nothing is said
    unit: bool = False
    limit: int | None = None  # tokens of a text


def read_modules(folder: Path) -> Modules:
    file = folder / "modules.json"
    if not file.is_file():
        return Modules()
    try:
        told: Any = json.loads(read_plain(file, MOST))
        kinds = {str(one["type"]).rsplit(".", 1)[-1]: str(one.get("path", "")) for one in told}
    except (OSError, ValueError, TypeError, KeyError, RecursionError) as error:
        raise ValueError(f"{file} does not list the modules of sentence-transformers: {error!r}") from None
    if unknown := [kind for kind in kinds if kind not in KINDS]:
        raise ValueError(f"{file}: the module {unknown[0]} cannot be read here, only {', '.join(KINDS)}")
    pooling = pooling_of(inside(folder, kinds["Pooling"])) if "Pooling" in kinds else "mean"
    cut = folder / "sentence_bert_config.json"
    limit = read_json(cut).get("max_seq_length") if cut.is_file() else None
    if limit is not None and not (isinstance(limit, int) and limit > 0):
        raise ValueError(f"{cut}: max_seq_length must be a number of tokens, not {limit!r}")
    refuse_prompt(folder / "config_sentence_transformers.json")
    return Modules(pooling, "Normalize" in kinds, limit)


def refuse_prompt(file: Path) -> None:
    """A text that is put before every other one would change every vector."""
    told = read_json(file) if file.is_file() else {}
    name, prompts = told.get("default_prompt_name"), told.get("prompts")
    if name is not None and (not isinstance(prompts, dict) or prompts.get(name)):
        raise ValueError(f"{file}: default_prompt_name is {name!r}, and prompts are not put before texts here")


def inside(folder: Path, name: str) -> Path:
    """The config.json of a module."""
    if name != Path(name).name or name in (".", ".."):
        raise ValueError(f"{folder / 'modules.json'}: {name!r} is not a folder inside of it")
    if not (folder / name / "config.json").exists():
        raise ValueError(f"{folder / 'modules.json'} asks for {name}/config.json, which is not there")
    return folder / name / "config.json"


def pooling_of(file: Path) -> str:
    told = read_json(file)
    chosen = [key for key, value in told.items() if key.startswith("pooling_mode_") and value is True]
    ours = {theirs: name for name, theirs in MODES.items()}
    if isinstance(told.get("pooling_mode"), str):  # newer folders have one word
        chosen = [
            {"mean": MODES["mean"], "cls": MODES["first"], "lasttoken": MODES["last"]}.get(told["pooling_mode"], "")
        ]
    if len(chosen) != 1 or chosen[0] not in ours:
        raise ValueError(
            f"{file}: {', '.join(chosen) or 'no pooling'} cannot be done here, only one of {', '.join(ours)}"
        )
    return ours[chosen[0]]


def write_modules(folder: Path, pooling: str, unit: bool, limit: int | None) -> None:
    """Beside a body that they know; one of our own is of no use to them."""
    config = read_json(folder / "config.json")
    if str(config["model_type"]).startswith("regard-"):
        return
    parts = ["Transformer", "Pooling", *(["Normalize"] if unit else [])]
    paths = ["", "1_Pooling", "2_Normalize"]
    listed = [
        {"idx": i, "name": str(i), "path": path, "type": f"sentence_transformers.models.{kind}"}
        for i, (kind, path) in enumerate(zip(parts, paths, strict=False))
    ]
    write_json(folder / "modules.json", listed)
    for path in paths[1 : len(parts)]:
        (folder / path).mkdir(exist_ok=True)
    width = config.get("hidden_size") or config.get("n_embd")
    modes = {theirs: name == pooling for name, theirs in MODES.items()}
    write_json(folder / "1_Pooling" / "config.json", {"word_embedding_dimension": width, **modes})
    write_json(folder / "sentence_bert_config.json", {"max_seq_length": limit, "do_lower_case": False})
