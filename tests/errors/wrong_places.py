"""What may stand where a file should be."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

PLACES = ["missing", "a folder", "a link to nothing", "a link to itself"]
if os.geteuid() != 0:  # who may read everything
    PLACES.append("no permission")


def put(file: Path, how: str, content: bytes | Callable[[], bytes] | None) -> None:
    file.unlink()
    if content is not None:
        file.write_bytes(content() if callable(content) else content)
    elif how == "a folder":
        file.mkdir()
    elif how == "no permission":
        file.touch(0)
    elif how != "missing":
        file.symlink_to("nowhere" if how == "a link to nothing" else file)


def put_back(file: Path, content: bytes) -> None:
    if file.is_dir() and not file.is_symlink():
        file.rmdir()
    file.unlink(missing_ok=True)
    file.write_bytes(content)
