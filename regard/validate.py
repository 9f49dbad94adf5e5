"""Validation of names, types and values, with errors that name the field, the value and the remedy."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from dataclasses import fields
from difflib import get_close_matches
from os import PathLike, fspath
from typing import Any, get_args, get_origin

TYPE_NAMES = {int: "a whole number", float: "a number", bool: "True or False", str: "a text", type(None): "None"}
MAX_FLOAT = 1e38  # about the largest finite float32
TOKEN_IDS = ("pad", "sep")  # fields of a config that may be negative: counted from the end, or absent


class ModelWarning(UserWarning):
    """A warning about a loaded model, e.g. a generation setting that it ignores. A command prints it as one line."""


class TrackingWarning(UserWarning):
    """An experiment tracker failed, and the training goes on without it. A command prints it as one line."""


class FieldError(ValueError):
    """An invalid value of a dataclass field. `field` is the name of the field."""

    def __init__(self, field: str, problem: str):
        super().__init__(f"{field.replace('_', '-')} {problem}")
        self.field = field


class InputTooLong(ValueError):
    """An input has more tokens than the model can read at once."""

    def __init__(self, tokens: int, context: int, message: str = ""):
        default = f"the input has {tokens:,} tokens, and the context of the model {context:,}: shorten it"
        super().__init__(message or default)
        self.tokens, self.context = tokens, context


def check_choice(what: str, name: object, choices: Iterable[str]) -> None:
    """Raise ValueError unless `name` is one of `choices`; the message suggests the nearest one.

    >>> check_choice("device", "gpu", ("auto", "cpu", "cuda"))
    ValueError: unknown device 'gpu': did you mean cpu?
    """
    names = list(choices)
    if name not in names:
        near = get_close_matches(str(name), names, 1, 0.5)
        hint = f"did you mean {near[0]}?" if near else f"choose one of {', '.join(names)}"
        raise ValueError(f"unknown {what} {name!r}: {hint}")


def matches_type(value: object, kind: Any) -> bool:
    """Whether `value` has the type `kind`: a plain type, a union, a Literal, a list or a tuple. True is no number; an
    int is a float."""
    if get_origin(kind) in (list, tuple):
        return isinstance(value, list | tuple) and all(matches_type(item, get_args(kind)[0]) for item in value)
    if get_args(kind) and get_origin(kind) is not dict:
        words = [part for part in get_args(kind) if isinstance(part, str)]
        return value in words or any(matches_type(value, part) for part in get_args(kind) if part not in words)
    if isinstance(value, bool) or kind is bool:
        return isinstance(value, bool) and kind is bool
    if kind is float:
        return isinstance(value, float) or (isinstance(value, int) and abs(value) <= sys.float_info.max)
    return isinstance(value, get_origin(kind) or kind)


def check_type(name: str, value: object, kind: Any) -> None:
    """Raise ValueError unless `value` has the type `kind`, or if it is an empty text."""
    if not matches_type(value, kind):
        parts = [part for part in get_args(kind) or (kind,) if part is not ...]
        expected = "several of: " * (get_origin(kind) is tuple) + " or ".join(TYPE_NAMES[part] for part in parts)
        raise ValueError(f"{name.rstrip('_').replace('_', '-')} must be {expected}, not {value!r}")
    if value == "":
        raise ValueError(f"{name.rstrip('_').replace('_', '-')} must not be empty")


def check_texts(texts: Iterable[str | PathLike[str]]) -> Iterator[str]:
    """The texts; a path becomes its name. Raises TypeError for anything else."""
    if isinstance(texts, str | bytes | PathLike) or not isinstance(texts, Iterable):
        raise TypeError(f"expected a list of texts, not {texts!r:.60}")
    return map(to_text, texts)


def to_text(value: object) -> str:
    if not isinstance(value, str | PathLike) or isinstance(text := fspath(value), bytes):
        raise TypeError(f"each text must be a str, not {type(value).__name__}: {value!r:.60}")
    return text


def check_fields(instance: object, **rules: tuple[bool, str]) -> None:
    """Raise FieldError for the first field whose rule is False. A rule is a pair (valid, requirement).

    >>> check_fields(self, num_beams=(self.num_beams >= 1, "at least 1"))
    FieldError: num-beams must be at least 1, not 0
    """
    for name, (valid, requirement) in rules.items():
        if not valid:
            raise FieldError(name, f"must be {requirement}, not {getattr(instance, name)}")


def check_minimum(instance: object, minimum: int, *names: str) -> None:
    """Raise FieldError for the first of these fields that is below the minimum; None is no value, and valid."""
    requirement = f"at least {minimum}" if minimum else "0 or more"
    for name in names:
        value = getattr(instance, name)
        check_fields(instance, **{name: (value is None or value >= minimum, requirement)})


def check_config(config: Any, allow_zero: tuple[str, ...] = ()) -> None:
    """Check what holds for the config of every model: sizes of at least 1 (0 for those in `allow_zero`), finite floats,
    heads that divide the width. A negative `pad` becomes an id counted from the end of the vocabulary."""
    sizes = {field.name: getattr(config, field.name) for field in fields(config) if field.type == "int"}
    for name in (name for name in sizes if name not in TOKEN_IDS):
        check_minimum(config, 0 if name in allow_zero else 1, name)
    for name in (field.name for field in fields(config) if field.type == "float"):
        check_fields(config, **{name: (abs(getattr(config, name)) < MAX_FLOAT, f"a number within ±{MAX_FLOAT:g}")})
    check_fields(config, dropout=(0 <= config.dropout < 1, "at least 0 and below 1"))
    if hasattr(config, "norm_eps"):
        check_fields(config, norm_eps=(0 < config.norm_eps < 1, "above 0 and below 1"))
    if hasattr(config, "image_norm_eps"):  # 0: that of the text tower
        check_fields(config, image_norm_eps=(0 <= config.image_norm_eps < 1, "at least 0 and below 1"))
    for heads, dim in (("heads", "dim"), ("image_heads", "image_dim"), ("kv_heads", "heads")):
        if sizes.get(heads) and sizes[dim] % sizes[heads]:
            divisor, width = (name.replace("_", "-") for name in (heads, dim))
            raise ValueError(f"{divisor} ({sizes[heads]}) must divide {width} ({sizes[dim]})")
    if sizes.get("pad", 0) < 0:
        object.__setattr__(config, "pad", config.vocab + config.pad)
