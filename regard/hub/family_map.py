"""Names: what a family calls its weights and sizes at Hugging Face, and what we call them. One table, read both ways.

    theirs  bert.encoder.layer.3.output.dense.weight   <->   ours  body.blocks.3.feedforward.inner.down.weight
    theirs  rope_parameters.rope_theta                 <->   ours  base

{} stands for the number of a layer, a dot in a key of a config for a config inside the config. Nothing is ever guessed:
a tensor that is missing, left over or of another shape is refused by its name, and a setting by its key and value.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import MISSING, dataclass, field, replace
from functools import cache
from typing import Any

import torch
from torch import Tensor, nn

Fields = Mapping[str, Any]
NEVER_READ = ("quantization_config", "per_layer_config", "pruned_heads")  # what they say of single layers and numbers


@dataclass(frozen=True)
class Rule:
    """How weights of ours become one of theirs: joined along the first dimension, then changed."""

    ours: tuple[str, ...]
    there: Callable[[Tensor], Tensor] = lambda tensor: tensor
    back: Callable[[Tensor], Tensor] = lambda tensor: tensor

    def join(self, parts: list[Tensor]) -> Tensor:
        return self.there(torch.cat(parts) if len(parts) > 1 else parts[0]).contiguous()

    def split(self, whole: Tensor) -> tuple[Tensor, ...]:
        changed = self.back(whole)
        return torch.atleast_1d(changed).tensor_split(len(self.ours)) if len(self.ours) > 1 else (changed,)


def joined(*ours: str) -> Rule:
    return Rule(ours)


def turned(*ours: str) -> Rule:
    """Their matrix lies the other way round."""
    return Rule(ours, lambda tensor: tensor.transpose(0, -1), lambda tensor: tensor.transpose(0, -1))


def framed(ours: str) -> Rule:
    """Theirs is a batch of one."""
    return Rule((ours,), lambda tensor: tensor.unsqueeze(0), lambda tensor: tensor.squeeze(0))


@dataclass(frozen=True)
class ValueMap:
    """A field of ours that they fill with other words. Several of theirs may be one of ours: we write the first."""

    field: str
    words: Mapping[Any, Any]  # theirs -> ours

    def ours(self, key: str, said: Any) -> Any:
        if not isinstance(said, Hashable) or said not in self.words:
            raise ValueError(f"config.json: {key} is {said!r}, but only {self.known} can be read here")
        return self.words[said]

    def theirs(self, value: Any) -> Any:
        return next(word for word, meant in self.words.items() if meant == value)

    @property
    def known(self) -> str:
        return " or ".join(repr(word) for word in self.words)


@dataclass(frozen=True)
class Head:
    """A head of ours that they have too."""

    architecture: str  # their class
    weights: Mapping[str, str | Rule] = field(default_factory=dict)  # theirs -> ours
    says: Callable[[Any], Fields] = lambda head: {}  # their keys that follow from our head


@dataclass(frozen=True)
class FamilyMap:
    family: str  # their model_type
    architecture: str  # their class; without a head, unless `under` one
    model: str  # our name of the body
    sizes: Mapping[str, str | ValueMap]  # their key -> our field; several of theirs may be one of ours
    theirs: Fields  # their keys that our body fixes
    weights: Mapping[str, str | Rule]  # theirs, as a body without a head has them on disk -> ours
    prefix: str = ""  # before these names, if there is a head of theirs
    heads: Mapping[tuple[type, ...], Head] = field(default_factory=dict)  # by our class, and that of its pooling
    ours: Fields = field(default_factory=dict)  # our fields that this family fixes
    reads: Mapping[str, Callable[[Fields], Any]] = field(default_factory=dict)  # our fields that several keys tell
    follows: Mapping[str, Callable[[Fields], Any]] = field(default_factory=dict)  # their keys that our fields fix
    written: Fields = field(default_factory=dict)  # their keys that are not read here; MISSING is not written
    absent: Fields = field(default_factory=dict)  # their key -> what it means that it is not there
    older: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # their key or ending -> what it was before
    twins: Mapping[str, str] = field(default_factory=dict)  # theirs that are another weight once more -> that one
    ignored: tuple[str, ...] = ()  # tensors of theirs that follow from config.json
    kept: tuple[str, ...] = ()  # tensors of theirs that our model has no use for; they are given back on saving
    computed: Mapping[str, str] = field(default_factory=dict)  # theirs that they store and we compute -> our buffer
    head: Head | None = None

    def with_head(self, head: nn.Module | None) -> FamilyMap:
        """The names of this body under a head. One that they do not have keeps its own names: head.*"""
        pooling = getattr(head, "pooling", None)
        found = self.heads.get((type(head), type(pooling)) if pooling is not None else (type(head),))
        if found is None:
            return self
        return replace(self, architecture=found.architecture, written={**self.written, **found.says(head)}, head=found)

    def config_to_ours(self, config: Fields) -> dict[str, Any]:
        """Our fields, from their config.json; ValueError where it says something that our body cannot do."""
        for key in NEVER_READ:
            if config.get(key):
                raise ValueError(f"config.json: {key} is {config[key]!r}, which cannot be read here")
        for key, value in self.theirs.items():
            said = self.said(config, key)
            must_say(key, self.absent.get(key, value) if said is MISSING else said, value)
        fields: dict[str, Any] = dict(self.ours)
        for key, size in self.sizes.items():
            said, usual = self.said(config, key), self.absent.get(key)
            if said is MISSING or (said is None and may_be_null(key, usual)):
                said = value_of(usual, config)
            if said is None:
                raise ValueError(f"config.json has no {key}, which a {self.family} model needs")
            ours, said = (size.field, size.ours(key, said)) if isinstance(size, ValueMap) else (size, said)
            if fields.setdefault(ours, said) != said:
                raise ValueError(f"config.json: {key} is {said}, but {ours} is {fields[ours]} elsewhere in it")
        return fields | {ours: rule(config) for ours, rule in self.reads.items()}

    def must_follow(self, config: Fields, fields: Fields) -> None:
        """Refuse a config.json in which a key that has to follow from the others does not."""
        for key, rule in self.follows.items():
            said, wanted = self.said(config, key), rule(fields)
            must_say(key, wanted if said is MISSING or said is None else said, wanted)

    def said(self, config: Fields, key: str) -> Any:
        """What their config says about a key, under its name or an older one."""
        found = (at(config, name) for name in (key, *self.older.get(key, ())))
        return next((value for value in found if value is not MISSING), MISSING)

    def config_to_theirs(self, fields: Fields, facts: Fields | None = None) -> dict[str, Any]:
        """Their config.json. `facts` are keys of theirs that are known better elsewhere."""
        sizes = {
            key: size.theirs(fields[size.field]) if isinstance(size, ValueMap) else fields[size]
            for key, size in self.sizes.items()
        }
        none = {
            key for key, value in sizes.items() if key.endswith("_token_id") and value < 0
        }  # there is no such token
        sizes = {key: value for key, value in sizes.items() if key not in none}
        fixed = {key: value_of(rule, fields) for key, rule in {**self.theirs, **self.follows, **self.written}.items()}
        fixed = {key: value for key, value in fixed.items() if value is not MISSING}
        begin = {"model_type": self.family, "architectures": [self.architecture]}
        return nested({**begin, **sizes, **fixed, **(facts or {})})

    def to_ours(self, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Names with and without their prefix are read. What stands outside of it is a head, ours or one unknown."""
        prefixed = any(name.startswith(self.prefix) for name in tensors)
        ours: dict[str, Tensor] = {}
        unknown = []
        for name, tensor in tensors.items():
            if found := self.found(name):
                rule, match = found
                parts = dict(zip((one.format(*match.groups()) for one in rule.ours), rule.split(tensor), strict=True))
            elif self.is_one_of(self.ignored + self.kept, name):
                continue
            elif name.startswith("head."):
                parts = {name: tensor}
            elif prefixed and not name.startswith(self.prefix):
                parts = {f"head.{name}": tensor}
            else:
                unknown.append(name)
                continue
            if parts.keys() & ours.keys():
                raise ValueError(f"{name} is there twice, under two names")
            ours |= parts
        must_know(unknown)
        return ours

    def keeps(self, name: str) -> bool:
        """Whether a tensor of theirs has no place in our model, but one in the folder that we write."""
        return self.found(name) is None and self.is_one_of(self.kept, name)

    def found(self, name: str) -> tuple[Rule, re.Match[str]] | None:
        """The line of the table that a tensor of theirs is in; that of a head stands there with its prefix, if any."""
        now = self.respelled(name.removeprefix(self.prefix))
        table = {**self.weights, **(self.head.weights if self.head else {})}
        twins = {name: table[same] for name, same in self.twins.items() if same in table}
        for theirs, rule in {**table, **twins}.items():
            match = pattern(theirs).fullmatch(now) or pattern(theirs).fullmatch(name)
            if match:
                return rule_of(rule), match
        return None

    def is_one_of(self, patterns: tuple[str, ...], name: str) -> bool:
        now = self.respelled(name.removeprefix(self.prefix))
        return any(pattern(one).fullmatch(now) for one in patterns)

    def respelled(self, name: str) -> str:
        for new, before in self.older.items():
            for old in before:
                if name.endswith(old):
                    return name.removesuffix(old) + new
        return name

    def to_theirs(self, tensors: Mapping[str, Tensor], prefixed: bool = False) -> dict[str, Tensor]:
        """With the prefix under a head of theirs, or if a body alone is `prefixed`."""
        table: dict[str, str | Rule] = dict(self.weights)
        if self.head or prefixed:
            table = {self.prefix + theirs: rule for theirs, rule in table.items()}
        table |= self.head.weights if self.head else {}
        left, theirs = dict(tensors), dict[str, Tensor]()
        for name, rule in ((name, rule_of(rule)) for name, rule in table.items()):
            for match in filter(None, map(pattern(rule.ours[0]).fullmatch, tensors)):
                parts = [left.pop(one.format(*match.groups())) for one in rule.ours]
                theirs[name.format(*match.groups())] = rule.join(parts)
        own = {name: tensor for name, tensor in left.items() if name.startswith("head.") and self.head is None}
        must_know(left.keys() - own.keys())
        return theirs | own


