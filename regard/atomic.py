"""Writing a file so that a crash leaves the old content or the new one.

write a hidden file beside it > fsync > rename > fsync of the folder
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

FAILED = "cannot be written: "
TEMPORARY = re.compile(r"\.tmp[0-9A-Za-z]{6}")  # what safetensors writes before it renames


def replace_file(file: Path, content: bytes | Callable[[Path], None]) -> None:
    """The file holds the new content or, if anything fails, the old."""
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


def write_json(file: Path, said: Mapping[str, Any] | list[Any]) -> None:
    replace_file(file, json_bytes(said))


def json_bytes(said: Mapping[str, Any] | list[Any]) -> bytes:
    return (json.dumps(said, indent=2, ensure_ascii=False) + "\n").encode()


@contextmanager
def path_in_errors(file: Path | str) -> Iterator[None]:
    """An error while a file is written names that file: the system does so only if it cannot be opened."""
    try:
        yield
    except OSError as error:
        why = (error.strerror or str(error)).removeprefix(FAILED)
        error.strerror, error.filename, error.filename2 = FAILED + why, str(file), None
        raise


def remove_partial_files(folder: Path, names: set[str]) -> None:
    """Remove what a kill has left in the middle of writing one of these files."""
    for file in folder.glob(".*"):
        if file.name.removeprefix(".") in names or TEMPORARY.fullmatch(file.name):
            file.unlink(missing_ok=True)


def fsync(path: Path) -> None:
    """What is written to a file or folder reaches the disk before we go on."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
