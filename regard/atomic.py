"""Atomic writes: after a crash a file holds its old content or the new one, never a part.

write a hidden file beside it > fsync > rename > fsync of the folder
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

FAILED = "cannot be written: "
TEMPORARY = re.compile(r"\.tmp[0-9A-Za-z]{6}")  # what safetensors writes before it renames


def replace_file(file: Path, content: bytes | Callable[[Path], None]) -> None:
    """Write `content`, or let it write, to a hidden file and rename that to `file`. If anything fails, `file` keeps its
    old content."""
    hidden = file.with_name(f".{file.name}")
    try:
        with path_in_errors(file):
            if isinstance(content, bytes):
                hidden.write_bytes(content)
            else:
                content(hidden)
            fsync(hidden)
            hidden.replace(file)
            fsync(file.parent)
    finally:
        hidden.unlink(missing_ok=True)


def write_json(file: Path, content: object) -> None:
    replace_file(file, json_bytes(content))


def json_bytes(content: object) -> bytes:
    return (json.dumps(content, indent=2, ensure_ascii=False) + "\n").encode()


@contextmanager
def path_in_errors(file: Path | str) -> Iterator[None]:
    """Add the path of `file` to an OSError: the system names it only if the file cannot be opened."""
    try:
        yield
    except OSError as error:
        reason = (error.strerror or str(error)).removeprefix(FAILED)
        error.strerror, error.filename, error.filename2 = FAILED + reason, str(file), None
        raise


def remove_partial_files(folder: Path, names: set[str]) -> None:
    """Remove the hidden files that a killed process left while it wrote one of `names`."""
    for file in folder.glob(".*"):
        if file.name.removeprefix(".") in names or TEMPORARY.fullmatch(file.name):
            file.unlink(missing_ok=True)


def fsync(path: Path) -> None:
    """Return when the content of a file or folder is on the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
