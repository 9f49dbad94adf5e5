"""Saving so that a crash leaves the old state or the new one, never neither and never a mix. No torch in here.

write into a hidden folder > fsync > manifest of SHA-256 sums, last > verify > rename > fsync > move LATEST
"""

from __future__ import annotations

import errno
import hashlib
import json
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path

from regard.atomic import fsync, path_in_errors, replace_file

MANIFEST, LATEST, ASIDE = "manifest.json", "LATEST", ".old-"


def save_folder(parent: Path, name: str, files: Mapping[str, Callable[[Path], object]], room: int = 0) -> Path:
    """Make parent/name with these files, each written by its function, and let LATEST name it. They take `room` bytes:
    where those are not free, nothing is begun."""
    recover(parent)
    hidden, aside = parent / f".{name}", parent / f"{ASIDE}{name}"
    shutil.rmtree(hidden, ignore_errors=True)
    hidden.mkdir(parents=True)
    if (free := shutil.disk_usage(parent).free) < room:
        hidden.rmdir()
        why = f"no room for a save: it takes {room / 1e6:,.0f} MB and {free / 1e6:,.0f} are free; the last one is kept"
        raise OSError(errno.ENOSPC, why, str(parent / name))
    try:
        for file, write in files.items():
            with path_in_errors(parent / name / file):
                write(hidden / file)
                fsync(hidden / file)
        sums = {file: {"bytes": (hidden / file).stat().st_size, "sha256": checksum(hidden / file)} for file in files}
        replace_file(hidden / MANIFEST, json.dumps(sums, indent=2).encode())
        if wrong := damage(hidden):
            raise OSError(f"{parent / name} was not saved: {wrong}")
        if (parent / name).exists():  # a run that was resumed from an earlier save comes by here again
            (parent / name).rename(aside)
        hidden.rename(parent / name)
        fsync(parent)
    finally:
        if aside.exists() and not (parent / name).exists():
            aside.rename(parent / name)
        for leftover in hidden, aside:
            shutil.rmtree(leftover, ignore_errors=True)
    replace_file(parent / LATEST, f"{name}\n".encode())
    return parent / name


def damage(folder: Path) -> str:
    """What is wrong with a save; empty if it is whole."""
    try:
        sums = json.loads((folder / MANIFEST).read_bytes())
        for file, want in sums.items():
            if (folder / file).stat().st_size != want["bytes"] or checksum(folder / file) != want["sha256"]:
                return f"{folder.name}/{file} is not as it was written"
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        return f"{folder.name} is not whole: {error}"
    return ""


def saves(parent: Path) -> list[Path]:
    """All saves of a run, newest first; the one that LATEST names is no better than its own checksums."""
    found = [
        (int(f.name.removeprefix("step-")), f) for f in parent.glob("step-*") if f.name.removeprefix("step-").isdigit()
    ]
    return [folder for _, folder in sorted(found, reverse=True)]


def keep_newest(parent: Path, count: int) -> None:
    """Remove all older ones, and what a crash in the middle of a save has left."""
    recover(parent)
    for old in (*saves(parent)[count:], *parent.glob(".step-*")):
        shutil.rmtree(old)


def recover(parent: Path) -> None:
    """A crash between two renames leaves the old save aside: it gets its name again, unless the new one has it."""
    for aside in parent.glob(f"{ASIDE}step-*"):
        if (parent / aside.name.removeprefix(ASIDE)).exists():
            shutil.rmtree(aside)
        else:
            aside.rename(parent / aside.name.removeprefix(ASIDE))


def set_aside(folder: Path) -> None:
    """A damaged save no longer counts as one, but is not destroyed."""
    there = folder.with_name(f"damaged-{folder.name}")
    shutil.rmtree(there, ignore_errors=True)
    folder.rename(there)


def checksum(file: Path) -> str:
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
