"""What a check says: what was measured, what it may be at most, and what to do if it is more."""

from __future__ import annotations

from typing import Literal, NamedTuple

Status = Literal["ok", "note", "FAILS"]


class Verdict(NamedTuple):
    check: str
    status: Status
    says: str  # what was measured
    value: float | None = None
    bound: float | None = None  # of the value
    advice: str = ""  # one sentence, unless all is well


def within(check: str, value: float, bound: float, says: str, advice: str) -> Verdict:
    """Well up to the bound; what is no number is not."""
    says = f"{says} (at most {bound:g})"
    if value <= bound:
        return Verdict(check, "ok", says, value, bound)
    return Verdict(check, "FAILS", says, value, bound, advice)


def named(names: list[str], most: int = 3) -> str:
    """Some of many names."""
    more = len(names) - most
    return ", ".join(names[:most]) + (f" and {more} more" if more > 0 else "")
