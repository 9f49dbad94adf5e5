"""Options of dataclasses, read from their source without importing it: imports take seconds, and --help is immediate.

    options("regard.cli.bench", "BenchOptions")["min_time"]          Option(float, 60.0, "seconds to measure ...")

Names are followed through imports, aliases and base classes. A test compares the result with the classes.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import MISSING
from functools import cache
from pathlib import Path
from types import NoneType
from typing import Annotated, Any, Literal, NamedTuple

import regard
from regard.options import FIELD_COMMENT, Option, Positional

ROOT = Path(str(regard.__file__)).parent.parent
TYPES = {kind.__name__: kind for kind in (int, float, str, bool, Positional)}
GENERICS: dict[str, Any] = {"tuple": tuple, "Literal": Literal, "Annotated": Annotated}


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


def find_definition(module: str, name: str) -> Definition:
    """Where a name of this package is defined. KeyError if it is defined elsewhere."""
    for node in module_tree(module).body:
        match node:
            case ast.ClassDef(name=target) if target == name:
                return Definition(module, node)
            case ast.ImportFrom(module=str(source), names=aliases) if source.startswith("regard"):
                for alias in aliases:
                    if (alias.asname or alias.name) == name:
                        return find_definition(source, alias.name)
    return find_value(Definition(module, module_tree(module)), name)


def find_value(definition: Definition, name: str) -> Definition:
    """The value that a module or a class assigns to a name. KeyError if there is none."""
    for line in definition.node.body:
        match line:
            case ast.Assign(targets=[ast.Name(id=target)], value=value) if target == name:
                return Definition(definition.module, value)
            case ast.AnnAssign(target=ast.Name(id=target), value=ast.expr() as value) if target == name:
                return Definition(definition.module, value)
    raise KeyError(f"{definition.module} has no {name}")


def class_and_bases(definition: Definition) -> Iterator[Definition]:
    """The class, then its bases in this package."""
    yield definition
    for base in definition.node.bases:
        with suppress(KeyError):
            yield from class_and_bases(find_definition(definition.module, ast.unparse(base)))


def class_attribute(definition: Definition, name: str) -> Definition:
    """The value of an attribute of a class."""
    for parent in class_and_bases(definition):
        with suppress(KeyError):
            return find_value(parent, name)
    raise AttributeError(f"{definition.module} has no {name}")


def literal_value(definition: Definition) -> object:
    """The value of a literal, or of a name that is assigned one."""
    if isinstance(definition.node, ast.Name):
        return literal_value(find_definition(definition.module, definition.node.id))
    value: object = ast.literal_eval(definition.node)
    return value


def annotation_type(module: str, node: ast.expr) -> Any:
    """The type that an annotation denotes."""
    match node:
        case ast.Constant(value=value):
            return NoneType if value is None else value
        case ast.Name(id=name):
            return TYPES[name] if name in TYPES else annotation_type(*find_definition(module, name))
        case ast.BinOp(left=left, op=ast.BitOr(), right=right):
            return annotation_type(module, left) | annotation_type(module, right)
        case ast.Subscript(value=ast.Name(id=name), slice=inside):
            elements = inside.elts if isinstance(inside, ast.Tuple) else [inside]
            return GENERICS[name][tuple(annotation_type(module, element) for element in elements)]
    raise ValueError(f"{module}: the annotation {ast.unparse(node)} is not supported")


def options(module: str, name: str) -> dict[str, Option]:
    """The options of a dataclass, as `options_of` returns them for the class itself."""
    fields: dict[str, Option] = {}
    for source, node in reversed([*class_and_bases(find_definition(module, name))]):
        lines = module_source(source).splitlines()
        for line in node.body:
            if isinstance(line, ast.AnnAssign) and isinstance(line.target, ast.Name):
                comment = FIELD_COMMENT.match(lines[line.lineno - 1])
                default = MISSING if line.value is None else literal_value(Definition(source, line.value))
                help_text = comment[2] if comment else ""
                fields[line.target.id] = Option(annotation_type(source, line.annotation), default, help_text)
    return fields


def tasks() -> dict[str, Definition]:
    """The class of every task, by name."""
    table = find_definition("regard.tasks", "TASKS")
    items = zip(table.node.keys, table.node.values, strict=True)
    return {key.value: find_definition(table.module, name.id) for key, name in items}


def decode_options(task: Definition) -> Definition:
    """The dataclass of a task's decoding options."""
    attribute = class_attribute(task, "decode_options")
    return find_definition(attribute.module, attribute.node.id)
