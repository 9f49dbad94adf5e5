"""Options as the source of their dataclasses tells them: to import it would import torch, and --help should not wait.

    options("regard.tasks.write", "Writing")["beam"]          Option(int, 1, "beginnings kept side by side ...")

Names are followed through imports, aliases and base classes. A test compares all that is read here with the classes.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import MISSING
from functools import cache
from pathlib import Path
from types import NoneType
from typing import Annotated, Any, Literal, NamedTuple

import tyro

import regard
from regard.validate import Option

ROOT = Path(str(regard.__file__)).parent.parent
COMMENT = re.compile(r"^    \w+: [^#\n]*  # (.*)$")  # beside a field
KINDS: dict[str, Any] = {"int": int, "float": float, "str": str, "bool": bool, "None": NoneType}


class Place(NamedTuple):
    """A class or a value, and the module that it stands in."""

    module: str
    node: Any


@cache
def text_of(module: str) -> str:
    path = ROOT / module.replace(".", "/")
    return (path / "__init__.py" if path.is_dir() else path.with_suffix(".py")).read_text(encoding="utf-8")


@cache
def tree(module: str) -> ast.Module:
    return ast.parse(text_of(module))


def about(module: str) -> str:
    return ast.get_docstring(tree(module)) or ""


def find(module: str, name: str) -> Place | None:
    """Where a name of ours is defined."""
    for node in tree(module).body:
        match node:
            case ast.ClassDef(name=other) if other == name:
                return Place(module, node)
            case ast.ImportFrom(module=str(home), names=aliases) if home.startswith("regard"):
                for alias in aliases:
                    if (alias.asname or alias.name) == name:
                        return find(home, alias.name)
            case ast.Assign(targets=[ast.Name(id=other)], value=value) if other == name:
                return Place(module, value)
            case ast.AnnAssign(target=ast.Name(id=other), value=value) if other == name:
                return Place(module, value)
    return None


def definition(module: str, name: str) -> Place:
    place = find(module, name)
    assert place is not None, f"{module} has no {name}"
    return place


def family(place: Place) -> Iterator[Place]:
    """The class, then its bases that are ours."""
    yield place
    for base in place.node.bases:
        if isinstance(base, ast.Name) and (above := find(place.module, base.id)):
            yield from family(above)


def attribute(place: Place, name: str) -> Place:
    """The value of an attribute of a class."""
    for module, node in family(place):
        for line in node.body:
            match line:
                case ast.Assign(targets=[ast.Name(id=other)], value=answer) if other == name:
                    return Place(module, answer)
                case ast.AnnAssign(target=ast.Name(id=other), value=ast.expr() as answer) if other == name:
                    return Place(module, answer)
    raise AttributeError(f"{place.module}.{place.node.name} has no {name}")


def mentions(place: Place, method: str, name: str) -> bool:
    """Whether a method of a class, or of the first base that has it, uses a name."""
    for _, node in family(place):
        for line in node.body:
            if isinstance(line, ast.FunctionDef) and line.name == method:
                return any(isinstance(part, ast.Name) and part.id == name for part in ast.walk(line))
    return False


def value(place: Place) -> Any:
    """A literal, or the name of one."""
    if isinstance(place.node, ast.Name) and (there := find(place.module, place.node.id)):
        return value(there)
    return ast.literal_eval(place.node)


def kind(module: str, node: Any) -> Any:
    """The type that an annotation means."""
    match node:
        case ast.Constant(value=None):
            return NoneType
        case ast.Constant(value=other):
            return other
        case ast.Name(id=name) if name in KINDS:
            return KINDS[name]
        case ast.Name(id=name) if there := find(module, name):
            return kind(*there)
        case ast.BinOp(left=left, op=ast.BitOr(), right=right):
            return kind(module, left) | kind(module, right)
        case ast.Attribute():  # tyro.conf.Positional
            return tyro.conf.Positional
        case ast.Subscript(value=ast.Name(id=name), slice=inside):
            parts = tuple(kind(module, part) for part in (inside.elts if isinstance(inside, ast.Tuple) else [inside]))
            made: Any = {"tuple": tuple, "Literal": Literal, "Annotated": Annotated}[name]
            return made[parts]
    raise ValueError(f"{module}: the annotation {ast.unparse(node)} is not understood")


def options(module: str, name: str) -> dict[str, Option]:
    """Those of a dataclass, as `options_of` tells them of the class itself."""
    place = definition(module, name)
    fields: dict[str, Option] = {}
    for home, node in reversed([*family(place)]):
        lines = text_of(home).splitlines()
        for line in node.body:
            if isinstance(line, ast.AnnAssign) and isinstance(line.target, ast.Name):
                comment = COMMENT.match(lines[line.lineno - 1])
                default = MISSING if line.value is None else value(Place(home, line.value))
                fields[line.target.id] = Option(kind(home, line.annotation), default, comment[1] if comment else "")
    return fields


def tasks() -> dict[str, Place]:
    """The class of every task, by name."""
    table = definition("regard.tasks", "TASKS")
    named = zip(table.node.keys, table.node.values, strict=True)
    return {key.value: definition(table.module, name.id) for key, name in named}


def ways(task: Place) -> Place:
    """The dataclass of the options of an answer."""
    named = attribute(task, "ways")
    return definition(named.module, named.node.id)
