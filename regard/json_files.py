"""Files that somebody else may have made: plain ones that lie in their folder, and JSON that means one thing only.

Every limit of what is read stands here; docs/reliability.md lists them.
"""

from __future__ import annotations

import json
import math
import re
import stat
from collections import Counter
from pathlib import Path
from typing import Any

MAX_JSON = 2**25  # bytes of a JSON file; the index of the largest models has a third of that
MAX_JSON_DEPTH = 64  # brackets inside brackets
MAX_HEADER = 25_000_000  # bytes of a safetensors header: 200,000 tensors; the format would allow four times that
MAX_TOKENIZER = 2**27  # bytes of a file of a tokenizer; the largest known has a quarter of that
MAX_GROWTH = 128  # characters that a tokenizer may make of one; SentencePiece's own rules make up to 33
MAX_METRICS = 2**26  # bytes of a metrics.jsonl that is looked at: some 300,000 steps
MAX_LINE = 10 << 20  # bytes of a line in a file: what goes on this long without \n is no text, and may be a gzip bomb
MAX_TEXT = 1 << 20  # bytes of a text to answer: a line of a file or of standard input
MAX_SQUAD = 1 << 28  # bytes of a JSON file of questions, which is held as a whole
MAX_ARRAYS = 16 << 30  # bytes of the arrays in one file
SAFE_UNPACKED, MAX_COMPRESSION_RATIO = (
    1 << 28,
    100,
)  # arrays and sounds of more bytes than this may be so many times as large as their file


def check_regular_file(file: Path) -> Path:
    """Refuse what is no file, so that a pipe is never waited for, and a link that leads out of the folder."""
    try:
        mode, place = file.stat().st_mode, file.resolve()
    except (OSError, RuntimeError) as error:  # a link to itself is a RuntimeError
        raise ValueError(f"{file} cannot be read: {getattr(error, 'strerror', None) or error}") from None
    if not stat.S_ISREG(mode):
        raise ValueError(f"{file} is not a file that can be read: it is a folder, a pipe or a device")
    if not any(place.is_relative_to(home) for home in homes(file.parent)):
        raise ValueError(f"{file} is a link out of its folder, to {place}: put the file itself there")
    return file


def read_bounded(file: Path, most: int) -> bytes:
    """All of a plain file, which has at most so many bytes."""
    size = check_regular_file(file).stat().st_size
    if size > most:
        raise ValueError(f"{file} has {size:,} bytes, and at most {most:,} are read")
    return file.read_bytes()


def check_unpacked_size(file: Path, size: int) -> None:
    """Refuse a small file that would fill the memory."""
    packed = file.stat().st_size
    if size > max(SAFE_UNPACKED, MAX_COMPRESSION_RATIO * packed):
        raise ValueError(
            f"{file}: {packed:,} bytes would unpack to {size:,}, over {MAX_COMPRESSION_RATIO} times as many (the limit above "
            f"{SAFE_UNPACKED >> 20} MB): store it uncompressed"
        )


def lexists(file: Path) -> bool:
    """Even if it is a link that leads nowhere."""
    return file.exists() or file.is_symlink()


def homes(folder: Path) -> list[Path]:
    """Where the files of a folder may lie: in it, or where Hugging Face's cache keeps what its snapshots link to."""
    folder = folder.resolve()
    for place in (folder, *folder.parents):
        repo = place.parent.parent
        if place.parent.name == "snapshots" and repo.name.startswith("models--"):
            return [folder, repo / "blobs", repo.parent / "blobs"]  # the last is shared by repositories
    return [folder]


def read_json(file: Path, finite: bool = True) -> dict[str, Any]:
    """Unless `finite`, which is for files of our own, a number may be NaN or infinite."""
    if not lexists(file):
        raise ValueError(f"{file.parent} is not a model folder: it has no {file.name}")
    size = check_regular_file(file).stat().st_size
    if size > MAX_JSON:
        raise ValueError(f"{file} has {size:,} bytes, and at most {MAX_JSON:,} are read as JSON")
    try:
        said = parsed(file.read_text(encoding="utf-8"), finite)
    except (OSError, ValueError, RecursionError) as error:
        raise ValueError(f"{file} cannot be read as JSON: {error}") from None
    if not isinstance(said, dict):
        raise ValueError(f"{file} must hold a JSON object, not a {type(said).__name__}")
    if depth(said) > MAX_JSON_DEPTH:
        raise ValueError(f"{file} cannot be read as JSON: it is more than {MAX_JSON_DEPTH} levels deep")
    return said


def parsed(text: str, finite: bool = True) -> Any:
    """JSON; what Python would read and others not, or otherwise, is a ValueError."""
    if not finite:
        return json.loads(text)
    said = json.loads(text, object_pairs_hook=finite_once, parse_constant=NoNumber, parse_float=number)
    must_be_finite("it", said)
    if re.search(r"\\u[dD]", text):
        json.dumps(said, ensure_ascii=False).encode()  # half of a character could not be written again
    return said


def reject_duplicate_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    said = dict(pairs)
    if len(said) < len(pairs):
        counted = Counter(key for key, _ in pairs)
        raise ValueError(f"{counted.most_common(1)[0][0]!r} is there twice")
    return said


class NoNumber(str):
    """NaN, or what is larger than any number: told by its key, once that is known."""


def number(text: str) -> float | NoNumber:
    return float(text) if math.isfinite(float(text)) else NoNumber(text)


def finite_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    for key, value in pairs:
        must_be_finite(key, value)
    return reject_duplicate_keys(pairs)


def must_be_finite(key: str, value: Any) -> None:
    if isinstance(value, NoNumber):
        raise ValueError(f"{key}: {value[:20]} is not a number")
    if isinstance(value, list):
        for one in value:
            must_be_finite(key, one)


def depth(said: Any) -> int:
    levels, inside = 0, [said]
    while inside:
        levels += 1
        lists = [one.values() if isinstance(one, dict) else one for one in inside if isinstance(one, dict | list)]
        inside = [value for values in lists for value in values]
    return levels
