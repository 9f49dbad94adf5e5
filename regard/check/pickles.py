"""Pickle files beside the weights: unpickling runs arbitrary code."""

from __future__ import annotations

from pathlib import Path

from regard.check.check_result import CheckResult
from regard.hub.weights import MAGIC_BYTES, PICKLE_PATTERNS


def find_pickles(folder: Path) -> list[CheckResult]:
    if not (files := [file.name for file in sorted(folder.iterdir()) if file.is_file() and is_pickle(file)]):
        return [CheckResult("pickles", "ok", "No pickle in the folder", 0, 0)]
    advice = f"Opening {files[0]} can run arbitrary code: delete it, the weights are in safetensors."
    return [CheckResult("pickles", "note", f"Pickle files: {len(files)}", len(files), 0, advice)]


def is_pickle(file: Path) -> bool:
    if any(file.match(pattern) for pattern in PICKLE_PATTERNS):
        return True
    with file.open("rb") as stream:
        header = stream.read(8)
    return any(kind == "pickle" and header.startswith(magic) for magic, kind in MAGIC_BYTES.items())
