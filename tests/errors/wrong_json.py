"""Every path of a JSON document, with every value that is wrong there."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

PLACEHOLDER = "the place of a value that JSON cannot have"
VALUES: dict[str, Any] = {
    "null": None, "true": True, "zero": 0, "below": -1, "half": 1.5, "many": 10**9, "huge": 10**40, "a word": "x",
    "no word": "", "a list": [], "a list of nothing": [None], "an object": {}, "an object inside": {"x": {"y": 1}},
}  # fmt: skip
RAW = {"no number": "NaN", "endless": "-Infinity", "1e400": "1e400"}
MAX_ITEMS = 3  # of a list or a long object that are changed


class ChangedJson(NamedTuple):
    field: str  # dotted path
    defect: str
    text: Callable[[], str]  # lazy: few of thousands are used


def paths(document: Any, parent: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    children: Any = document.items() if isinstance(document, dict) else ()
    if isinstance(document, list):
        children = enumerate(document[:MAX_ITEMS])
    elif len(children) > 60:  # a vocabulary
        children = [*children][:MAX_ITEMS]
    for name, value in children:
        yield (*parent, name)
        yield from paths(value, (*parent, name))


def value_at(document: Any, path: tuple[Any, ...]) -> Any:
    for name in path:
        document = document[name]
    return document


def with_value(document: Any, path: tuple[Any, ...], value: Any = None, remove: bool = False) -> Any:
    """A copy with another value at one path."""
    copy = json.loads(json.dumps(document))
    children = value_at(copy, path[:-1])
    if remove:
        del children[path[-1]]
    else:
        children[path[-1]] = value
    return copy


def changed_documents(document: Any) -> Iterator[ChangedJson]:
    for path in paths(document):
        field = ".".join(map(str, path))
        yield ChangedJson(field, "missing", partial(dump_with, document, path, remove=True))
        for defect, value in VALUES.items():
            yield ChangedJson(field, defect, partial(dump_with, document, path, value))
        for defect, raw in RAW.items():
            yield ChangedJson(field, defect, partial(dump_with, document, path, PLACEHOLDER, raw=raw))
        if isinstance(path[-1], str):
            yield ChangedJson(field, "twice", partial(dump_twice, document, path))


def dump_with(document: Any, path: tuple[Any, ...], value: Any = None, remove: bool = False, raw: str = "") -> str:
    text = json.dumps(with_value(document, path, value, remove))
    return text.replace(f'"{PLACEHOLDER}"', raw) if raw else text


def dump_twice(document: Any, path: tuple[Any, ...]) -> str:
    """The same key twice."""
    value = value_at(document, path)
    text = json.dumps(
        with_value(document, (*path[:-1], PLACEHOLDER), f"{value} x" if isinstance(value, str) else value)
    )
    return text.replace(f'"{PLACEHOLDER}"', json.dumps(path[-1]))
