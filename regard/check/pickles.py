"""Pickles beside the weights: a pickle is a program, and nobody should open one to get at numbers."""

from __future__ import annotations

from pathlib import Path

from regard.check.check_result import Verdict
from regard.hub.weights import BEGINNINGS, PICKLES


def programs(folder: Path) -> list[Verdict]:
    found = [file.name for file in sorted(folder.iterdir()) if file.is_file() and is_pickle(file)]
    if not found:
        return [Verdict("pickles", "ok", "none among its files", 0, 0)]
    advice = f"Opening {found[0]} can run whatever its author wanted: delete it, the weights are in safetensors."
    return [Verdict("pickles", "note", f"{len(found)} of its files", len(found), 0, advice)]


def is_pickle(file: Path) -> bool:
    if any(file.match(pattern) for pattern in PICKLES):
        return True
    with file.open("rb") as stream:
        begin = stream.read(8)
    return any(kind == "pickle" and begin.startswith(start) for start, kind in BEGINNINGS.items())
