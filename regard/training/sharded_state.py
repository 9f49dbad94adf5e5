"""The tensors of a checkpoint: one file, or a file per rank with an index of slices. Any number of ranks reads either.

state.safetensors                   all tensors, whole: one process, or ranks that hold the same (DDP)
state-00001-of-00004.safetensors    the slices that rank 0 writes
state.safetensors.index.json        name -> dtype and shape of the whole tensor; file, offsets and shape of each slice

A slice that several ranks hold (replicas of HSDP, a scalar) is written once, by the one that has the least to write.
Reading copies the overlap of the stored slices and the one that a rank needs, in blocks of rows, and releases the
memory of the files after each block.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from regard.hub.folder import write_tensors
from regard.hub.tensor_slices import TensorSlice, slice_of
from regard.hub.weights import DTYPES, read_header
from regard.training.checkpoint import Files
from regard.training.ranks import Ranks

STATE, STATE_INDEX = "state.safetensors", "state.safetensors.index.json"
BLOCK = 2**26  # bytes that reading may take beside the tensors: half for data, half for what the kernel maps around it
DTYPE_NAMES = {dtype: name for name, dtype in DTYPES.items()}
Sizes = tuple[int, ...]


class Piece(NamedTuple):
    """A slice without its data."""

    name: str
    dtype: str
    whole: Sizes  # shape of the whole tensor
    offsets: Sizes
    shape: Sizes

    @property
    def nbytes(self) -> int:
        return math.prod(self.shape) * DTYPES[self.dtype].itemsize


def piece_of(part: TensorSlice) -> Piece:
    return Piece(part.name, DTYPE_NAMES[part.tensor.dtype], part.shape, part.offsets, tuple(part.tensor.shape))


def state_files(parts: Sequence[TensorSlice], ranks: Ranks) -> tuple[Files, int]:
    """The files of the state that this rank writes, and their size in bytes. All ranks call this together."""
    if ranks.size == 1:
        return {STATE: partial(write_slices, parts)}, total_bytes(parts)
    pieces = ranks.gather([piece_of(part) for part in parts])
    if all(rank_pieces == pieces[0] and is_whole(rank_pieces) for rank_pieces in pieces):
        return ({STATE: partial(write_slices, parts)}, total_bytes(parts)) if ranks.is_first else ({}, 0)
    plan = assign(pieces)
    own = [part for part in parts if part.tensor.numel() and plan[piece_of(part)] == ranks.rank]
    names = [f"state-{rank + 1:05d}-of-{ranks.size:05d}.safetensors" for rank in range(ranks.size)]
    files: dict[str, Any] = {names[ranks.rank]: partial(write_slices, own)}
    if ranks.is_first:
        index = json.dumps(make_index(plan, names), separators=(",", ":")).encode()
        files[STATE_INDEX] = lambda file: file.write_bytes(index)
    return files, total_bytes(own)


def total_bytes(parts: Iterable[TensorSlice]) -> int:
    return sum(part.tensor.nbytes for part in parts)


def is_whole(pieces: Iterable[Piece]) -> bool:
    return all(piece.shape == piece.whole for piece in pieces)


def write_slices(parts: Iterable[TensorSlice], file: Path) -> None:
    write_tensors(file, {part.name: part.tensor.cpu().contiguous() for part in parts})


def assign(pieces: Sequence[Sequence[Piece]]) -> dict[Piece, int]:
    """The rank that writes each slice, from the slices that every rank holds. Raises ValueError unless the slices of
    each tensor are the whole of it."""
    holders: dict[Piece, list[int]] = {}
    for rank, rank_pieces in enumerate(pieces):
        for piece in rank_pieces:
            holders.setdefault(piece, []).append(rank)
    count: dict[str, int] = {}
    for piece in holders:
        count[piece.name] = count.get(piece.name, 0) + math.prod(piece.shape)
    for name, dtype, whole, *_ in holders:
        if count[name] != math.prod(whole):
            raise ValueError(f"the ranks hold {count[name]:,} numbers of {name}, {whole} of {dtype}: a rank differs")
    load, plan = [0] * len(pieces), dict[Piece, int]()
    for piece in sorted(holders, key=lambda piece: (len(holders[piece]), -piece.nbytes, piece)):  # no choice first
        plan[piece] = min(holders[piece], key=lambda rank: (load[rank], rank))
        load[plan[piece]] += piece.nbytes
    return plan


def make_index(plan: dict[Piece, int], names: Sequence[str]) -> dict[str, object]:
    tensors: dict[str, dict[str, Any]] = {}
    for piece in sorted(plan):
        entry = tensors.setdefault(piece.name, {"dtype": piece.dtype, "shape": piece.whole, "slices": []})
        if piece.nbytes:
            entry["slices"].append({"file": names[plan[piece]], "offsets": piece.offsets, "shape": piece.shape})
    return {"metadata": {"total_size": sum(piece.nbytes for piece in plan)}, "tensors": tensors}


@dataclass(frozen=True)
class StoredSlice:
    file: Path
    offsets: Sizes
    shape: Sizes


@dataclass(frozen=True)
class StoredTensor:
    dtype: torch.dtype
    shape: Sizes
    slices: list[StoredSlice]


def read_state_index(folder: Path) -> dict[str, StoredTensor]:
    """All tensors of a checkpoint by name. Its files have been compared with their checksums."""
    if (folder / STATE).exists():
        header = read_header(folder / STATE)
        return {
            name: StoredTensor(info.dtype, info.shape, [StoredSlice(info.file, (0,) * len(info.shape), info.shape)])
            for name, info in header.items()
        }
    entries = json.loads((folder / STATE_INDEX).read_bytes())["tensors"]
    return {name: stored_tensor(folder, **entry) for name, entry in entries.items()}


def stored_tensor(folder: Path, dtype: str, shape: list[int], slices: list[dict[str, Any]]) -> StoredTensor:
    stored = [StoredSlice(folder / item["file"], tuple(item["offsets"]), tuple(item["shape"])) for item in slices]
    return StoredTensor(DTYPES[dtype], tuple(shape), stored)


class StateReader:
    """Reads any slice of the tensors of a checkpoint, whatever number of ranks wrote it."""

    def __init__(self, folder: Path):
        self.folder = folder
        self.tensors = read_state_index(folder)
        self.open_files: dict[Path, Any] = {}
        self.num_bytes = 0  # read since the files were opened

    def copy_into(self, part: TensorSlice) -> None:
        """Copy the stored numbers of a slice into its tensor."""
        stored = self.tensors.get(part.name)
        if stored is None or stored.shape != part.shape:
            detail = f"has shape {stored.shape} there, and {part.shape} in this run" if stored else "is missing there"
            raise ValueError(f"{self.folder} is not a checkpoint of this model: {part.name} {detail}")
        for piece in stored.slices:
            bounds = zip(part.offsets, part.tensor.shape, piece.offsets, piece.shape, strict=True)
            overlap = [(max(a, b), min(a + size, b + length)) for a, size, b, length in bounds]
            if any(start >= end for start, end in overlap):
                continue
            row_bytes = math.prod(piece.shape[1:]) * stored.dtype.itemsize
            for rows in row_blocks(overlap, row_bytes):
                block = self._read(piece.file, part.name, shifted(rows, piece.offsets), row_bytes)
                part.tensor[shifted(rows, part.offsets)] = block.to(part.tensor)

    def read_like(self, name: str, weight: Tensor) -> Tensor:
        """A new tensor: divided as `weight` if it has its shape, else whole."""
        stored = self.tensors[name]
        if stored.shape == tuple(weight.shape):
            tensor = torch.empty_like(weight, dtype=stored.dtype, memory_format=torch.contiguous_format)
        else:
            tensor = torch.empty(stored.shape, dtype=stored.dtype, device=weight.device)
        self.copy_into(slice_of(name, tensor))
        return tensor

    def read(self, part: TensorSlice) -> Tensor:
        """The stored numbers of a slice, as a new tensor on the CPU."""
        tensor = torch.empty(part.tensor.shape, dtype=self.tensors[part.name].dtype)
        self.copy_into(TensorSlice(part.name, part.shape, part.offsets, tensor))
        return tensor

    def _read(self, file: Path, name: str, region: tuple[slice, ...], row_bytes: int) -> Tensor:
        """A view of the memory-mapped file, whose pages stay in memory as long as it is open."""
        num_bytes = row_bytes * (region[0].stop - region[0].start) if region else row_bytes
        if self.num_bytes + num_bytes > BLOCK // 2:
            self.open_files, self.num_bytes = {}, 0
        self.num_bytes += num_bytes
        try:
            stream = self.open_files.get(file) or self.open_files.setdefault(file, safe_open(file, framework="pt"))
            tensor: Tensor = stream.get_slice(name)[region] if region else stream.get_tensor(name)
        except (SafetensorError, OSError) as error:
            raise ValueError(f"{file} cannot be read as safetensors: {error}") from None
        return tensor


def row_blocks(region: Sequence[tuple[int, int]], row_bytes: int) -> Iterator[list[tuple[int, int]]]:
    """A region as consecutive rows of at most half a block. A scalar has no rows."""
    if not region:
        yield []
        return
    (first, last), *columns = region
    step = max(1, BLOCK // 2 // max(1, row_bytes))
    for start in range(first, last, step):
        yield [(start, min(start + step, last)), *columns]


def shifted(region: Sequence[tuple[int, int]], offsets: Sizes) -> tuple[slice, ...]:
    """A region of the whole tensor as indices of a slice with these offsets."""
    return tuple(slice(start - offset, end - offset) for (start, end), offset in zip(region, offsets, strict=True))
