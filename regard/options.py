"""Options: the fields of dataclasses. The comment beside a field is its help text.

An option is a keyword argument in Python and --a-name on the command line; it is a field of exactly one dataclass.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Mapping
from dataclasses import asdict, fields, replace
from pathlib import Path
from typing import Literal, NamedTuple, TypeVar, get_args, get_origin, get_type_hints

from regard.validate import check_choice, check_type, matches_type

T = TypeVar("T")


class Positional:
    """The mark of an option that is typed without its name: `Annotated[str, Positional]`."""


class Option(NamedTuple):
    """One option of a command, which is also a keyword argument in Python."""

    kind: object  # its type
    default: object  # MISSING if the option is required
    help: str


FIELD_COMMENT = re.compile(r"^    (\w+): [^#\n]*  # (.*)$", re.MULTILINE)  # beside a field of a dataclass
OPTIONS: dict[type, dict[str, Option]] = {}  # of the dataclasses that were read


class OptionGroups:
    """Instances of option dataclasses, by class. A class without an instance has its defaults."""

    def __init__(self, *groups: object):
        self.groups = {type(group): group for group in groups}

    def __getitem__(self, kind: type[T]) -> T:
        group = self.groups.get(kind)
        return group if isinstance(group, kind) else kind()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, OptionGroups) and self.groups == other.groups

    def updated(self, kind: type[T], **values: object) -> OptionGroups:
        """With other values in the instance of one class, if there is one."""
        return OptionGroups(*(replace(g, **values) if type(g) is kind else g for g in self.groups.values()))  # type: ignore[type-var]

    def to_dict(self) -> dict[str, object]:
        return {name: value for group in self.groups.values() for name, value in asdict(group).items()}  # type: ignore[call-overload]


def options_of(group: type) -> dict[str, Option]:
    """The fields of a dataclass, each with the comment beside it as its help."""
    if group not in OPTIONS:
        kinds = get_type_hints(group, include_extras=True)
        bases = [kind for kind in reversed(group.__mro__) if hasattr(kind, "__dataclass_fields__")]
        helps = {line[1]: line[2] for kind in bases for line in FIELD_COMMENT.finditer(inspect.getsource(kind))}
        OPTIONS[group] = {f.name: Option(kinds[f.name], f.default, helps.get(f.name, "")) for f in fields(group)}
    return OPTIONS[group]


def make(kind: type[T], values: Mapping[str, object]) -> T:
    """An instance of a dataclass of options; other values are left out."""
    return kind(**{name: values[name] for name in options_of(kind) if name in values})


def option_flag(name: str) -> str:
    """An option as it is typed: --batch-tokens for batch_tokens."""
    return f"--{name.rstrip('_').replace('_', '-')}"


def choices_of(kind: object) -> tuple[str, ...]:
    """The values of a Literal, also within a union; empty for any other type."""
    if get_origin(kind) is Literal:
        return get_args(kind)
    return tuple(word for part in get_args(kind) for word in choices_of(part))


def is_multiple(kind: object) -> bool:
    """Whether an option takes several values."""
    return get_origin(kind) is tuple or any(get_origin(part) is tuple for part in get_args(kind))


def normalize_value(name: str, value: object, kind: object) -> object:
    """The value with the type of its option: paths as texts, several values as a tuple. ValueError if it has none."""
    if not is_multiple(kind) or value is None:
        value = str(value) if isinstance(value, Path) else value
        check_option(name, value, kind)
        return value
    items = value if isinstance(value, list | tuple) else (value,)
    items = tuple(str(item) if isinstance(item, Path) else item for item in items)
    if choices := choices_of(kind):
        for item in items:
            check_choice(name, item, choices)
    name = name.rstrip("_").replace("_", "-")
    if not matches_type(items, kind):
        noun = "whole number" if matches_type((0,), kind) else "text"
        raise ValueError(f"{name} must be one {noun} or several, not {value!r}")
    if "" in items:
        raise ValueError(f"{name} must be names, none of them empty, not {items}")
    return items


def check_option(name: str, value: object, kind: object) -> None:
    """Raises ValueError if the value is not one of the option's choices, or not of its type."""
    if choices := choices_of(kind):
        if value is not None or type(None) not in get_args(kind):
            check_choice(name, value, choices)
    else:
        check_type(name, value, kind)


def check_known(what: str, values: Mapping[str, object], known: Mapping[str, Option]) -> None:
    """Raises ValueError for an unknown name, with the nearest known one, or for a value of another type."""
    for name, value in values.items():
        check_choice(what, name, known)
        check_option(name, value, known[name].kind)
