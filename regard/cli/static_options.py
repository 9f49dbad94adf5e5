"""Options of dataclasses, read from their source without importing it: imports take seconds, and --help is immediate.

    options("regard.cli.bench", "BenchOptions")["min_time"]          Option(float, 60.0, "seconds to measure ...")

Names are followed through imports, aliases and base classes. A test compares the result with the classes.
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
TYPES: dict[str, Any] = {"int": int, "float": float, "str": str, "bool": bool, "None": NoneType}


class Definition(NamedTuple):
    """The syntax tree of a class or a value, and its module."""

    module: str
    node: Any


@cache
def module_source(module: str) -> str:
    path = ROOT / module.replace(".", "/")
    return (path / "__init__.py" if path.is_dir() else path.with_suffix(".py")).read_text(encoding="utf-8")


@cache
def module_tree(module: str) -> ast.Module:
    return ast.parse(module_source(module))


def docstring(module: str) -> str:
    return ast.get_docstring(module_tree(module)) or ""


def find_definition(module: str, name: str) -> Definition | None:
    """Where a name of this package is defined."""
    for node in module_tree(module).body:
        match node:
            case ast.ClassDef(name=target) if target == name:
                return Definition(module, node)
            case ast.ImportFrom(module=str(source), names=aliases) if source.startswith("regard"):
                for alias in aliases:
                    if (alias.asname or alias.name) == name:
                        return find_definition(source, alias.name)
            case ast.Assign(targets=[ast.Name(id=target)], value=value) if target == name:
                return Definition(module, value)
            case ast.AnnAssign(target=ast.Name(id=target), value=value) if target == name:
                return Definition(module, value)
    return None


def get_definition(module: str, name: str) -> Definition:
    definition = find_definition(module, name)
    assert definition is not None, f"{module} has no {name}"
    return definition


def class_and_bases(definition: Definition) -> Iterator[Definition]:
    """The class, then its bases in this package."""
    yield definition
    for base in definition.node.bases:
        if isinstance(base, ast.Name) and (parent := find_definition(definition.module, base.id)):
            yield from class_and_bases(parent)


def class_attribute(definition: Definition, name: str) -> Definition:
    """The value of an attribute of a class."""
    for module, node in class_and_bases(definition):
        for line in node.body:
            match line:
                case ast.Assign(targets=[ast.Name(id=target)], value=value) if target == name:
                    return Definition(module, value)
                case ast.AnnAssign(target=ast.Name(id=target), value=ast.expr() as value) if target == name:
                    return Definition(module, value)
    raise AttributeError(f"{definition.module}.{definition.node.name} has no {name}")


def method_uses(definition: Definition, method: str, name: str) -> bool:
    """Whether a method of a class, or of the first base that defines it, uses a name."""
    for _, node in class_and_bases(definition):
        for line in node.body:
            if isinstance(line, ast.FunctionDef) and line.name == method:
                return any(isinstance(part, ast.Name) and part.id == name for part in ast.walk(line))
    return False


def literal_value(definition: Definition) -> Any:
    """The value of a literal, or of a name that is assigned one."""
    if isinstance(definition.node, ast.Name) and (target := find_definition(definition.module, definition.node.id)):
        return literal_value(target)
    return ast.literal_eval(definition.node)


def annotation_type(module: str, node: Any) -> Any:
    """The type that an annotation denotes."""
    match node:
        case ast.Constant(value=None):
            return NoneType
        case ast.Constant(value=value):
            return value
        case ast.Name(id=name) if name in TYPES:
            return TYPES[name]
        case ast.Name(id=name) if target := find_definition(module, name):
            return annotation_type(*target)
        case ast.BinOp(left=left, op=ast.BitOr(), right=right):
            return annotation_type(module, left) | annotation_type(module, right)
        case ast.Attribute():  # tyro.conf.Positional
            return tyro.conf.Positional
        case ast.Subscript(value=ast.Name(id=name), slice=inside):
            elements = inside.elts if isinstance(inside, ast.Tuple) else [inside]
            generic: Any = {"tuple": tuple, "Literal": Literal, "Annotated": Annotated}[name]
            return generic[tuple(annotation_type(module, element) for element in elements)]
    raise ValueError(f"{module}: the annotation {ast.unparse(node)} is not supported")


def options(module: str, name: str) -> dict[str, Option]:
    """The options of a dataclass, as `options_of` returns them for the class itself."""
    fields: dict[str, Option] = {}
    for source, node in reversed([*class_and_bases(get_definition(module, name))]):
        lines = module_source(source).splitlines()
        for line in node.body:
            if isinstance(line, ast.AnnAssign) and isinstance(line.target, ast.Name):
                comment = COMMENT.match(lines[line.lineno - 1])
                default = MISSING if line.value is None else literal_value(Definition(source, line.value))
                help_text = comment[1] if comment else ""
                fields[line.target.id] = Option(annotation_type(source, line.annotation), default, help_text)
    return fields


def tasks() -> dict[str, Definition]:
    """The class of every task, by name."""
    table = get_definition("regard.tasks", "TASKS")
    items = zip(table.node.keys, table.node.values, strict=True)
    return {key.value: get_definition(table.module, name.id) for key, name in items}


def decode_options(task: Definition) -> Definition:
    """The dataclass of a task's decoding options."""
    attribute = class_attribute(task, "decode_options")
    return get_definition(attribute.module, attribute.node.id)
