"""Length and hash of a stream of documents, taken in one pass and stored for as long as its files do not change.

CACHE/summaries/KEY.json, where KEY is a hash of how the stream is read and of (path, size, time stamp) of every file
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Sequence
from hashlib import blake2b
from pathlib import Path
from typing import NamedTuple

from regard.data.cache_lock import own_suffix

FORMAT = 1  # of the chunks: another division of a text into chunks changes its hash
SETTLED_SECONDS = 5.0  # a file may change again without a new time stamp just after it was written


class StreamSummary(NamedTuple):
    characters: int
    digest: str


class SummaryBuilder:
    """The summary of the chunks added so far."""

    def __init__(self) -> None:
        self.characters = 0
        self.hash = blake2b(digest_size=16)

    def add(self, text: str, is_last: bool) -> None:
        self.characters += len(text)
        self.hash.update(text.encode() + bytes([is_last]))

    def build(self) -> StreamSummary:
        return StreamSummary(self.characters, self.hash.hexdigest())


class SummaryCache:
    """The stored summaries of the streams that are read from some files."""

    def __init__(self, files: Sequence[str], how: str):
        self.files, self.how = files, how

    def file(self, cache: Path, part: str) -> Path | None:
        """Where the summary of a part is stored; None while a file may still be written."""
        stats = [os.stat(file) for file in self.files]
        if time.time() - max(stat.st_mtime for stat in stats) < SETTLED_SECONDS:
            return None
        entries = [(os.path.abspath(f), s.st_size, s.st_mtime_ns) for f, s in zip(self.files, stats, strict=True)]
        key = blake2b(json.dumps([FORMAT, self.how, part, entries]).encode(), digest_size=16).hexdigest()
        return cache / "summaries" / f"{key}.json"

    def read(self, cache: Path, part: str) -> StreamSummary | None:
        file = self.file(cache, part)
        try:
            content = json.loads(file.read_text()) if file else {}
            return StreamSummary(int(content["characters"]), str(content["digest"]))
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def write(self, cache: Path, part: str, summary: StreamSummary) -> None:
        file = self.file(cache, part)
        if file is None:
            return
        temporary = file.with_name(f"{file.name}.{own_suffix()}")
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
            temporary.write_text(json.dumps({"text": self.files[0], **summary._asdict()}))
            temporary.replace(file)
        except OSError:  # a full disk or a cache without permission: the summary is taken again
            temporary.unlink(missing_ok=True)
