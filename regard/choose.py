"""One of the names there are, or a refusal that tells the nearest one."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches


def choose(what: str, name: object, known: Iterable[str]) -> None:
    names = list(known)
    if name not in names:
        near = get_close_matches(str(name), names, 1, 0.5)
        hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(names)}"
        raise ValueError(f"there is no {what} named {name!r}: {hint}")
