"""Infer the task of a Hugging Face folder and its settings.

The architecture in config.json gives the task; config.json, generation_config.json and the files of
sentence-transformers give labels, pooling, special tokens and generation settings.
"""

from __future__ import annotations

import math
import warnings
from pathlib import Path
from typing import Any

from regard.data.tokenizer import Tokenizer
from regard.generation_config import PROCESSOR_KEYS, SUPPORTED_KEYS, unsupported_settings
from regard.hub.family_map import Fields
from regard.hub.tables import HF_FAMILIES, architecture_of, check_supported, match_architectures
from regard.hub.weights import SAFE_INDEX, SAFE_WEIGHTS, read_headers
from regard.json_files import lexists, read_json
from regard.options import make
from regard.parts.pooling import EosPool
from regard.sampling import LogitsProcessor
from regard.tasks import TASKS
from regard.tasks.sentence_transformers_config import read_modules
from regard.validate import ModelWarning

ARCHITECTURE_SUFFIXES = {  # of the class in config.json -> task
    "ForMaskedLM": "fill",
    "ForPreTraining": "fill",
    "ForSequenceClassification": "classify",
    "ForImageClassification": "classify",
    "ForTokenClassification": "tag",
    "ForQuestionAnswering": "answer",
    "ForCausalLM": "write",
    "LMHeadModel": "write",
    "MTModel": "translate",
    "ModelWithProjection": "embed",
    "ForConditionalGeneration": "translate",
    "CLIPModel": "match",
    "Model": "embed",
}
MAX_PROJECTION = 2**16
PROBLEM_TYPES = ("regression", "single_label_classification", "multi_label_classification")
CLASSIFIER_POOLING = {"cls": "first", "mean": "mean"}  # ModernBERT's words -> ours
TOWER_POOLING = {"vit": "first", "clip_vision_model": "first", "clip_text_model": "last"}  # of a body alone
FAMILIES_WITH_HEADS = ("bert", "roberta", "modernbert", "vit")  # heads for labels, values, tags and spans can be read
TRANSFORMERS_DEFAULTS = {  # values of absent keys; old versions wrote them out in config.json
    **{"max_length": 20, "min_length": 0, "do_sample": False, "temperature": 1.0, "top_k": 50, "top_p": 1.0},
    **{"num_beams": 1, "length_penalty": 1.0, "repetition_penalty": 1.0, "no_repeat_ngram_size": 0},
}


def infer_task(folder: Path) -> str:
    """The name of the task that a Hugging Face folder is for."""
    file = folder / "config.json"
    config = read_json(file)
    if str(config.get("model_type")).startswith("regard-"):
        raise ValueError(f"{folder} has no task.json, which names the task of a model of regard")
    architectures = config.get("architectures")
    if architectures is None:  # older folders
        architectures = [headless_architecture(folder, config)]
    if not isinstance(architectures, list) or not architectures:
        raise ValueError(f"{file}: architectures must be a list of names, not {architectures!r:.80}")
    architecture = str(architectures[0])
    task = next((name for suffix, name in ARCHITECTURE_SUFFIXES.items() if architecture.endswith(suffix)), None)
    if task is None:
        if family_map := HF_FAMILIES.get(str(config.get("model_type"))):
            check_supported(family_map, config, tensor_names(folder), folder)
        raise ValueError(
            f"{file}: the architecture {architecture} is not supported: "
            f"supported names end in {', '.join(ARCHITECTURE_SUFFIXES)}"
        )
    problem = config.get("problem_type")
    if problem not in (None, *PROBLEM_TYPES):
        raise ValueError(f"{file}: problem_type must be one of {', '.join(PROBLEM_TYPES)}, not {problem!r:.80}")
    single_output = task == "classify" and (problem == "regression" or len(read_labels(config, folder)) == 1)
    return "regress" if single_output else task


