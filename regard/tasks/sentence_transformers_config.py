"""The config files of sentence-transformers: pooling, normalisation and maximal length of an embedding model.

modules.json              Transformer, Pooling, Normalize, each with its folder
1_Pooling/config.json     pooling_mode_mean_tokens: true ...
sentence_bert_config.json max_seq_length, do_lower_case
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from regard.atomic import write_json
from regard.json_files import MAX_JSON, read_bounded, read_json

POOLING_KEYS = {"mean": "pooling_mode_mean_tokens", "first": "pooling_mode_cls_token", "last": "pooling_mode_lasttoken"}
POOLING_WORDS = {"mean": "mean", "cls": "first", "lasttoken": "last"}  # of pooling_mode, in newer folders
LIBRARY = "config_sentence_transformers.json"
MODULES = ("Transformer", "Pooling", "Normalize")


class SentenceConfig(NamedTuple):
    pooling: str = "mean"  # sentence-transformers' own default
    unit: bool = False
    limit: int | None = None  # maximal tokens of a text
    do_lower_case: bool = False  # before tokenization
    library: dict[str, object] | None = None  # config_sentence_transformers.json; saving writes it back


def read_modules(folder: Path) -> SentenceConfig:
    file = folder / "modules.json"
    if not file.is_file():
        return SentenceConfig()
    try:
        modules = json.loads(read_bounded(file, MAX_JSON))
        paths = {str(module["type"]).rsplit(".", 1)[-1]: str(module.get("path", "")) for module in modules}
    except (OSError, ValueError, TypeError, KeyError, RecursionError) as error:
        raise ValueError(f"{file} does not list the modules of sentence-transformers: {error!r}") from None
    if unknown := [name for name in paths if name not in MODULES]:
        raise ValueError(f"{file}: the module {unknown[0]} is not supported, only {', '.join(MODULES)}")
    pooling = read_pooling(module_config(folder, paths["Pooling"])) if "Pooling" in paths else "mean"
    file = folder / "sentence_bert_config.json"
    content = read_json(file) if file.is_file() else {}
    limit, lowercase = content.get("max_seq_length"), content.get("do_lower_case", False)
    if (task := content.get("transformer_task", "feature-extraction")) != "feature-extraction":
        raise ValueError(f"{file}: transformer_task is {task!r:.80}, but only 'feature-extraction' is supported")
    if not isinstance(lowercase, bool):
        raise ValueError(f"{file}: do_lower_case must be true or false, not {lowercase!r:.80}")
    if limit is not None and not (type(limit) is int and limit > 0):
        raise ValueError(f"{file}: max_seq_length must be a number of tokens, not {limit!r}")
    library = read_json(folder / LIBRARY) if (folder / LIBRARY).is_file() else None
    reject_prompt(folder / LIBRARY, library or {})
    return SentenceConfig(pooling, "Normalize" in paths, limit, lowercase, library)


def reject_prompt(file: Path, content: Mapping[str, object]) -> None:
    """Refuse a default prompt: prepended to every text, it would change every vector."""
    name, prompts = content.get("default_prompt_name"), content.get("prompts")
    if name is not None and (not isinstance(prompts, dict) or prompts.get(name)):
        raise ValueError(f"{file}: default_prompt_name is {name!r}, but default prompts are not supported")


def module_config(folder: Path, name: str) -> Path:
    """The config.json of a module."""
    if name != Path(name).name or name in (".", ".."):
        raise ValueError(f"{folder / 'modules.json'}: {name!r} is not a plain folder name")
    if not (folder / name / "config.json").exists():
        raise ValueError(f"{folder / 'modules.json'} lists {name}, but {name}/config.json does not exist")
    return folder / name / "config.json"


def read_pooling(file: Path) -> str:
    content = read_json(file)
    keys = [key for key, value in content.items() if key.startswith("pooling_mode_") and value is True]
    if isinstance(content.get("pooling_mode"), str):
        keys = [POOLING_KEYS.get(POOLING_WORDS.get(content["pooling_mode"], ""), "")]
    poolings = {key: name for name, key in POOLING_KEYS.items()}
    if len(keys) != 1 or keys[0] not in poolings:
        raise ValueError(
            f"{file}: {', '.join(keys) or 'no pooling'} is not supported, only one of {', '.join(poolings)}"
        )
    return poolings[keys[0]]


def write_modules(folder: Path, sentence_config: SentenceConfig) -> None:
    """Write the files beside a body of Hugging Face; sentence-transformers cannot open one of our own."""
    config = read_json(folder / "config.json")
    if str(config["model_type"]).startswith("regard-"):
        return
    kinds = ["Transformer", "Pooling", *(["Normalize"] if sentence_config.unit else [])]
    paths = ["", "1_Pooling", "2_Normalize"]
    modules = [
        {"idx": i, "name": str(i), "path": path, "type": f"sentence_transformers.models.{kind}"}
        for i, (kind, path) in enumerate(zip(kinds, paths, strict=False))
    ]
    write_json(folder / "modules.json", modules)
    for path in paths[1 : len(kinds)]:
        (folder / path).mkdir(exist_ok=True)
    width = config.get("hidden_size") or config.get("n_embd")
    modes = {key: name == sentence_config.pooling for name, key in POOLING_KEYS.items()}
    write_json(folder / "1_Pooling" / "config.json", {"word_embedding_dimension": width, **modes})
    lengths = {"max_seq_length": sentence_config.limit, "do_lower_case": sentence_config.do_lower_case}
    write_json(folder / "sentence_bert_config.json", lengths)
    if sentence_config.library is not None:
        write_json(folder / LIBRARY, sentence_config.library)
