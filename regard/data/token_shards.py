"""Token shards: the tokens of a corpus in files of one size, and the index that makes them one sequence.

FOLDER/00000.tokens ...    little-endian uint16, or uint32 for more than 65,536 tokens
FOLDER/progress.json       while they are written: the shards that are complete, and where the next begins in the text
FOLDER/index.json          at the end: tokens and BLAKE2b of every shard, bytes of the text

A shard appears by rename when it is complete, and the index last. A killed writer continues after the last shard.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from hashlib import blake2b, file_digest
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import tokenizers

from regard.atomic import path_in_errors
from regard.data.batches import Ints
from regard.data.cache_lock import own_suffix

SHARD_TOKENS = 1 << 26  # tokens of a shard: 128 MB of uint16
ALWAYS_HASHED = 1 << 20  # bytes; a larger shard is hashed when its time stamp is not that of its writing
FORMAT = 1
INDEX, PROGRESS = "index.json", "progress.json"
Tokens = npt.NDArray[np.unsignedinteger[Any]]


@dataclass(frozen=True)
class DocumentLengths:
    """The longest document of a sequence of tokens, in one pass over it. Every document begins with `begin`."""

    begin: int
    count: int = 0  # documents
    start: int = 0  # of the last document
    total: int = 0  # tokens
    longest: int = 0  # tokens of the longest document but the last

    def add(self, ids: Tokens) -> DocumentLengths:
        starts = np.flatnonzero(ids == self.begin) + self.total
        total = self.total + len(ids)
        if not len(starts):
            return replace(self, total=total)
        edges = starts if not self.count else np.concatenate([[self.start], starts])
        longest = max(self.longest, int(np.diff(edges).max(initial=0)))
        return DocumentLengths(self.begin, self.count + len(starts), int(starts[-1]), total, longest)

    @property
    def maximum(self) -> int:
        """Of one document or none, the whole sequence."""
        return max(self.longest, self.total - self.start) if self.count > 1 else self.total


@dataclass(frozen=True)
class Place:
    """A place in the text: the tokens before it come from `chunks` whole chunks and `skip` tokens of the next."""

    chunks: int = 0
    skip: int = 0
    bytes: int = 0  # of the whole chunks


class Shard(NamedTuple):
    tokens: int
    blake2b: str
    mtime_ns: int  # when it was written

    @classmethod
    def of(cls, file: Path, tokens: int, digest: str) -> Shard:
        return cls(tokens, digest, file.stat().st_mtime_ns)


class ShardFolder:
    """The files of a corpus."""

    def __init__(self, folder: Path, dtype: type[np.uint16] | type[np.uint32]):
        self.folder, self.dtype = folder, np.dtype(dtype).newbyteorder("<")

    @property
    def is_complete(self) -> bool:
        return (self.folder / INDEX).is_file()

    def file(self, number: int) -> Path:
        return self.folder / f"{number:05}.tokens"

    def read_index(self) -> dict[str, Any]:
        """The index, and its shards as `Shard`s of the right size."""
        file = self.folder / INDEX
        try:
            index = json.loads(file.read_text())
            index["shards"] = [Shard(*entry) for entry in index["shards"]]
            if index["format"] != FORMAT or index["tokens"] != sum(shard.tokens for shard in index["shards"]):
                raise ValueError("the tokens of the shards do not add up")
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise ValueError(f"{file}: damaged ({error!r:.100}); {self.remedy}") from None
        for number, shard in enumerate(index["shards"]):
            self.check_size(number, shard)
        return index

    @property
    def remedy(self) -> str:
        return f"delete {self.folder}, and the command tokenises the text again"

    def check_size(self, number: int, shard: Shard) -> None:
        file, expected = self.file(number), shard.tokens * self.dtype.itemsize
        size = file.stat().st_size if file.is_file() else 0
        if size != expected:
            raise ValueError(f"{file}: {size:,} bytes, where its index has {expected:,}; {self.remedy}")

    def check_hash(self, number: int, shard: Shard) -> None:
        with self.file(number).open("rb") as stream:
            digest = file_digest(stream, new_digest).hexdigest()
        if digest != shard.blake2b:
            raise ValueError(f"{self.file(number)}: differs from its checksum; {self.remedy}")

    def verify(self) -> None:
        """Raise ValueError if a shard is not as it was written."""
        for number, shard in enumerate(self.read_index()["shards"]):
            self.check_hash(number, shard)

    def open(self, number: int, shard: Shard) -> Tokens:
        """A memory-mapped shard, hashed if it is small or was touched after its writing."""
        stat = self.file(number).stat()
        if stat.st_size < ALWAYS_HASHED or stat.st_mtime_ns != shard.mtime_ns:
            self.check_hash(number, shard)
        return np.memmap(self.file(number), self.dtype, "r")

    def write_json(self, name: str, content: object) -> None:
        """Writers of the same content may meet: each has a temporary file of its own."""
        temporary = self.folder / f"{name}.{own_suffix()}"
        with path_in_errors(self.folder / name):
            temporary.write_text(json.dumps(content, indent=1))
            temporary.replace(self.folder / name)


def new_digest() -> blake2b:
    return blake2b(digest_size=16)


class ShardWriter:
    """Appends tokens; every full shard is renamed into place and recorded in progress.json."""

    def __init__(self, files: ShardFolder, begin: int):
        self.files, self.size = files, SHARD_TOKENS
        self.shards: list[Shard] = []
        self.place, self.lengths = Place(), DocumentLengths(begin)
        files.folder.mkdir(parents=True, exist_ok=True)
        self.resume()
        for leftover in files.folder.glob("*.tokens.*"):
            leftover.unlink(missing_ok=True)
        self.pending: list[Tokens] = []  # of the shard that is being written
        self.count = 0  # its tokens
        self.open_shard()

    @property
    def conditions(self) -> dict[str, object]:
        """What the tokens of a shard depend on besides text and tokenizer."""
        return {"format": FORMAT, "tokenizers": tokenizers.__version__, "shard_tokens": self.size}

    def resume(self) -> None:
        """Continue after the shards that an interrupted run completed, if they are whole."""
        try:
            progress = json.loads((self.files.folder / PROGRESS).read_text())
            shards = [Shard(*entry) for entry in progress["shards"]]
            place, lengths = Place(**progress["place"]), DocumentLengths(**progress["lengths"])
            if {name: progress[name] for name in self.conditions} != self.conditions:
                return
            for number, shard in enumerate(shards):
                self.files.check_size(number, shard)
                self.files.check_hash(number, shard)
        except (OSError, ValueError, KeyError, TypeError):
            return
        self.shards, self.place, self.lengths = shards, place, lengths

    def open_shard(self) -> None:
        self.digest, self.count = new_digest(), 0
        self.temporary = self.files.folder / f"{len(self.shards):05}.tokens.{own_suffix()}"
        self.stream = self.temporary.open("wb")

    def add(self, ids: Tokens, lengths: Ints, sizes: Ints) -> None:
        """The tokens of whole chunks, with the tokens and the bytes of each. The first may be cut by a resumed run."""
        ends, start = lengths.cumsum(), self.place
        offset = start.skip  # tokens of the batch that are in a shard already
        while len(ids) - offset >= self.size - self.count:
            piece = ids[offset : offset + self.size - self.count]
            self.write(piece)
            offset += len(piece)
            whole = int(np.searchsorted(ends, offset, "right"))
            skip = offset - int(ends[whole - 1]) if whole else offset
            self.place = Place(start.chunks + whole, skip, start.bytes + int(sizes[:whole].sum()))
            self.finish_shard()
            self.open_shard()
        self.write(ids[offset:])
        self.place = Place(start.chunks + len(lengths), 0, start.bytes + int(sizes.sum()))

    def write(self, ids: Tokens) -> None:
        self.lengths = self.lengths.add(ids)
        block = ids.astype(self.files.dtype).tobytes()
        self.digest.update(block)
        with path_in_errors(self.temporary):
            self.stream.write(block)
        self.count += len(ids)

    def finish_shard(self) -> None:
        with path_in_errors(self.temporary):
            self.stream.flush()
            os.fsync(self.stream.fileno())
            self.stream.close()
            file = self.files.file(len(self.shards))
            self.temporary.replace(file)
        self.shards.append(Shard.of(file, self.count, self.digest.hexdigest()))
        state = {"shards": self.shards, "place": asdict(self.place), "lengths": asdict(self.lengths)}
        self.files.write_json(PROGRESS, self.conditions | state)

    def finish(self, name: str) -> None:
        """The last shard, which may be shorter, and the index."""
        if self.count or not self.shards:
            self.finish_shard()
        else:
            self.close()
        index = {"format": FORMAT, "text": name, "bytes": self.place.bytes, "tokens": self.lengths.total}
        index |= {"longest_document": self.lengths.maximum, "shards": self.shards}
        self.files.write_json(INDEX, index)
        (self.files.folder / PROGRESS).unlink(missing_ok=True)

    def close(self) -> None:
        """Remove the shard that is not complete."""
        self.stream.close()
        self.temporary.unlink(missing_ok=True)


def blocks(ids: Tokens, size: int = 1 << 20) -> Iterator[Tokens]:
    return (ids[i : i + size] for i in range(0, len(ids), size))
