"""A checkpoint to which every rank writes its own files, on a file system that all share: a crash of any rank leaves
the old state or the new one, never a mix.

    rank 0   hidden folder |       |                      | manifest, last > rename > fsync > LATEST
    all      sum of room   | files > fsync > checksums    |
                           ^ all wait                     ^ all wait: the checksums are gathered

An error of one rank is raised on all of them, so that none waits for a rank that has stopped. A killed rank breaks the
connections to the others, and ends the collective operation that they wait in.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from regard.atomic import replace_file
from regard.training.checkpoint import (
    LATEST,
    Files,
    Manifest,
    clean_up,
    create_hidden,
    find_damage,
    rename_hidden,
    write_files,
    write_manifest,
)
from regard.training.ranks import Ranks

T = TypeVar("T")


def on_every_rank(ranks: Ranks, action: Callable[[], T]) -> list[T]:
    """The results of all ranks. If `action` fails on one of them, every rank raises: that rank its own error, the
    others an OSError, or a RuntimeError, that names the rank."""
    results, error = list[T](), None
    try:
        results = [action()]
    except BaseException as caught:
        error = caught
    gathered = ranks.gather((results, describe(error)))
    if error is not None:
        raise error
    for rank, (_, failure) in enumerate(gathered):
        if isinstance(failure, tuple):
            code, reason, file = failure
            raise OSError(code, f"{reason} (rank {rank})", file)
        if failure is not None:
            raise RuntimeError(f"rank {rank} failed: {failure}")
    return [result for results, _ in gathered for result in results]


def describe(error: BaseException | None) -> tuple[int, str, str] | str | None:
    """What the other ranks need to know about an error: number, reason and file of one of the system."""
    if isinstance(error, OSError) and error.errno is not None:
        return error.errno, error.strerror or str(error), str(error.filename)
    return None if error is None else f"{type(error).__name__}: {error}"


def on_first_rank(ranks: Ranks, action: Callable[[], T]) -> None:
    """Let the first rank act while the others wait; its error is raised on all."""
    on_every_rank(ranks, action if ranks.is_first else lambda: None)


def save_on_ranks(ranks: Ranks, parent: Path, name: str, files: Files, room: int) -> Path:
    """Write parent/name, the files of each rank by that rank, and point LATEST to it. `room` is what this rank needs.
    All ranks call this together."""
    total = sum(ranks.gather(room))
    on_first_rank(ranks, lambda: create_hidden(parent, name, total))
    try:
        entries = on_every_rank(ranks, lambda: write_files(parent, name, files))
        manifest: Manifest = {file: entry for part in entries for file, entry in part.items()}
        on_first_rank(ranks, lambda: commit(parent, name, manifest))
    finally:
        if ranks.is_first:
            clean_up(parent, name)
    on_first_rank(ranks, lambda: replace_file(parent / LATEST, f"{name}\n".encode()))
    return parent / name


def commit(parent: Path, name: str, manifest: Manifest) -> None:
    """Write the manifest and rename the folder. Each rank has just read its own files to their end; here they must be
    on the disk that the first rank sees."""
    hidden = parent / f".{name}"
    for file, entry in manifest.items():
        if not (hidden / file).is_file() or (hidden / file).stat().st_size != entry["bytes"]:
            raise OSError(f"{parent / name} was not saved: {file} is not on the disk that rank 0 sees")
    write_manifest(hidden, manifest)
    rename_hidden(parent, name)


def find_damage_on_ranks(ranks: Ranks, folder: Path) -> str:
    """As `find_damage`; each rank reads a part of the files once."""
    problems = ranks.gather(find_damage(folder, slice(ranks.rank, None, ranks.size)))
    return next(filter(None, problems), "")
