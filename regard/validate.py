"""Names, types and numbers that make sense, or a refusal that tells what would."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from dataclasses import fields
from difflib import get_close_matches
from typing import Any, NamedTuple, get_args, get_origin

SPOKEN = {int: "a whole number", float: "a number", bool: "True or False", str: "a text", type(None): "None"}
MAX_FLOAT = 1e38  # about the largest number of 32 bits
IDS = ("pad", "sep")  # a negative one is counted from the end, or there is none


class ModelWarning(UserWarning):
    """What a user should know of a model that answers all the same; one line of a command."""


class Option(NamedTuple):
    """What may be chosen, on the command line and in Python."""

    kind: Any  # its type
    default: Any  # MISSING if it must be given
    help: str


class FieldError(ValueError):
    """A value of a field, and what is wrong with it."""

    def __init__(self, field: str, why: str):
        super().__init__(f"{field.replace('_', '-')} {why}")
        self.field = field


def check_choice(what: str, name: object, known: Iterable[str]) -> None:
    names = list(known)
    if name not in names:
        near = get_close_matches(str(name), names, 1, 0.5)
        hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(names)}"
        raise ValueError(f"there is no {what} named {name!r}: {hint}")


def matches_type(value: Any, kind: Any) -> bool:
    """Whether a value is of the type of a field: a number, a text, a switch, one of some words, nothing, or a list."""
    if get_origin(kind) in (list, tuple):
        return isinstance(value, list | tuple) and all(matches_type(one, get_args(kind)[0]) for one in value)
    if get_args(kind) and get_origin(kind) is not dict:
        words = [part for part in get_args(kind) if isinstance(part, str)]
        return value in words or any(matches_type(value, part) for part in get_args(kind) if part not in words)
    if isinstance(value, bool) or kind is bool:
        return isinstance(value, bool) and kind is bool
    if kind is float:
        return isinstance(value, float) or (isinstance(value, int) and abs(value) <= sys.float_info.max)
    return isinstance(value, get_origin(kind) or kind)


def check_type(name: str, value: Any, kind: Any) -> None:
    """Refuse a value that is not of the type of its field. From Python anything may come."""
    if not matches_type(value, kind):
        parts = [part for part in get_args(kind) or (kind,) if part is not ...]
        wanted = "several of: " * (get_origin(kind) is tuple) + " or ".join(SPOKEN[part] for part in parts)
        raise ValueError(f"{name.rstrip('_').replace('_', '-')} must be {wanted}, not {value!r}")
    if value == "":
        raise ValueError(f"{name.rstrip('_').replace('_', '-')} must not be empty")


def check_fields(thing: object, **rules: tuple[bool, str]) -> None:
    """Refuse the first field of `thing` whose rule does not hold: must(self, beam=(self.beam >= 1, "at least 1"))."""
    for name, (holds, rule) in rules.items():
        if not holds:
            raise FieldError(name, f"must be {rule}, not {getattr(thing, name)}")


def check_config(config: Any, allow_zero: tuple[str, ...] = ()) -> None:
    """What holds for every body: sizes of at least 1, finite numbers, heads that share out the width. A negative pad
    becomes an id."""
    sizes = {field.name: getattr(config, field.name) for field in fields(config) if field.type == "int"}
    for name, size in sizes.items():
        if name not in IDS:
            least = 0 if name in allow_zero else 1
            check_fields(config, **{name: (size >= least, "0 or more" if name in allow_zero else "at least 1")})
    for name in (field.name for field in fields(config) if field.type == "float"):
        check_fields(config, **{name: (abs(getattr(config, name)) < MAX_FLOAT, f"a number within ±{MAX_FLOAT:g}")})
    check_fields(config, dropout=(0 <= config.dropout < 1, "at least 0 and below 1"))
    if hasattr(config, "eps"):
        check_fields(config, eps=(0 < config.eps < 1, "above 0 and below 1"))
    if hasattr(config, "image_eps"):  # that of the other tower if 0
        check_fields(config, image_eps=(0 <= config.image_eps < 1, "at least 0 and below 1"))
    for heads, dim in (("heads", "dim"), ("image_heads", "image_dim"), ("kv_heads", "heads")):
        if sizes.get(heads) and sizes[dim] % sizes[heads]:
            told = [name.replace("_", "-") for name in (heads, dim)]
            raise ValueError(f"{told[0]} ({sizes[heads]}) must divide {told[1]} ({sizes[dim]})")
    if sizes.get("pad", 0) < 0:
        object.__setattr__(config, "pad", config.vocab + config.pad)
