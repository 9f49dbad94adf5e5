"""The revision lock: which commit a model name stood for when it was first used, with size and SHA-256 of every file.

~/.cache/regard/models.lock.json    {name: {repository, commit, files: {file: {bytes, sha256, mtime_ns}}}}

A file that no longer matches its lock is refused.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Mapping
from hashlib import file_digest
from pathlib import Path
from typing import Any

from regard.cache_dir import CACHE_DIR

LOCK = "models.lock.json"
ALWAYS_HASHED = 1 << 20  # bytes; smaller files are hashed on every use, larger ones when their mtime changes
FILE_KEYS = ("bytes", "sha256", "mtime_ns")
FileEntry = Mapping[str, object]  # by FILE_KEYS
COMMIT = re.compile(r"[0-9a-f]{40}")


def lock_file() -> Path:
    return Path(CACHE_DIR).expanduser() / LOCK


def read_lock() -> dict[str, dict[str, Any]]:
    file = lock_file()
    try:
        locks = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
        for lock in locks.values():
            if not (
                COMMIT.fullmatch(lock["commit"]) and all({*FILE_KEYS} == {*keys} for keys in lock["files"].values())
            ):
                raise ValueError(f"an entry needs a commit, and {', '.join(FILE_KEYS)} of every file")
    except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise ValueError(f"{file} is damaged ({error!r:.100}): repair it, or delete it to lock again") from None
    return locks


def check_files(
    folder: Path, files: Iterable[str], locked: Mapping[str, FileEntry], verify: bool
) -> dict[str, FileEntry]:
    """Lock entries of the files; ValueError where they differ from `locked`. `verify` hashes large files too."""
    entries = dict[str, FileEntry]()
    for file in files:
        path, entry = folder / file, locked.get(file)
        stat = path.stat()
        unchanged = entry is not None and stat.st_mtime_ns == entry["mtime_ns"] and stat.st_size >= ALWAYS_HASHED
        digest = sha256(path) if verify or not unchanged else locked[file]["sha256"]
        blob = Path(os.readlink(path)).name if path.is_symlink() else ""  # the cache names LFS blobs by their SHA-256
        if (len(blob) == 64 and blob != digest) or (
            entry and (stat.st_size, digest) != (entry["bytes"], entry["sha256"])
        ):
            raise ValueError(
                f"{path} differs from its checksum in {lock_file()}. Delete {folder.parents[1]} and fetch "
                "the model again; or, if the change is yours, copy the folder and name the copy"
            )
        entries[file] = dict(zip(FILE_KEYS, (stat.st_size, digest, stat.st_mtime_ns), strict=True))
    return entries


def sha256(path: Path) -> str:
    with path.open("rb") as stream:
        return file_digest(stream, "sha256").hexdigest()


def replace_text(file: Path, text: str) -> None:
    """Write by rename: a concurrent reader sees the old content or the new."""
    file.parent.mkdir(parents=True, exist_ok=True)
    temporary = file.with_name(f".{file.name}.{os.getpid()}")
    temporary.write_text(text, encoding="utf-8")
    temporary.replace(file)
