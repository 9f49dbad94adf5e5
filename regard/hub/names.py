"""Names: what a family calls its weights and sizes at Hugging Face, and what we call them. One table, read both ways.

    theirs  model.encoder.layers.3.fc1.weight   <->   ours  body.encoder.3.feedforward.inner.up.weight

A table's {} stands for the number of a layer. Nothing is ever guessed: a tensor that is missing, left over or of
another shape is refused by its name.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor


@dataclass(frozen=True)
class Names:
    family: str  # their model_type
    architecture: str  # their class
    model: str  # our name of the body
    sizes: Mapping[str, str]  # their config key -> our config field; several of theirs may be one of ours
    ours: Mapping[str, Any]  # our fields that this family fixes
    theirs: Mapping[str, Any]  # their keys that our body fixes
    weights: Mapping[str, str]  # theirs, as written on disk -> ours
    computed: Mapping[str, str] = field(default_factory=dict)  # theirs that they store and we compute -> our buffer

    def config_to_ours(self, config: Mapping[str, Any]) -> dict[str, Any]:
        """Our fields, from their config.json; ValueError where it says something that our body cannot do."""
        for key, value in self.theirs.items():
            if key in config and config[key] != value:
                raise ValueError(f"config.json: {key} is {config[key]!r}, but only {value!r} can be read here")
        fields: dict[str, Any] = dict(self.ours)
        for key, ours in self.sizes.items():
            if key not in config:
                raise ValueError(f"config.json has no {key}, which a {self.family} model needs")
            if fields.setdefault(ours, config[key]) != config[key]:
                raise ValueError(f"config.json: {key} is {config[key]}, but {ours} is {fields[ours]} elsewhere in it")
        return fields

    def config_to_theirs(self, fields: Mapping[str, Any]) -> dict[str, Any]:
        sizes = {key: fields[ours] for key, ours in self.sizes.items()}
        return {"model_type": self.family, "architectures": [self.architecture], **sizes, **self.theirs}

    def to_ours(self, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        return _renamed(tensors, self.weights)

    def to_theirs(self, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        return _renamed(tensors, {ours: theirs for theirs, ours in self.weights.items()})


def _renamed(tensors: Mapping[str, Tensor], table: Mapping[str, str]) -> dict[str, Tensor]:
    patterns = [(re.compile(re.escape(old).replace(r"\{\}", r"(\d+)")), new) for old, new in table.items()]
    renamed, unknown = {}, []
    for name, tensor in tensors.items():
        for pattern, new in patterns:
            if match := pattern.fullmatch(name):
                renamed[new.format(*match.groups())] = tensor
                break
        else:
            unknown.append(name)
    if unknown:
        raise ValueError(
            f"{len(unknown)} unexpected weights: {', '.join(sorted(unknown)[:5])}{' ...' * (len(unknown) > 5)}"
        )
    return renamed
