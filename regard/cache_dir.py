"""The cache directory of the user, and the directory of the compiled kernels."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from tempfile import TemporaryFile

CACHE_DIR = "~/.cache/regard"  # tokens of texts, the lock file of the hub, compiled kernels


def kernel_cache_dir(source: Path) -> tuple[Path | None, str]:
    """The directory for the compiled code of the folder `source`: NUMBA_CACHE_DIR if set, else a folder beside the
    source, else one in CACHE_DIR. If none of them is safe: None, and the reasons."""
    configured, reasons = os.environ.get("NUMBA_CACHE_DIR"), []
    folders = [Path(configured)] if configured else [source / "__pycache__" / "kernels"]
    try:
        folders += [] if configured else [Path(CACHE_DIR).expanduser() / "kernels"]
    except RuntimeError:  # neither HOME nor an entry in the list of users
        reasons = ["there is no home directory"]
    for folder in folders:
        if not (reason := unsafe_reason(folder)):
            return folder, ""
        reasons.append(reason)
    return None, "; ".join(reasons)


def unsafe_reason(folder: Path) -> str:
    """Why a directory, which is created if missing, must not hold compiled code; "" if it may. Code read from it is
    executed, so only its user may write to it."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        status = folder.lstat()
        if not stat.S_ISDIR(status.st_mode):
            return f"{folder} is a link, not a directory"
        if hasattr(os, "getuid") and status.st_uid != os.getuid():
            return f"{folder} belongs to another user"
        if hasattr(os, "getuid") and status.st_mode & 0o022:
            return f"{folder} can be written by others"
        with TemporaryFile(dir=folder):
            return ""
    except OSError as error:
        return f"{folder}: {error.strerror}"
