"""The modules of sentence-transformers: which pooling a folder of theirs asks for, and whether vectors get length 1.

modules.json              Transformer, Pooling, Normalize, each with its folder
1_Pooling/config.json     pooling_mode_mean_tokens: true ...
sentence_bert_config.json max_seq_length, do_lower_case
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

from regard.atomic import write_json
from regard.json_files import MAX_JSON, read_bounded, read_json

MODES = {"mean": "pooling_mode_mean_tokens", "first": "pooling_mode_cls_token", "last": "pooling_mode_lasttoken"}
LIBRARY = "config_sentence_transformers.json"
KINDS = ("Transformer", "Pooling", "Normalize")


class SentenceConfig(NamedTuple):
    pooling: str = "mean"  # theirs if nothing is said
    unit: bool = False
    limit: int | None = None  # tokens of a text
    do_lower_case: bool = False  # before the tokenizer reads it
    library: dict[str, Any] | None = None  # config_sentence_transformers.json, which is given back on saving


def read_modules(folder: Path) -> SentenceConfig:
    file = folder / "modules.json"
    if not file.is_file():
        return SentenceConfig()
    try:
        listed: Any = json.loads(read_bounded(file, MAX_JSON))
        kinds = {str(one["type"]).rsplit(".", 1)[-1]: str(one.get("path", "")) for one in listed}
    except (OSError, ValueError, TypeError, KeyError, RecursionError) as error:
        raise ValueError(f"{file} does not list the modules of sentence-transformers: {error!r}") from None
    if unknown := [kind for kind in kinds if kind not in KINDS]:
        raise ValueError(f"{file}: the module {unknown[0]} cannot be read here, only {', '.join(KINDS)}")
    pooling = family_pooling(inside(folder, kinds["Pooling"])) if "Pooling" in kinds else "mean"
    cut = folder / "sentence_bert_config.json"
    told = read_json(cut) if cut.is_file() else {}
    limit, lowercase = told.get("max_seq_length"), told.get("do_lower_case", False)
    if (kind := told.get("transformer_task", "feature-extraction")) != "feature-extraction":
        raise ValueError(f"{cut}: transformer_task is {kind!r:.80}, but only 'feature-extraction' can be read here")
    if not isinstance(lowercase, bool):
        raise ValueError(f"{cut}: do_lower_case must be true or false, not {lowercase!r:.80}")
    if limit is not None and not (type(limit) is int and limit > 0):
        raise ValueError(f"{cut}: max_seq_length must be a number of tokens, not {limit!r}")
    library = read_json(folder / LIBRARY) if (folder / LIBRARY).is_file() else None
    refuse_prompt(folder / LIBRARY, library or {})
    return SentenceConfig(pooling, "Normalize" in kinds, limit, lowercase, library)


def refuse_prompt(file: Path, told: dict[str, Any]) -> None:
    """A text that is put before every other one would change every vector."""
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


def family_pooling(file: Path) -> str:
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


def write_modules(folder: Path, modules: SentenceConfig) -> None:
    """Beside a body that they know; one of our own is of no use to them."""
    config = read_json(folder / "config.json")
    if str(config["model_type"]).startswith("regard-"):
        return
    parts = ["Transformer", "Pooling", *(["Normalize"] if modules.unit else [])]
    paths = ["", "1_Pooling", "2_Normalize"]
    listed = [
        {"idx": i, "name": str(i), "path": path, "type": f"sentence_transformers.models.{kind}"}
        for i, (kind, path) in enumerate(zip(parts, paths, strict=False))
    ]
    write_json(folder / "modules.json", listed)
    for path in paths[1 : len(parts)]:
        (folder / path).mkdir(exist_ok=True)
    width = config.get("hidden_size") or config.get("n_embd")
    modes = {theirs: name == modules.pooling for name, theirs in MODES.items()}
    write_json(folder / "1_Pooling" / "config.json", {"word_embedding_dimension": width, **modes})
    cut = {"max_seq_length": modules.limit, "do_lower_case": modules.do_lower_case}
    write_json(folder / "sentence_bert_config.json", cut)
    if modules.library is not None:
        write_json(folder / LIBRARY, modules.library)
