"""One table per family: its names at Hugging Face on the left, ours on the right.

A body without a table, or with a setting that its family does not have, is written under our own names.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path

from regard.hub.family_map import FamilyMap, Fields, IdentityMap, name_pattern
from regard.hub.tables.bert import BERT, ROBERTA
from regard.hub.tables.clip import CLIP, CLIP_TEXT, CLIP_VISION
from regard.hub.tables.gpt import GPT2
from regard.hub.tables.llama import LLAMA, MISTRAL, NANOCHAT, QWEN2
from regard.hub.tables.marian import MARIAN, PEGASUS
from regard.hub.tables.modernbert import MODERNBERT
from regard.hub.tables.shared_entries import NEUTRAL_VALUES, OUTPUT
from regard.hub.tables.vit import VIT
from regard.models import MODELS

FAMILY_MAPS = (
    *(MARIAN, PEGASUS, GPT2, QWEN2, LLAMA, MISTRAL, NANOCHAT),
    *(BERT, ROBERTA, MODERNBERT, VIT, CLIP, CLIP_TEXT, CLIP_VISION),
)
HF_FAMILIES = {family_map.family: family_map for family_map in FAMILY_MAPS}
OWN_FAMILIES = {identity.family: identity for identity in map(IdentityMap, MODELS)}
ALL_FAMILIES: dict[str, FamilyMap | IdentityMap] = {**HF_FAMILIES, **OWN_FAMILIES}


def map_for_body(model: str, fields: Fields, origin: object = None) -> FamilyMap | IdentityMap:
    """The family that a body of ours is written as: that of the model_type `origin`, or the first that fits."""
    names = sorted(ALL_FAMILIES, key=lambda name: name != origin)
    maps = [ALL_FAMILIES[name] for name in names if ALL_FAMILIES[name].model == model]
    return next(each for each in maps if all(fields[name] == value for name, value in each.fixed_fields.items()))


def architecture_of(config: Fields) -> str:
    """The class that a config.json names; empty if it names none."""
    names = config.get("architectures")
    return str(names[0]) if isinstance(names, list) and names else ""


def map_for_type(model_type: object, stored: Iterable[str] = ()) -> FamilyMap | IdentityMap:
    """The map of a model_type. An unknown one is refused even if its tensors fit another family's table: they may mean
    something else there."""
    if isinstance(model_type, str) and model_type in ALL_FAMILIES:
        return ALL_FAMILIES[model_type]
    if model_type is None and (matches := match_architectures(stored)):
        names = " or ".join(match.architecture for match in matches)
        line = f'"model_type": "{matches[0].family}", "architectures": ["{matches[0].architecture}"]'
        raise ValueError(f"no model_type, and its weights are those of {names}: add {line}")
    letters = {re.sub(r"[\W_]", "", name): name for name in HF_FAMILIES}
    similar = letters.get(re.sub(r"[\W_]", "", str(model_type).lower()))
    problem = f"unknown, did you mean {similar}?" if similar else "not supported yet:"
    raise ValueError(
        f"model_type {model_type!r:.80} is {problem} regard reads {', '.join(HF_FAMILIES)} and its own folders"
    )


def match_architectures(stored: Iterable[str], families: Iterable[FamilyMap] = HF_FAMILIES.values()) -> list[FamilyMap]:
    """The families that have all of these tensor names, each with the head that matches most of them."""
    names = [*stored]
    matches = []
    for family_map in families:
        prefixed = any(name.startswith(family_map.prefix) for name in names)
        heads = [head for head in family_map.heads.values() if prefixed and all(map(is_stored(names), head.weights))]
        maps = [replace(family_map, head=head, architecture=head.architecture) for head in heads] or [family_map]
        best = max(maps, key=lambda candidate: len(candidate.head_weights))
        if names and all(has_tensor(best, name) for name in names):
            matches.append(best)
    return matches


def is_stored(names: list[str]) -> Callable[[str], bool]:
    """Whether a pattern matches one of these names; an output layer may be tied to the embedding, and not stored."""
    return lambda pattern: pattern in OUTPUT or any(name_pattern(pattern).fullmatch(name) for name in names)


def has_tensor(family_map: FamilyMap, name: str) -> bool:
    unused = family_map.ignored + family_map.preserved
    return family_map.match_rule(name) is not None or family_map.matches_any(unused, name)


def check_supported(family_map: FamilyMap, config: Fields, stored: Iterable[str], folder: Path) -> None:
    """Refuse a class of another family, naming the weights that only it has, and settings of other families."""
    architectures = config.get("architectures")
    if isinstance(architectures, list) and architectures:  # other types are refused where the task is read
        family = family_map.architecture.removesuffix("Model")
        if not str(architectures[0]).lower().startswith(family.lower()):
            maps = [family_map, *(replace(family_map, head=head) for head in family_map.heads.values())]
            unknown = {name.rpartition(".")[0] for name in stored if not any(has_tensor(m, name) for m in maps)}
            owns = f": {', '.join(sorted(unknown)[:9])} {'is its' if len(unknown) == 1 else 'are its'} own"
            raise ValueError(
                f"{folder / 'config.json'}: architectures is {architectures[0]!r:.80}, which is no class of the family "
                f"{family_map.family}{owns * bool(unknown)}. regard reads {family}Model and {family}For..."
            )
    own_keys = {
        *(*family_map.config_fields, *family_map.required, *family_map.derived_keys),
        *(*family_map.written_keys, *family_map.defaults),
    }
    towers = {"": config} | {f"{key}.": config[key] for key in ("text_config", "vision_config") if key in config}
    for prefix, tower in ((prefix, tower) for prefix, tower in towers.items() if isinstance(tower, Mapping)):
        for key in NEUTRAL_VALUES.keys() & tower.keys() - own_keys:
            values = tower[key] if isinstance(tower[key], list) else [tower[key]]
            if any(value is not None and value not in NEUTRAL_VALUES[key] for value in values):
                setting = f"{folder / 'config.json'}: {prefix}{key} is {tower[key]!r:.80}"
                raise ValueError(
                    f"{setting}, which a {family_map.family} does not have and regard does not support yet"
                )
