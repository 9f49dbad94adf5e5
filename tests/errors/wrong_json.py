"""Every place of a JSON document, with every value that should not stand there."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

HERE = "the place of a value that JSON cannot have"
VALUES: dict[str, Any] = {
    "null": None, "true": True, "zero": 0, "below": -1, "half": 1.5, "many": 10**9, "huge": 10**40, "a word": "x",
    "no word": "", "a list": [], "a list of nothing": [None], "an object": {}, "an object inside": {"x": {"y": 1}},
}  # fmt: skip
RAW = {"no number": "NaN", "endless": "-Infinity", "1e400": "1e400"}
FEW = 3  # items of a list, or names of a long object, that stand for the others


class Changed(NamedTuple):
    place: str  # the names on the way, with dots
    how: str
    text: Callable[[], str]  # few are ever wanted, of thousands


def places(document: Any, before: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    inside: Any = document.items() if isinstance(document, dict) else ()
    if isinstance(document, list):
        inside = enumerate(document[:FEW])
    elif len(inside) > 60:  # a list of words
        inside = [*inside][:FEW]
    for name, value in inside:
        yield (*before, name)
        yield from places(value, (*before, name))


def at(document: Any, place: tuple[Any, ...]) -> Any:
    for name in place:
        document = document[name]
    return document


def put(document: Any, place: tuple[Any, ...], value: Any = None, remove: bool = False) -> Any:
    """A copy with something else in one place."""
    made = json.loads(json.dumps(document))
    inside = at(made, place[:-1])
    if remove:
        del inside[place[-1]]
    else:
        inside[place[-1]] = value
    return made


def changed(document: Any) -> Iterator[Changed]:
    for place in places(document):
        spelled = ".".join(map(str, place))
        yield Changed(spelled, "missing", partial(dumped, document, place, remove=True))
        for how, value in VALUES.items():
            yield Changed(spelled, how, partial(dumped, document, place, value))
        for how, raw in RAW.items():
            yield Changed(spelled, how, partial(dumped, document, place, HERE, raw=raw))
        if isinstance(place[-1], str):
            yield Changed(spelled, "twice", partial(twice, document, place))


def dumped(document: Any, place: tuple[Any, ...], value: Any = None, remove: bool = False, raw: str = "") -> str:
    text = json.dumps(put(document, place, value, remove))
    return text.replace(f'"{HERE}"', raw) if raw else text


def twice(document: Any, place: tuple[Any, ...]) -> str:
    """The same name two times; the second value would do as well."""
    value = at(document, place)
    marked = json.dumps(put(document, (*place[:-1], HERE), f"{value} x" if isinstance(value, str) else value))
    return marked.replace(f'"{HERE}"', json.dumps(place[-1]))
