"""Names and numbers that make sense, or a refusal that tells what would."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches


def choose(what: str, name: object, known: Iterable[str]) -> None:
    names = list(known)
    if name not in names:
        near = get_close_matches(str(name), names, 1, 0.5)
        hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(names)}"
        raise ValueError(f"there is no {what} named {name!r}: {hint}")


def must(thing: object, **rules: tuple[bool, str]) -> None:
    """Refuse the first field of `thing` whose rule does not hold: must(self, beam=(self.beam >= 1, "at least 1"))."""
    for name, (holds, rule) in rules.items():
        if not holds:
            raise ValueError(f"{name.replace('_', '-')} must be {rule}, not {getattr(thing, name)}")
