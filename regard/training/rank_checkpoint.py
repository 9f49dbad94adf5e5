"""A checkpoint to which every rank writes its own files, on a file system that all share: a crash of any rank leaves
the old state or the new one, never a mix.

    rank 0   hidden folder |       |                      | manifest, last > rename > fsync > LATEST
    all      sum of room   | files > fsync > checksums    |
                           ^ all wait                     ^ all wait: the checksums are gathered

`Ranks.agree` raises an error of one rank on all of them, so that none waits for a rank that has stopped. A killed rank
breaks the connections to the others, and ends the collective operation that they wait in.
"""

from __future__ import annotations

from pathlib import Path

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


def save_on_ranks(ranks: Ranks, parent: Path, name: str, files: Files, room: int) -> Path:
    """Write parent/name, the files of each rank by that rank, and point LATEST to it. `room` is what this rank needs.
    All ranks call this together."""
    total = sum(ranks.gather(room))
    ranks.first(lambda: create_hidden(parent, name, total))
    try:
        entries = ranks.gather(ranks.agree(lambda: write_files(parent, name, files)))
        manifest: Manifest = {file: entry for part in entries for file, entry in part.items()}
        ranks.first(lambda: commit(parent, name, manifest))
    finally:
        if ranks.is_first:
            clean_up(parent, name)
    ranks.first(lambda: replace_file(parent / LATEST, f"{name}\n".encode()))
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
