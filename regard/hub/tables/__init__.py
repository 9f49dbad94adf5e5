"""One table for each family: its names at Hugging Face on the left, ours on the right.

A family without a table, or a body with a setting that its family does not have, is written under our own names.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from regard.hub.family_map import FamilyMap, IdentityMap, pattern
from regard.hub.tables.bert import BERT, ROBERTA
from regard.hub.tables.clip import CLIP, CLIP_TEXT, CLIP_VISION
from regard.hub.tables.gpt import GPT2
from regard.hub.tables.llama import LLAMA, MISTRAL, NANOCHAT, QWEN2
from regard.hub.tables.marian import MARIAN, PEGASUS
from regard.hub.tables.modernbert import MODERNBERT
from regard.hub.tables.shared_entries import OTHER_KEYS, OUTPUT
from regard.hub.tables.vit import VIT
from regard.models import MODELS

FAMILIES = (
    *(MARIAN, PEGASUS, GPT2, QWEN2, LLAMA, MISTRAL, NANOCHAT),
    *(BERT, ROBERTA, MODERNBERT, VIT, CLIP, CLIP_TEXT, CLIP_VISION),
)
HF_FAMILIES = {names.family: names for names in FAMILIES}
PLAIN = {plain.family: plain for plain in map(IdentityMap, MODELS)}
TABLES: dict[str, FamilyMap | IdentityMap] = {**HF_FAMILIES, **PLAIN}


def table_for(model: str, fields: dict[str, object]) -> FamilyMap | IdentityMap:
    """The family that a body of ours is written as: the first that fits."""
    for names in HF_FAMILIES.values():
        if names.model == model and all(fields[key] == value for key, value in names.ours.items()):
            return names
    return PLAIN[f"regard-{model}"]


def table_of(kind: Any, stored: Iterable[str] = ()) -> FamilyMap | IdentityMap:
    """The table of a model_type. Of one that we do not read nothing is guessed: its weights may fit the table of
    another family, and mean something else there."""
    if isinstance(kind, str) and kind in TABLES:
        return TABLES[kind]
    if kind is None and (fitting := classes_of(stored)):
        names = " or ".join(names.architecture for names in fitting)
        line = f'"model_type": "{fitting[0].family}", "architectures": ["{fitting[0].architecture}"]'
        raise ValueError(f"no model_type, and its weights are those of {names}: add {line}")
    letters = {re.sub(r"[\W_]", "", name): name for name in HF_FAMILIES}
    same = letters.get(re.sub(r"[\W_]", "", str(kind).lower()))
    told = f"unknown, did you mean {same}?" if same else "not supported yet:"
    raise ValueError(
        f"model_type {kind!r:.80} is {told} regard reads {', '.join(HF_FAMILIES)} and what it wrote itself"
    )


def classes_of(stored: Iterable[str], families: Iterable[FamilyMap] = HF_FAMILIES.values()) -> list[FamilyMap]:
    """The classes, one for each family, whose weights these are, by their names alone."""
    tensors = [*stored]
    fitting = []
    for names in families:
        headed = any(tensor.startswith(names.prefix) for tensor in tensors)
        heads = [head for head in names.heads.values() if headed and all(map(any_of(tensors), head.weights))]
        with_head = [replace(names, head=head, architecture=head.architecture) for head in heads] or [names]
        best = max(with_head, key=lambda one: len(one.head.weights) if one.head else 0)
        if tensors and all(best.found(name) or best.is_one_of(best.ignored + best.kept, name) for name in tensors):
            fitting.append(best)
    return fitting


def any_of(tensors: list[str]) -> Callable[[str], bool]:
    """Whether one has this name; an output layer may be the embedding, and not stored."""
    return lambda name: name in OUTPUT or any(pattern(name).fullmatch(tensor) for tensor in tensors)


def is_theirs(names: FamilyMap, tensor: str) -> bool:
    """Whether some class of a family has such a tensor."""
    every = [names, *(replace(names, head=head) for head in names.heads.values())]
    return any(one.found(tensor) or one.is_one_of(one.ignored + one.kept, tensor) for one in every)


def must_be_supported(names: FamilyMap, config: Mapping[str, Any], stored: Iterable[str], folder: Path) -> None:
    """Refuse a class, with the weights that are its own, or a setting of another family."""
    said = config.get("architectures")
    if isinstance(said, list) and said:  # what is no list is refused where the task is read
        family = names.architecture.removesuffix("Model")
        if not str(said[0]).lower().startswith(family.lower()):
            told = f"{folder / 'config.json'}: architectures is {said[0]!r:.80}, which is no class of the family "
            told += names.family
            strange = sorted({name.rpartition(".")[0] for name in stored if not is_theirs(names, name)})
            told += f": {', '.join(strange[:9])} {'is its' if len(strange) == 1 else 'are its'} own" * bool(strange)
            raise ValueError(f"{told}. regard reads {family}Model and {family}For...")
    own = {*names.sizes, *names.theirs, *names.follows, *names.written, *names.absent}
    towers = {"": config} | {f"{key}.": config[key] for key in ("text_config", "vision_config") if key in config}
    for where, said in ((where, said) for where, said in towers.items() if isinstance(said, Mapping)):
        for key in OTHER_KEYS.keys() & said.keys() - own:
            values = said[key] if isinstance(said[key], list) else [said[key]]
            if any(value is not None and value not in OTHER_KEYS[key] for value in values):
                told = f"{folder / 'config.json'}: {where}{key} is {said[key]!r:.80}"
                raise ValueError(f"{told}, which a {names.family} does not have and regard does not support yet")
