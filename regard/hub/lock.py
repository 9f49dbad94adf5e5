"""What a model's name has meant so far: its commit, and size and SHA-256 of every file. A changed file is refused.

~/.cache/regard/models.lock.json    {name: {repository, commit, files: {file: {bytes, sha256, changed}}}}
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable
from hashlib import file_digest
from pathlib import Path
from typing import Any

from regard.cache_dir import CACHE_DIR

LOCK = "models.lock.json"
SMALL = 1 << 20  # bytes; below, the sum is taken every time
FACTS = ("bytes", "sha256", "changed")
COMMIT = re.compile(r"[0-9a-f]{40}")


def lock_file() -> Path:
    return Path(CACHE_DIR).expanduser() / LOCK


def read_lock() -> dict[str, Any]:
    file = lock_file()
    try:
        locks = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
        for one in locks.values():
            if not (COMMIT.fullmatch(one["commit"]) and all({*FACTS} == {*facts} for facts in one["files"].values())):
                raise ValueError("not a commit and facts of files")
    except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise ValueError(f"{file} is damaged ({error!r:.100}): mend it, or delete it to lock anew") from None
    return locks


def checked(folder: Path, files: Iterable[str], locked: dict[str, Any], verify: bool) -> dict[str, Any]:
    """The facts of every file, or a refusal where they are not as locked."""
    now = {}
    for file in files:
        path, then = folder / file, locked.get(file)
        stat = path.stat()
        untouched = then is not None and stat.st_mtime_ns == then["changed"] and stat.st_size >= SMALL
        summed = checksum(path) if verify or not untouched else locked[file]["sha256"]
        blob = Path(os.readlink(path)).name if path.is_symlink() else ""  # of a large file the cache makes this its sum
        if (len(blob) == 64 and blob != summed) or (then and (stat.st_size, summed) != (then["bytes"], then["sha256"])):
            raise ValueError(
                f"{path} is not what was fetched (the sums are in {lock_file()}). Delete {folder.parents[1]} and fetch "
                "the model again; or, if the change is yours, copy the folder and name the copy"
            )
        now[file] = dict(zip(FACTS, (stat.st_size, summed, stat.st_mtime_ns), strict=True))
    return now


def checksum(path: Path) -> str:
    with path.open("rb") as stream:
        return file_digest(stream, "sha256").hexdigest()


def put(file: Path, text: str) -> None:
    """By one rename: whoever reads finds the old content or the new."""
    file.parent.mkdir(parents=True, exist_ok=True)
    beside = file.with_name(f".{file.name}.{os.getpid()}")
    beside.write_text(text, encoding="utf-8")
    beside.replace(file)