def headless_architecture(folder: Path, config: Fields) -> str:
    """The suffix of a body alone; ValueError if the weights have a head, because config.json has to name it."""
    family_map = HF_FAMILIES.get(str(config.get("model_type")))
    if family_map and (matches := match_architectures(tensor_names(folder), [family_map])) and matches[0].head:
        name = matches[0].architecture
        raise ValueError(
            f"{folder / 'config.json'} has no architectures, and its weights are those of {name}: "
            f'add "architectures": ["{name}"]'
        )
    return "Model"


def tensor_names(folder: Path) -> list[str]:
    return [*read_headers(folder)] if lexists(folder / SAFE_WEIGHTS) or lexists(folder / SAFE_INDEX) else []


def read_labels(config: Fields, folder: Path) -> list[str]:
    """The labels in the order of their ids. Like transformers, two unnamed ones if config.json has none."""
    id2label, file = config.get("id2label"), folder / "config.json"
    count = config.get("num_labels", 2 if id2label is None else 0)
    if id2label is None and (type(count) is not int or not 0 < count < 10**6):
        raise ValueError(f"{file}: num_labels must be a number of labels, not {count!r:.80}")
    names = {} if id2label is None else id2label
    if isinstance(names, dict) and type(count) is int and count < 10**6:
        names = {str(i): f"LABEL_{i}" for i in range(len(names), count)} | names  # id2label may name only the first two
    labels = [names.get(str(i)) for i in range(len(names))] if isinstance(names, dict) else [None]
    if not all(isinstance(label, str | int) for label in labels):
        raise ValueError(f"{file}: id2label must name the labels 0, 1, 2 ..., not {names!r:.100}")
    return [str(label) for label in labels]


def task_fields(task: str, folder: Path) -> dict[str, object]:
    """The fields of a task that a Hugging Face folder determines."""
    config = read_json(folder / "config.json")
    if task == "embed":
        tower = {} if lexists(folder / "modules.json") else tower_fields(config, folder)
        return read_modules(folder)._asdict() | tower
    if task == "translate":
        start = read_token_id(folder, config, "decoder_start_token_id")
        return {"decoder_start_token": start, "generation_config": supported_generation_settings(folder, config, task)}
    if task == "write":
        ends = read_eos_ids(folder, config)
        return {"eos_tokens": ends, "generation_config": supported_generation_settings(folder, config, task)}
    if task in ("tag", "classify", "regress", "answer") and config.get("model_type") not in FAMILIES_WITH_HEADS:
        raise ValueError(
            f"{folder}: a {config.get('model_type')} is read without its head for the task {task}: "
            f"regard train {task} --from {folder} --new-head trains another one"
        )
    if task == "tag":
        return {"tags": read_labels(config, folder)}
    pooling = family_pooling(config, folder)
    if task == "classify":
        many = config.get("problem_type") == "multi_label_classification"
        return {"labels": read_labels(config, folder), "multi_label": many, "pooling": pooling}
    return {"mean": 0.0, "std": 1.0, "pooling": pooling} if task == "regress" else {}


def tower_fields(config: Fields, folder: Path) -> dict[str, object]:
    """Pooling and projection of `embed` for a body alone; no pooling means the mean."""
    pooling = TOWER_POOLING.get(str(config["model_type"]))
    fields: dict[str, object] = {} if pooling is None else {"pooling": pooling}
    if architecture_of(config).endswith("WithProjection"):
        width = config.get("projection_dim", 512)
        if type(width) is not int or not 0 < width <= MAX_PROJECTION:
            file = folder / "config.json"
            raise ValueError(f"{file}: projection_dim must be from 1 to {MAX_PROJECTION}, not {width!r:.80}")
        fields["projection"] = width
    return fields


