"""The result of a check: the measured value, its bound, and advice if the value exceeds it."""

from __future__ import annotations

from typing import Literal, NamedTuple

Status = Literal["ok", "note", "FAILS"]


class CheckResult(NamedTuple):
    check: str
    status: Status
    message: str  # what was measured
    value: float | None = None
    bound: float | None = None  # largest value that passes
    advice: str = ""  # one sentence; empty if ok


def within_bound(check: str, value: float, bound: float, message: str, advice: str) -> CheckResult:
    """Passes up to the bound; NaN fails."""
    message = f"{message} (limit {bound:g})"
    if value <= bound:
        return CheckResult(check, "ok", message, value, bound)
    return CheckResult(check, "FAILS", message, value, bound, advice)


def count_result(check: str, status: Status, count: int, text: str, advice: str) -> CheckResult:
    """Of a count that must be 0; `text` says what was counted."""
    return CheckResult(check, status, f"{count} {text}", count, 0, advice)


def names_result(check: str, status: Status, names: list[str], text: str, cause: str) -> CheckResult:
    """Of names of which there should be none; the advice lists them, and the `cause`."""
    return count_result(check, status, len(names), text, f"{join_names(names)}: {cause}")


def join_names(names: list[str], limit: int = 3) -> str:
    """The first `limit` names, and how many more there are."""
    remaining = len(names) - limit
    return ", ".join(names[:limit]) + (f" and {remaining} more" if remaining > 0 else "")
