"""Family maps: which tensors and config keys of a Hugging Face family are which of ours, one table for both directions.

    Hugging Face  bert.encoder.layer.3.output.dense.weight   <->   regard  body.blocks.3.feedforward.inner.down.weight
    Hugging Face  text_config.num_hidden_layers              <->   regard  layers

{} stands for a layer number, a dot in a config key for a nested object. Nothing is guessed: a missing, unexpected or
misshapen tensor is refused by its name, an unsupported setting by its key and value.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import MISSING, dataclass, field, replace
from functools import cache
from typing import Any

import torch
from torch import Tensor, nn

from regard.json_files import get_nested, unflatten

Fields = Mapping[str, object]
UNSUPPORTED_KEYS = ("quantization_config", "per_layer_config", "pruned_heads")  # they change single layers or weights


@dataclass(frozen=True)
class TensorRule:
    """One tensor of Hugging Face from tensors of ours: concatenated along the first dimension, then transformed."""

    names: tuple[str, ...]  # ours
    to_hf: Callable[[Tensor], Tensor] = lambda tensor: tensor
    from_hf: Callable[[Tensor], Tensor] = lambda tensor: tensor

    def join(self, parts: list[Tensor]) -> Tensor:
        return self.to_hf(torch.cat(parts) if len(parts) > 1 else parts[0]).contiguous()

    def split(self, tensor: Tensor) -> tuple[Tensor, ...]:
        whole = self.from_hf(tensor)
        return torch.atleast_1d(whole).tensor_split(len(self.names)) if len(self.names) > 1 else (whole,)


Weights = Mapping[str, str | TensorRule]
Sources = dict[str, tuple[TensorRule, list[str]]]  # tensor of Hugging Face -> its rule, and the names of ours


def concat(*names: str) -> TensorRule:
    return TensorRule(names)


def transpose(*names: str) -> TensorRule:
    """Hugging Face stores the transposed matrix."""
    return TensorRule(names, lambda tensor: tensor.transpose(0, -1), lambda tensor: tensor.transpose(0, -1))


@dataclass(frozen=True)
class ValueMap:
    """A field whose values have other names at Hugging Face. Of several names for one value, the first is written."""

    field: str
    values: Mapping[str, str]  # theirs -> ours

    def from_hf(self, key: str, value: object) -> object:
        if not isinstance(value, str) or value not in self.values:
            choices = " or ".join(repr(choice) for choice in self.values)
            raise ValueError(f"config.json: {key} is {value!r}, but only {choices} is supported")
        return self.values[value]

    def to_hf(self, value: object) -> object:
        return next(name for name, meaning in self.values.items() if meaning == value)


@dataclass(frozen=True)
class HeadMap:
    """A head that Hugging Face has too."""

    architecture: str  # class at Hugging Face
    weights: Weights = field(default_factory=dict)  # theirs -> ours
    config_keys: Callable[..., Fields] = lambda head: {}  # keys of config.json that follow from our head


@dataclass(frozen=True)
class FamilyMap:
    family: str  # model_type at Hugging Face
    architecture: str  # class at Hugging Face: the one without a head, until `with_head` replaces it
    model: str  # name of our body
    config_fields: Mapping[str, str | ValueMap]  # key of config.json -> our field; several keys may share a field
    weights: Weights  # tensors of a body without a head -> ours
    required: Fields = field(default_factory=dict)  # keys of config.json -> the one value that our body implements
    prefix: str = ""  # of these names under a head (base_model_prefix)
    heads: Mapping[tuple[type, ...], HeadMap] = field(default_factory=dict)  # by our class, and that of its pooling
    fixed_fields: Fields = field(default_factory=dict)  # our fields -> their value in this family
    derived_fields: Mapping[str, Callable[[Fields], object]] = field(default_factory=dict)  # our fields <- several keys
    derived_keys: Mapping[str, Callable[..., object]] = field(default_factory=dict)  # keys <- our fields; checked
    written_keys: Fields = field(default_factory=dict)  # keys that are written and not read; MISSING is not written
    defaults: Fields = field(default_factory=dict)  # key -> its value if absent
    aliases: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # key or name suffix -> its older spellings
    tied: Mapping[str, str] = field(default_factory=dict)  # tensor that repeats another -> that one
    ignored: tuple[str, ...] = ()  # tensors that follow from config.json
    preserved: tuple[str, ...] = ()  # tensors that our model does not use; saving writes them back
    computed: Mapping[str, str] = field(default_factory=dict)  # stored tensor -> our buffer with the same values
    head: HeadMap | None = None

    @property
    def head_weights(self) -> Weights:
        return self.head.weights if self.head else {}

    def with_head(self, head: nn.Module | None) -> FamilyMap:
        """The map of this body under a head. A head that Hugging Face does not have keeps our names: head.*"""
        pooling = getattr(head, "pooling", None)
        head_map = self.heads.get((type(head), type(pooling)) if pooling is not None else (type(head),))
        if head_map is None:
            return self
        written_keys = {**self.written_keys, **head_map.config_keys(head)}
        return replace(self, architecture=head_map.architecture, written_keys=written_keys, head=head_map)

    def config_from_hf(self, config: Fields) -> dict[str, object]:
        """Our fields from a config.json; ValueError for a setting that our body does not implement."""
        for key in UNSUPPORTED_KEYS:
            if config.get(key):
                raise ValueError(f"config.json: {key} is {config[key]!r}, which is not supported")
        for key, required in self.required.items():
            value = self.config_value(config, key)
            check_value(key, self.defaults.get(key, required) if value is MISSING else value, required)
        fields = dict(self.fixed_fields)
        for key, target in self.config_fields.items():
            value, default = self.config_value(config, key), self.defaults.get(key)
            if value is MISSING or (value is None and null_means_default(key, default)):
                value = evaluate(default, config)
            if value is None:
                raise ValueError(f"config.json has no {key}, which a {self.family} model needs")
            name = field_name(target)
            value = value if isinstance(target, str) else target.from_hf(key, value)
            if fields.setdefault(name, value) != value:
                raise ValueError(f"config.json: {key} is {value}, but {name} is {fields[name]} elsewhere in it")
        return fields | {name: rule(config) for name, rule in self.derived_fields.items()}

    def check_derived_keys(self, config: Fields, fields: Fields) -> None:
        """Refuse a config.json whose derived keys contradict the fields."""
        for key, rule in self.derived_keys.items():
            value, expected = self.config_value(config, key), rule(fields)
            check_value(key, expected if value is MISSING or value is None else value, expected)

    def config_value(self, config: Fields, key: str) -> object:
        """The value of a key or of one of its aliases; MISSING if there is none."""
        values = (get_nested(config, name) for name in (key, *self.aliases.get(key, ())))
        return next((value for value in values if value is not MISSING), MISSING)

    def config_to_hf(self, fields: Fields, task_keys: Fields | None = None) -> dict[str, object]:
        """The config.json of our fields. A negative token id means no such token. `task_keys` override keys that the
        task determines."""
        sizes: dict[str, Any] = {
            key: fields[target] if isinstance(target, str) else target.to_hf(fields[target.field])
            for key, target in self.config_fields.items()
        }
        values = {key: value for key, value in sizes.items() if not (key.endswith("_token_id") and value < 0)}
        rules = {**self.required, **self.derived_keys, **self.written_keys}
        values |= {key: value for key, rule in rules.items() if (value := evaluate(rule, fields)) is not MISSING}
        return unflatten(
            {"model_type": self.family, "architectures": [self.architecture], **values, **(task_keys or {})}
        )

    def tensors_from_hf(self, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Our tensors. Names may have the prefix or not; those outside of the prefix belong to a head."""
        prefixed = any(name.startswith(self.prefix) for name in tensors)
        ours: dict[str, Tensor] = {}
        unexpected = []
        for name, tensor in tensors.items():
            if match := self.match_rule(name):
                rule, layers = match
                parts = dict(zip((part.format(*layers) for part in rule.names), rule.split(tensor), strict=True))
            elif self.matches_any(self.ignored + self.preserved, name):
                continue
            elif name.startswith("head."):
                parts = {name: tensor}
            elif prefixed and not name.startswith(self.prefix):
                parts = {f"head.{name}": tensor}
            else:
                unexpected.append(name)
                continue
            if parts.keys() & ours.keys():
                raise ValueError(f"{name} occurs twice, under two names")
            ours |= parts
        reject_unexpected(unexpected)
        return ours

    def is_preserved(self, name: str) -> bool:
        """Whether our model does not use a tensor, but saving writes it back."""
        return self.match_rule(name) is None and self.matches_any(self.preserved, name)

    def match_rule(self, name: str) -> tuple[TensorRule, tuple[str, ...]] | None:
        """The rule of a tensor, and its layer numbers. Rules of a head contain the prefix, if there is any."""
        canonical = self.canonical_name(name)
        table = {**self.weights, **self.head_weights}
        tied = {repeated: table[first] for repeated, first in self.tied.items() if first in table}
        for hf_name, rule in {**table, **tied}.items():
            match = name_pattern(hf_name).fullmatch(canonical) or name_pattern(hf_name).fullmatch(name)
            if match:
                return as_rule(rule), match.groups()
        return None

    def matches_any(self, patterns: tuple[str, ...], name: str) -> bool:
        canonical = self.canonical_name(name)
        return any(name_pattern(pattern).fullmatch(canonical) for pattern in patterns)

    def canonical_name(self, name: str) -> str:
        """A tensor's name without the prefix, in today's spelling."""
        bare = name.removeprefix(self.prefix)
        for suffix, aliases in self.aliases.items():
            for alias in aliases:
                if bare.endswith(alias):
                    return bare.removesuffix(alias) + suffix
        return bare

    def tensors_to_hf(self, tensors: Mapping[str, Tensor], prefixed: bool = False) -> dict[str, Tensor]:
        """Tensors by the names of Hugging Face; with the prefix under a head of theirs, or if `prefixed`."""
        sources = self.sources_of_hf(tensors, prefixed)
        return {name: rule.join([tensors[part] for part in parts]) for name, (rule, parts) in sources.items()}

    def sources_of_hf(self, names: Collection[str], prefixed: bool = False) -> Sources:
        """Of which tensors of ours, by which rule, each tensor of Hugging Face is made."""
        prefix = self.prefix if self.head or prefixed else ""
        table = {prefix + name: rule for name, rule in self.weights.items()} | dict(self.head_weights)
        sources: Sources = {}
        for name, rule in ((name, as_rule(rule)) for name, rule in table.items()):
            for match in filter(None, map(name_pattern(rule.names[0]).fullmatch, names)):
                sources[name.format(*match.groups())] = rule, [part.format(*match.groups()) for part in rule.names]
        rest = {*names}.difference(*(parts for _, parts in sources.values()))
        head = [name for name in names if name in rest and name.startswith("head.") and self.head is None]
        reject_unexpected(rest - {*head})
        return sources | {name: (as_rule(name), [name]) for name in head}


