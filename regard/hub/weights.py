"""The weights of a folder: what is stored, by the headers alone, and the tensors themselves.

model.safetensors                 8 bytes: length of the header | header: JSON | the numbers of all tensors
model.safetensors.index.json      which of several such files holds which tensor

A file that somebody else has made is believed only as far as it agrees with itself: the header fits into the file, and
the tensors cover the rest of it exactly. Until then no number is read, and no memory taken for one.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from regard.hub.files import HEADER, parsed, plain, read_json, there

WHOLE, INDEX = "model.safetensors", "model.safetensors.index.json"
DIMENSIONS, LETTERS = 8, 500  # most of a tensor, and of its name
TYPES = {
    "F64": torch.float64, "F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16,
    "F8_E4M3": torch.float8_e4m3fn, "F8_E5M2": torch.float8_e5m2,
    "I64": torch.int64, "I32": torch.int32, "I16": torch.int16, "I8": torch.int8,
    "U64": torch.uint64, "U32": torch.uint32, "U16": torch.uint16, "U8": torch.uint8, "BOOL": torch.bool,
}  # fmt: skip
PICKLES = ("*.bin", "*.pt", "*.pth", "*.ckpt", "*.pkl", "*.pickle")
OTHERS = {
    "TensorFlow": ("*.h5", "*.ckpt.index"),
    "Flax": ("*.msgpack",),
    "GGUF": ("*.gguf",),
    "ONNX": ("*.onnx", "onnx/*.onnx"),
    "safetensors under another name": ("*.safetensors",),
}
BEGINNINGS = {
    b"PK\x03\x04": "pickle",  # torch.save has wrapped it in a zip since 2020
    **{bytes([0x80, protocol]): "pickle" for protocol in range(2, 6)},
    b"GGUF": "GGUF",
    b"\x89HDF": "TensorFlow",
    b"version https://git-lfs": "LFS",
}
REMEDY = (
    "opening a pickle can run code, so regard never does. Take a revision of the repository that has "
    "model.safetensors, or, if you trust its author, open it once in transformers with the class that config.json "
    "names under architectures, and save_pretrained(FOLDER, safe_serialization=True)"
)


class Stored(NamedTuple):
    """A tensor, as the header of its file tells of it."""

    file: Path
    dtype: torch.dtype
    shape: tuple[int, ...]

    @property
    def numbers(self) -> int:
        return math.prod(self.shape)

    def blank(self) -> Tensor:
        """Its type and shape, without its numbers."""
        return torch.empty(self.shape, dtype=self.dtype, device="meta")


def stored_in(folder: Path) -> dict[str, Stored]:
    """All tensors of a folder by name."""
    if there(folder / WHOLE):
        return read_header(folder / WHOLE)
    if not there(folder / INDEX):
        raise ValueError(without_weights(folder))
    listed, stored = read_index(folder / INDEX), dict[str, Stored]()
    for file in sorted(set(listed.values())):
        if not there(folder / file):
            raise ValueError(f"{folder / INDEX} names {file}, which is not in its folder")
        for name, tensor in read_header(folder / file).items():
            if listed.get(name) != file:
                said = f"says {listed[name]}" if name in listed else "does not list it"
                raise ValueError(f"{folder / file} holds {name}, but {INDEX} {said}")
            stored[name] = tensor
    if lost := listed.keys() - stored.keys():
        name = min(lost)
        raise ValueError(f"{folder / INDEX}: {listed[name]} does not hold {name}")
    return stored


def read_index(file: Path) -> dict[str, str]:
    """Tensor -> the file that holds it. Only a plain name can stay inside of the folder."""
    listed = read_json(file).get("weight_map")
    if not isinstance(listed, dict) or not listed:
        raise ValueError(f"{file} has no weight_map that tells which file holds which tensor")
    for name in listed.values():
        if not isinstance(name, str) or not re.fullmatch(r"[\w.-]+\.safetensors", name, re.ASCII):
            raise ValueError(f"{file}: {str(name)[:80]!r} is not the plain name of a safetensors file")
    return listed


def read_header(file: Path) -> dict[str, Stored]:
    size = plain(file).stat().st_size
    try:
        with file.open("rb") as stream:
            begin = stream.read(32)
            length = int.from_bytes(begin[:8], "little")
            if size < 10 or length > min(HEADER, size - 8) or begin[8:9] != b"{":
                raise ValueError(no_header(begin, length, size))
            stream.seek(8)
            header = parsed(stream.read(length).decode())
        return {name: Stored(file, *tensor) for name, tensor in checked(header, size - 8 - length).items()}
    except (OSError, ValueError, RecursionError) as error:
        raise ValueError(f"{file} cannot be read as safetensors: {error}") from None


def no_header(begin: bytes, length: int, size: int) -> str:
    kind = next((kind for start, kind in BEGINNINGS.items() if begin.startswith(start)), None)
    if kind == "pickle":
        return f"it is a pickle by another name; {REMEDY}"
    if kind == "LFS":
        return "it is a note of git that the file is stored elsewhere: run `git lfs pull` in its folder"
    if kind:
        return f"it is a file of {kind} by another name"
    if size < 10:
        return f"it has only {size} bytes"
    if length > min(HEADER, size - 8):
        return f"its header would have {length:,} bytes, the file has {size:,}, and at most {HEADER:,} are allowed"
    return "its header does not begin with {"


def checked(header: dict[str, Any], size: int) -> dict[str, tuple[torch.dtype, tuple[int, ...]]]:
    """Types and shapes, if the header agrees with itself, and with the number of bytes that follow it."""
    notes = header.pop("__metadata__", {})
    if not isinstance(notes, dict) or not all(isinstance(note, str) for note in notes.values()):
        raise ValueError("__metadata__ must hold texts only")
    found, spans = {}, []
    for name, told in header.items():
        if not name.isprintable() or len(name) > LETTERS:
            raise ValueError(f"{name[:LETTERS]!r} is no name for a tensor")
        dtype, shape, (begin, end) = one_checked(name, told)
        if math.prod(shape) * dtype.itemsize != end - begin:
            raise ValueError(f"{name}: {end - begin} bytes do not hold the shape {shape} of {told['dtype']}")
        found[name] = dtype, shape
        spans.append((begin, end, name))
    place = 0
    for begin, end, name in sorted(spans):
        if begin != place:
            raise ValueError(f"{name} begins at byte {begin}, but what comes before it ends at {place}")
        place = end
    if place != size:
        raise ValueError(f"its tensors end at byte {place}, but the file goes on to {size}: it is cut off, or too long")
    return found


def one_checked(name: str, told: Any) -> tuple[torch.dtype, tuple[int, ...], tuple[int, int]]:
    if not isinstance(told, dict) or told.keys() != {"dtype", "shape", "data_offsets"}:
        raise ValueError(f"{name} must have a dtype, a shape and data_offsets, and nothing else")
    kind, shape, span = told["dtype"], told["shape"], told["data_offsets"]
    if not isinstance(kind, str) or kind not in TYPES:
        raise ValueError(f"{name} is of the type {str(kind)[:20]!r}, which is none of {', '.join(TYPES)}")
    if not counts(shape) or len(shape) > DIMENSIONS:
        raise ValueError(f"{name}: a shape is a list of at most {DIMENSIONS} whole numbers, not {str(shape)[:40]}")
    if not counts(span) or len(span) != 2 or span[0] > span[1]:
        raise ValueError(f"{name}: data_offsets are a begin and an end, not {str(span)[:40]}")
    return TYPES[kind], tuple(shape), (span[0], span[1])


def counts(numbers: Any) -> bool:
    return isinstance(numbers, list) and all(type(number) is int and 0 <= number < 2**63 for number in numbers)


def without_weights(folder: Path) -> str:
    def found(patterns: Iterable[str]) -> list[str]:
        return sorted(str(file.relative_to(folder)) for pattern in patterns for file in folder.glob(pattern))

    if pickles := found(PICKLES):
        return f"{folder} has its weights only as a pickle ({', '.join(pickles[:3])}), and {REMEDY}"
    for kind, patterns in OTHERS.items():
        if files := found(patterns):
            return f"{folder} has weights of {kind} only ({', '.join(files[:3])}), and regard reads {WHOLE} or {INDEX}"
    if there(folder / "train.json") and there(folder / "task.json"):
        task = read_json(folder / "task.json").get("task")
        saved = any(folder.glob("step-*"))
        command = f"regard train {task} --resume --output-dir {folder}" if saved else "the command that started it"
        return f"{folder} is a training run that was stopped before its first validation: go on with {command}"
    return f"{folder} has no weights: neither {WHOLE} nor {INDEX}"


def read_tensors(stored: Mapping[str, Stored]) -> dict[str, Tensor]:
    """Views of the files: what nobody looks at is never read."""
    tensors = dict[str, Tensor]()
    for file in sorted({tensor.file for tensor in stored.values()}):
        try:
            with safe_open(file, framework="pt") as opened:
                tensors |= {name: opened.get_tensor(name) for name, one in stored.items() if one.file == file}
        except (SafetensorError, OSError) as error:
            raise ValueError(f"{file} cannot be read as safetensors: {error}") from None
    return tensors