@dataclass(frozen=True)
class IdentityMap:
    """A family that Hugging Face does not know: the same folder, with our own names."""

    model: str
    computed: Mapping[str, str] = field(default_factory=dict)

    @property
    def family(self) -> str:
        return f"regard-{self.model}"

    def with_head(self, head: nn.Module | None) -> IdentityMap:
        return self

    def config_to_ours(self, config: Fields) -> dict[str, Any]:
        return {key: value for key, value in config.items() if key not in ("model_type", "dtype")}

    def must_follow(self, config: Fields, fields: Fields) -> None:
        """Every key is a field."""

    def config_to_theirs(self, fields: Fields, facts: Fields | None = None) -> dict[str, Any]:
        """Nobody but us reads it, so `facts` for others are left out."""
        return {"model_type": self.family, **fields}

    def to_ours(self, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        return dict(tensors)

    def to_theirs(self, tensors: Mapping[str, Tensor], prefixed: bool = False) -> dict[str, Tensor]:
        return dict(tensors)


@cache
def pattern(name: str) -> re.Pattern[str]:
    return re.compile(re.escape(name).replace(r"\{\}", r"(\d+)"))


def rule_of(rule: str | Rule) -> Rule:
    return rule if isinstance(rule, Rule) else Rule((rule,))


def may_be_null(key: str, usual: Any) -> bool:
    """Where null says something: there is no such token, or the size follows from the others."""
    return callable(usual) or usual == 0 or key.endswith("_token_id")


def value_of(rule: Any, given: Fields) -> Any:
    return rule(given) if callable(rule) else rule


def at(config: Any, key: str) -> Any:
    """What stands at a key, MISSING if nothing does."""
    for part in key.split("."):
        if not isinstance(config, Mapping) or part not in config:
            return MISSING
        config = config[part]
    return config


def nested(flat: Fields) -> dict[str, Any]:
    """{"a.b": 1} -> {"a": {"b": 1}}"""
    config: dict[str, Any] = {}
    for key, value in flat.items():
        *path, last = key.split(".")
        inside = config
        for part in path:
            inside = inside.setdefault(part, {})
        inside[last] = value
    return config


def must_say(key: str, said: Any, wanted: Any) -> None:
    if said != wanted:
        raise ValueError(f"config.json: {key} is {said!r}, but only {wanted!r} can be read here")


def must_know(unknown: Iterable[str]) -> None:
    names = sorted(unknown)
    if names:
        raise ValueError(f"{len(names)} unexpected weights: {', '.join(names[:5])}{' ...' * (len(names) > 5)}")