@dataclass(frozen=True)
class IdentityMap:
    """A family that Hugging Face does not have: the same folder layout, with our own names."""

    model: str
    config_fields: Mapping[str, str | ValueMap] = field(default_factory=dict)
    fixed_fields: Fields = field(default_factory=dict)
    computed: Mapping[str, str] = field(default_factory=dict)

    @property
    def family(self) -> str:
        return f"regard-{self.model}"

    def with_head(self, head: nn.Module | None) -> IdentityMap:
        return self

    def config_from_hf(self, config: Fields) -> dict[str, object]:
        return {key: value for key, value in config.items() if key not in ("model_type", "dtype")}

    def check_derived_keys(self, config: Fields, fields: Fields) -> None:
        """Every key is a field."""

    def config_to_hf(self, fields: Fields, task_keys: Fields | None = None) -> dict[str, object]:
        """Only regard reads it, and finds `task_keys` in task.json."""
        return {"model_type": self.family, **fields}

    def tensors_from_hf(self, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        return dict(tensors)

    def tensors_to_hf(self, tensors: Mapping[str, Tensor], prefixed: bool = False) -> dict[str, Tensor]:
        return dict(tensors)

    def sources_of_hf(self, names: Collection[str], prefixed: bool = False) -> Sources:
        return {name: (as_rule(name), [name]) for name in names}


@cache
def name_pattern(name: str) -> re.Pattern[str]:
    return re.compile(re.escape(name).replace(r"\{\}", r"(\d+)"))


def as_rule(rule: str | TensorRule) -> TensorRule:
    return rule if isinstance(rule, TensorRule) else TensorRule((rule,))


def field_name(target: str | ValueMap) -> str:
    return target if isinstance(target, str) else target.field


def null_means_default(key: str, default: object) -> bool:
    """Where null is a valid value: no such token, or a size that follows from others."""
    return callable(default) or default == 0 or key.endswith("_token_id")


def evaluate(rule: object, fields: Fields) -> object:
    return rule(fields) if callable(rule) else rule


def check_value(key: str, value: object, expected: object) -> None:
    if value != expected:
        raise ValueError(f"config.json: {key} is {value!r}, but only {expected!r} is supported")


def reject_unexpected(unexpected: Iterable[str]) -> None:
    names = sorted(unexpected)
    if names:
        raise ValueError(f"{len(names)} unexpected weights: {', '.join(names[:5])}{' ...' * (len(names) > 5)}")
