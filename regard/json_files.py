"""Files of untrusted origin: regular files inside their folder, and JSON without duplicate keys, NaN or deep nesting.

All size limits are defined here; docs/reliability.md lists them.
"""

from __future__ import annotations

import json
import math
import re
import stat
from collections import Counter
from collections.abc import Mapping
from dataclasses import MISSING
from pathlib import Path
from typing import Any

MAX_JSON = 2**25  # bytes of a JSON file; the index of the largest models has a third of that
MAX_JSON_DEPTH = 64  # nested brackets
MAX_HEADER = 25_000_000  # bytes of a safetensors header: 200,000 tensors; the format allows four times that
MAX_TOKENIZER = 2**27  # bytes of a tokenizer file; the largest known has a quarter of that
MAX_GROWTH = 128  # output characters per input character of a tokenizer's rules; SentencePiece's own make up to 33
MAX_METRICS = 2**26  # bytes of a metrics.jsonl that `look` and `check` read: about 300,000 steps
MAX_LINE = 10 << 20  # bytes of a line in a file: longer ones are not text, and may be a gzip bomb
MAX_TEXT = 1 << 20  # bytes of a text to answer: a line of a file or of standard input
MAX_SQUAD = 1 << 28  # bytes of a nested JSON file of questions, which is parsed as a whole
MAX_ARRAYS = 16 << 30  # bytes of the arrays in one file
SAFE_UNPACKED, MAX_COMPRESSION_RATIO = 1 << 28, 100  # arrays and audio: the ratio is checked above this size in bytes


def check_regular_file(file: Path) -> Path:
    """Refuse pipes and devices, which could block, and links that lead out of the folder."""
    try:
        mode, target = file.stat().st_mode, file.resolve()
    except (OSError, RuntimeError) as error:  # a link to itself is a RuntimeError
        raise ValueError(f"{file} cannot be read: {getattr(error, 'strerror', None) or error}") from None
    if not stat.S_ISREG(mode):
        raise ValueError(f"{file} is not a file that can be read: it is a folder, a pipe or a device")
    if not any(target.is_relative_to(root) for root in allowed_roots(file.parent)):
        raise ValueError(f"{file} is a link out of its folder, to {target}: put the file itself there")
    return file


def read_bounded(file: Path, max_bytes: int) -> bytes:
    """The content of a regular file of at most `max_bytes`."""
    size = check_regular_file(file).stat().st_size
    if size > max_bytes:
        raise ValueError(f"{file} has {size:,} bytes, and at most {max_bytes:,} are read")
    return file.read_bytes()


def check_unpacked_size(file: Path, size: int) -> None:
    """Refuse a small file that would fill the memory."""
    packed = file.stat().st_size
    if size > max(SAFE_UNPACKED, MAX_COMPRESSION_RATIO * packed):
        raise ValueError(
            f"{file}: {packed:,} bytes would unpack to {size:,}, over {MAX_COMPRESSION_RATIO} times as many (the "
            f"limit above {SAFE_UNPACKED >> 20} MB): store it uncompressed"
        )


def lexists(file: Path) -> bool:
    """Whether a file exists, or a symbolic link, even a broken one (as os.path.lexists)."""
    return file.exists() or file.is_symlink()


def allowed_roots(folder: Path) -> list[Path]:
    """Folders that the files of a folder may be in: itself, and the blobs that a snapshot in Hugging Face's cache
    links to."""
    folder = folder.resolve()
    for parent in (folder, *folder.parents):
        repo = parent.parent.parent
        if parent.parent.name == "snapshots" and repo.name.startswith("models--"):
            return [folder, repo / "blobs", repo.parent / "blobs"]  # the last is shared by repositories
    return [folder]


def read_json(file: Path, finite: bool = True) -> dict[str, Any]:
    """The JSON object in a file. `finite` refuses NaN and infinity; files that regard wrote may have them."""
    if not lexists(file):
        raise ValueError(f"{file.parent} is not a model folder: it has no {file.name}")
    size = check_regular_file(file).stat().st_size
    if size > MAX_JSON:
        raise ValueError(f"{file} has {size:,} bytes, and at most {MAX_JSON:,} are read as JSON")
    try:
        content = parse_json(file.read_text(encoding="utf-8"), finite)
    except (OSError, ValueError, RecursionError) as error:
        raise ValueError(f"{file} cannot be read as JSON: {error}") from None
    if not isinstance(content, dict):
        raise ValueError(f"{file} must hold a JSON object, not a {type(content).__name__}")
    if nesting_depth(content) > MAX_JSON_DEPTH:
        raise ValueError(f"{file} cannot be read as JSON: it is more than {MAX_JSON_DEPTH} levels deep")
    return content


def parse_json(text: str, finite: bool = True) -> Any:
    """JSON; ValueError for input that Python accepts and other parsers refuse or read differently."""
    if not finite:
        return json.loads(text)
    content = json.loads(text, object_pairs_hook=finite_object, parse_constant=NonFinite, parse_float=parse_float)
    check_finite("it", content)
    if re.search(r"\\u[dD]", text):
        json.dumps(content, ensure_ascii=False).encode()  # a lone surrogate cannot be encoded
    return content


def reject_duplicate_keys(pairs: list[tuple[str, object]]) -> dict[str, object]:
    """An object_pairs_hook of json.loads."""
    content = dict(pairs)
    if len(content) < len(pairs):
        counts = Counter(key for key, _ in pairs)
        raise ValueError(f"{counts.most_common(1)[0][0]!r} occurs twice")
    return content


class NonFinite(str):
    """NaN, an infinity or a float that overflows; check_finite refuses it once its key is parsed."""


def parse_float(text: str) -> float | NonFinite:
    return float(text) if math.isfinite(float(text)) else NonFinite(text)


def finite_object(pairs: list[tuple[str, object]]) -> dict[str, object]:
    for key, value in pairs:
        check_finite(key, value)
    return reject_duplicate_keys(pairs)


def check_finite(key: str, value: object) -> None:
    if isinstance(value, NonFinite):
        raise ValueError(f"{key}: {value[:20]} is not a number")
    if isinstance(value, list):
        for item in value:
            check_finite(key, item)


def nesting_depth(content: object) -> int:
    depth, level = 0, [content]
    while level:
        depth += 1
        nodes = [node.values() if isinstance(node, dict) else node for node in level if isinstance(node, dict | list)]
        level = [value for node in nodes for value in node]
    return depth


def read_flag(config: Mapping[str, object], name: str, default: bool) -> bool:
    value = config.get(name)
    if not isinstance(value, bool | None):
        raise ValueError(f"{name} must be true or false, not {value!r}")
    return default if value is None else value


def get_nested(config: object, key: str) -> object:
    """The value at a key with dots, or MISSING."""
    for part in key.split("."):
        if not isinstance(config, Mapping) or part not in config:
            return MISSING
        config = config[part]
    return config


def set_nested(config: dict[str, object], key: str, value: object) -> None:
    """Set the value at a key with dots; MISSING deletes it."""
    part, _, rest = key.partition(".")
    if rest:
        inner = config.get(part)
        config[part] = inner = inner if isinstance(inner, dict) else {}
        set_nested(inner, rest, value)
    elif value is MISSING:
        config.pop(part, None)
    else:
        config[part] = value


def unflatten(flat: Mapping[str, object]) -> dict[str, object]:
    """{"a.b": 1} -> {"a": {"b": 1}}"""
    config: dict[str, object] = {}
    for key, value in flat.items():
        set_nested(config, key, value)
    return config