def family_pooling(config: Fields, folder: Path) -> str:
    """The pooling of a family's sequence classifier."""
    family, pooling = config.get("model_type"), config.get("classifier_pooling", "cls")
    if family != "modernbert":
        return "first" if family == "vit" else "pooler"
    if not isinstance(pooling, str) or pooling not in CLASSIFIER_POOLING:
        raise ValueError(f'{folder / "config.json"}: classifier_pooling is {pooling!r}, but must be "cls" or "mean"')
    return CLASSIFIER_POOLING[pooling]


def check_clip_eos(folder: Path, tokenizer: Tokenizer) -> None:
    """Refuse a text tower of CLIP whose eos_token_id, where it pools, is not the tokenizer's; 2 is the highest id."""
    eos = read_json(folder / "config.json").get("eos_token_id", 49_407)
    [ids] = tokenizer.encode(["a"])
    if ids[-1:] != [len(tokenizer) - 1 if eos == EosPool.HIGHEST else eos] or ids[-1] in ids[:-1]:
        problem = (
            f"{folder / 'config.json'}: eos_token_id is {eos!r:.80}, but the tokenizer ends a text with {ids[-1:]}"
        )
        raise ValueError(f"{problem}: a CLIP takes its vector from there, so the two must agree")


def read_generation_config(folder: Path, config: Fields) -> tuple[Fields, Path]:
    """The generation settings, and the file that they are from: config.json in older folders."""
    file = folder / "generation_config.json"
    if lexists(file):
        return read_json(file), file
    settings = {key: value for key, value in config.items() if TRANSFORMERS_DEFAULTS.get(key) != value}
    return settings, folder / "config.json"


def read_eos_ids(folder: Path, config: Fields) -> tuple[int, ...]:
    """The ids of the tokens that end a text, without those outside of the vocabulary."""
    eos, size = read_token_id(folder, config, "eos_token_id", in_vocab=False), config.get("vocab_size")
    ids = eos if isinstance(eos, list) else [] if eos is None else [eos]
    return tuple(token for token in ids if not isinstance(size, int) or token < size)


def read_token_id(folder: Path, config: Fields, key: str, in_vocab: bool = True) -> int | list[int] | None:
    """A token id, a list of them, or None, from generation_config.json or else config.json. `in_vocab` refuses ids
    outside of the vocabulary."""
    file = folder / "generation_config.json"
    settings = read_json(file) if file.is_file() else {}
    value: Any = settings.get(key, config.get(key))
    source = file if key in settings else folder / "config.json"
    ids = value if isinstance(value, list) else [0 if value is None else value]
    size = config.get("vocab_size")
    limit = size if isinstance(size, int) and in_vocab else math.inf
    if not all(type(token) is int and 0 <= token < limit for token in ids):
        raise ValueError(f"{source}: {key} must be the number of a token, or several, not {value!r:.80}")
    return value


def supported_generation_settings(folder: Path, config: Fields, task: str) -> Fields | None:
    """The generation settings of a folder that regard implements."""
    settings, file = read_generation_config(folder, config)
    supported = {key: settings[key] for key in SUPPORTED_KEYS if settings.get(key) is not None}
    try:
        TASKS[task].decode_options(**TASKS[task].decode_defaults(supported))
        make(LogitsProcessor, {key: value for key, value in supported.items() if key in PROCESSOR_KEYS})
    except (ValueError, TypeError) as error:
        raise ValueError(f"{file}: {error}") from None
    return supported or None


def warn_unsupported_settings(folder: Path, task: str) -> None:
    """Warn about generation settings of a folder that regard does not implement."""
    config = read_json(folder / "config.json")
    settings, file = read_generation_config(folder, config)
    context = config.get("max_position_embeddings", config.get("n_positions"))
    length = context if isinstance(context, int) else 0
    if rest := unsupported_settings(settings, [*read_eos_ids(folder, config)], length, task == "translate"):
        unsupported = ", ".join(f"{key} {value!r:.40}" for key, value in rest.items())
        warnings.warn(f"{file} has settings that regard ignores: {unsupported}", ModelWarning, stacklevel=4)
