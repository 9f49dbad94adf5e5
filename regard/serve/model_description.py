"""What a client has to know of a model: the fields of its input, its options, an example. Read without the weights."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import Literal

import msgspec

from regard.hub.task_config import read_decode_defaults, read_task, read_task_file
from regard.loaded_model import LoadedModel
from regard.modalities import MODALITIES
from regard.modalities.protocols import Preprocessor
from regard.options import Option, check_known, normalize_value, options_of
from regard.serve.errors import INVALID, ApiError
from regard.serve.registry import ModelInfo
from regard.serve.request_fields import input_fields, input_kind
from regard.serve.schemas_run import DecodeOption, InputField, ModelDescription, OptionValue
from regard.tasks import TASKS
from regard.validate import matches_type

TEXT_OPTIONS = ("prompt", "stop")  # other options that are texts name files and environments of the server
MAX_OPTIONS = {"num_beams": 64, "num_return": 64, "horizon": 10_000}  # of one request
TAIL = 1 << 17  # bytes at the end of metrics.jsonl in which samples are looked for
MAX_EXAMPLE = 160  # characters
# Inputs to try, for models whose folder records none.
EXAMPLES: dict[str, dict[str, str | list[str]]] = {
    "translate": {"text": "The cat sleeps on the sofa."},
    "write": {"text": "Once upon a time"},
    "fill": {"text": "The cat [MASK] on the sofa."},
    "answer": {
        "question": "Where does Paul live?",
        "document": "Anna lives in Vienna. Her brother Paul moved to Berlin two years ago.",
    },
    "embed": {"text": "A cat sleeps.", "candidates": ["A cat is asleep.", "The train is late."]},
    "match": {"texts": ["a photo of a cat", "a photo of a dog"]},
}


def describe_model(info: ModelInfo) -> dict[str, object]:
    """The entries of /v1/models beside those of OpenAI: task, modality, input, fields, streams, loaded, example ..."""
    description = read_description(info._replace(is_loaded=False))
    return {**msgspec.to_builtins(description), "loaded": info.is_loaded}


@lru_cache(maxsize=256)
def read_description(info: ModelInfo) -> ModelDescription:
    task, preprocessor = TASKS[info.task], read_task(info.folder).preprocessor
    has_tokens = preprocessor.tokenizer is not None
    fields = input_fields(info.task, MODALITIES[info.modality])
    return ModelDescription(
        task=info.task,
        modality=info.modality,
        description=task.description,
        input=input_kind(fields),
        fields=fields,
        streams=task.generates,
        looks=has_tokens or preprocessor.has_pictures,
        aligns=has_tokens and "encoder-decoder" in task.structures,
        loaded=False,
        example=find_example(info, fields),
        options=decode_options(info),
    )


def decode_options(info: ModelInfo) -> list[DecodeOption]:
    """The options of a request, with the defaults of the folder."""
    kind, defaults = TASKS[info.task].decode_options, read_decode_defaults(info.folder)
    both_ways = bool((read_task_file(info.folder) or {}).get("both_ways"))
    options = {name: option for name, option in remote_options(kind).items() if name != "back" or both_ways}
    return [
        DecodeOption(name, json_type(option), plain_default(defaults.get(name, option.default)), option.help)
        for name, option in options.items()
    ]


def remote_options(kind: type) -> dict[str, Option]:
    """The options that a client may set: numbers, flags, and texts that name nothing on the server."""

    def is_text(option: Option) -> bool:
        return matches_type("text", option.kind) or matches_type(("text",), option.kind)

    return {name: option for name, option in options_of(kind).items() if name in TEXT_OPTIONS or not is_text(option)}


def json_type(option: Option) -> Literal["boolean", "integer", "number", "string"]:
    """The type of an option in JSON schema."""
    if matches_type(True, option.kind):
        return "boolean"
    if matches_type(0.5, option.kind):
        return "number"
    return "integer" if matches_type(1, option.kind) else "string"


def plain_default(value: object) -> OptionValue:
    return [str(item) for item in value] if isinstance(value, tuple) else value  # type: ignore[return-value]


def make_decode_options(loaded: LoadedModel, values: Mapping[str, OptionValue]) -> object:
    """The decode options of a request: checked, and within the limits of a server."""
    known = remote_options(loaded.task.decode_options)
    try:
        check_known("option", dict.fromkeys(values), dict.fromkeys(known, Option(object, None, "")))
        options = {name: normalize_value(name, value, known[name].kind) for name, value in values.items()}
        for name, most in MAX_OPTIONS.items():
            if isinstance(value := options.get(name), int) and value > most:
                raise ApiError(
                    INVALID, f"{name} must be at most {most:,} in a request, not {value:,}", f"options.{name}"
                )
        return loaded.make_options(**options)
    except (ValueError, TypeError) as error:
        raise ApiError(INVALID, f"options: {error}", "options") from None


def find_example(info: ModelInfo, fields: list[InputField]) -> dict[str, str | list[str]]:
    """An input to try: samples of the last evaluation, the example of the modality, or one that fits the task."""
    samples = read_samples(info.folder) if fields[0].name in ("text", "file") else []
    default, is_general = EXAMPLES.get(info.task, {}), info.example == Preprocessor.example
    example: dict[str, str | list[str]] = {}
    for field in fields:
        if field.kind == "texts" and samples:
            example[field.name] = [*dict.fromkeys(sample["target"] for sample in samples)]
        elif field.kind == "text" and samples:
            example[field.name] = shorten_example(samples[0]["source"])
        elif field.name in default and (is_general or field.kind == "texts"):
            example[field.name] = default[field.name]
        elif field.kind == "text":
            example[field.name] = info.example
    return example


def read_samples(folder: Path) -> list[dict[str, str]]:
    """Source and target of some rows of the validation set, which the training run has recorded."""
    with suppress(OSError, ValueError, KeyError, TypeError), open(folder / "metrics.jsonl", "rb") as file:
        file.seek(max(0, file.seek(0, os.SEEK_END) - TAIL))
        for line in reversed(file.read().split(b"\n")):
            if b'"samples"' in line:
                rows = json.loads(line)["samples"]
                return [{name: str(row[name]) for name in ("source", "target")} for row in rows]
    return []


def shorten_example(text: str) -> str:
    """The first sentences, or all if it is short."""
    if len(text) <= MAX_EXAMPLE:
        return text
    ends = [match.end() for match in re.finditer(r"[.!?](?=\s)", text[: MAX_EXAMPLE + 1])]
    return text[: ends[-1]] if ends else text[:MAX_EXAMPLE]
