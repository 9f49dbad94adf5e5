"""Where things of ours are kept on the user's machine."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from tempfile import TemporaryFile

CACHE_DIR = "~/.cache/regard"  # the tokens of texts, the lock of models, compiled kernels


def kernel_cache_dir(source: Path) -> tuple[Path | None, str]:
    """Where the compiled code of a folder of source is kept: in what NUMBA_CACHE_DIR names, else beside the source,
    else in the user's cache. None if none of these will do, and why."""
    named, reasons = os.environ.get("NUMBA_CACHE_DIR"), []
    folders = [Path(named)] if named else [source / "__pycache__" / "kernels"]
    try:
        folders += [] if named else [Path(CACHE_DIR).expanduser() / "kernels"]
    except RuntimeError:  # neither HOME nor an entry in the list of users
        reasons = ["there is no home directory"]
    for folder in folders:
        if not (why := unsafe(folder)):
            return folder, ""
        reasons.append(why)
    return None, "; ".join(reasons)


def unsafe(folder: Path) -> str:
    """Why a directory, which is made if it is not there, cannot hold compiled code; nothing if it can. What is read
    from there is run, so that only its user may write it."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        facts = folder.lstat()
        if not stat.S_ISDIR(facts.st_mode):
            return f"{folder} is a link, not a directory"
        if hasattr(os, "getuid") and facts.st_uid != os.getuid():
            return f"{folder} belongs to another user"
        if hasattr(os, "getuid") and facts.st_mode & 0o022:
            return f"{folder} can be written by others"
        with TemporaryFile(dir=folder):
            return ""
    except OSError as error:
        return f"{folder}: {error.strerror}"
