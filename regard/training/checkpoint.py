"""Checkpoints on disk: a crash leaves the old state or the new one, never a mix. This file does not import torch.

write to a hidden folder > fsync > manifest of SHA-256 checksums, last > verify > rename > fsync > update LATEST
"""

from __future__ import annotations

import errno
import hashlib
import json
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path

from regard.atomic import fsync, path_in_errors, replace_file

Files = Mapping[str, Callable[[Path], object]]  # each with the function that writes it
Manifest = dict[str, dict[str, object]]  # size and SHA-256 of each file
MANIFEST, LATEST, BACKUP_PREFIX = "manifest.json", "LATEST", ".old-"


def save_folder(parent: Path, name: str, files: Files, room: int = 0) -> Path:
    """Write parent/name, each file by its function, and point LATEST to it. Raises OSError before it writes anything
    if fewer than `room` bytes are free."""
    hidden = create_hidden(parent, name, room)
    try:
        manifest = write_files(parent, name, files)
        write_manifest(hidden, manifest)
        if problem := find_damage(hidden):
            raise OSError(f"{parent / name} was not saved: {problem}")
        rename_hidden(parent, name)
    finally:
        clean_up(parent, name)
    replace_file(parent / LATEST, f"{name}\n".encode())
    return parent / name


def create_hidden(parent: Path, name: str, room: int) -> Path:
    """Create the hidden folder."""
    recover(parent)
    hidden = parent / f".{name}"
    shutil.rmtree(hidden, ignore_errors=True)
    hidden.mkdir(parents=True)
    if (free := shutil.disk_usage(parent).free) < room:
        hidden.rmdir()
        message = f"not enough space for a checkpoint: it needs {room / 1e6:,.0f} MB, {free / 1e6:,.0f} MB are free"
        raise OSError(errno.ENOSPC, f"{message}; the last checkpoint is intact", str(parent / name))
    return hidden


def write_files(parent: Path, name: str, files: Files) -> Manifest:
    """Write files into the hidden folder, and return their entries of the manifest."""
    hidden = parent / f".{name}"
    for file, write in files.items():
        with path_in_errors(parent / name / file):
            write(hidden / file)
            fsync(hidden / file)
    paths = {file: hidden / file for file in files}
    return {file: {"bytes": path.stat().st_size, "sha256": checksum(path)} for file, path in paths.items()}


def write_manifest(hidden: Path, manifest: Manifest) -> None:
    replace_file(hidden / MANIFEST, json.dumps(manifest, indent=2).encode())


def rename_hidden(parent: Path, name: str) -> None:
    """Rename the hidden folder, which is complete."""
    if (parent / name).exists():  # a run that resumed from an earlier checkpoint reaches this step again
        (parent / name).rename(parent / f"{BACKUP_PREFIX}{name}")
    (parent / f".{name}").rename(parent / name)
    fsync(parent)


def clean_up(parent: Path, name: str) -> None:
    """Remove what a save leaves; if it failed between two renames, restore the old folder."""
    hidden, backup = parent / f".{name}", parent / f"{BACKUP_PREFIX}{name}"
    if backup.exists() and not (parent / name).exists():
        backup.rename(parent / name)
    for leftover in hidden, backup:
        shutil.rmtree(leftover, ignore_errors=True)


def find_damage(folder: Path, part: slice = slice(None)) -> str:
    """What is wrong with a checkpoint; empty if it is intact. `part` of its files are compared with their checksums,
    where several ranks share that work."""
    try:
        manifest = json.loads((folder / MANIFEST).read_bytes())
        for file, entry in [*manifest.items()][part]:
            if (folder / file).stat().st_size != entry["bytes"] or checksum(folder / file) != entry["sha256"]:
                return f"{folder.name}/{file} differs from its checksum"
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        return f"{folder.name} is incomplete: {error}"
    return ""


def list_checkpoints(parent: Path) -> list[Path]:
    """All checkpoints of a run, newest first. LATEST is not consulted: only checksums prove a checkpoint intact."""
    folders = {folder.name.removeprefix("step-"): folder for folder in parent.glob("step-*")}
    return [folders[number] for number in sorted(filter(str.isdigit, folders), key=int, reverse=True)]


def keep_newest(parent: Path, count: int) -> None:
    """Remove all older checkpoints, and what a crash during a save left."""
    recover(parent)
    for old in (*list_checkpoints(parent)[count:], *parent.glob(".step-*")):
        shutil.rmtree(old)


def recover(parent: Path) -> None:
    """A crash between two renames leaves the old checkpoint under its backup name: restore it, unless the new one
    exists."""
    for backup in parent.glob(f"{BACKUP_PREFIX}step-*"):
        if (parent / backup.name.removeprefix(BACKUP_PREFIX)).exists():
            shutil.rmtree(backup)
        else:
            backup.rename(parent / backup.name.removeprefix(BACKUP_PREFIX))


def quarantine(folder: Path) -> None:
    """Rename a damaged checkpoint to damaged-step-N; nothing is deleted."""
    renamed = folder.with_name(f"damaged-{folder.name}")
    shutil.rmtree(renamed, ignore_errors=True)
    folder.rename(renamed)


def checksum(file: Path) -> str:
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
