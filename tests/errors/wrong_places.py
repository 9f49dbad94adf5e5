"""Replace a file by other content, a folder, a broken link or nothing."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

REPLACEMENTS = ["missing", "a folder", "a link to nothing", "a link to itself"]
if os.geteuid() != 0:  # root may read everything
    REPLACEMENTS.append("no permission")


def replace_file(file: Path, defect: str, content: bytes | Callable[[], bytes] | None) -> None:
    file.unlink()
    if content is not None:
        file.write_bytes(content() if callable(content) else content)
    elif defect == "a folder":
        file.mkdir()
    elif defect == "no permission":
        file.touch(0)
    elif defect != "missing":
        file.symlink_to("nowhere" if defect == "a link to nothing" else file)


def restore_file(file: Path, content: bytes) -> None:
    if file.is_dir() and not file.is_symlink():
        file.rmdir()
    file.unlink(missing_ok=True)
    file.write_bytes(content)
