"""The weights of a folder: names, shapes and dtypes from the headers alone, and the tensors themselves.

model.safetensors                 8 bytes: length of the header | header: JSON | the data of all tensors
model.safetensors.index.json      tensor name -> the file that holds it, if there are several

A header from an untrusted file is accepted only if it fits into the file and its tensors cover the rest exactly. Before
that, no data is read and no memory allocated for it.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple, TypeGuard

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from regard.json_files import MAX_HEADER, check_regular_file, lexists, parse_json, read_json

SAFE_WEIGHTS, SAFE_INDEX = "model.safetensors", "model.safetensors.index.json"
MAX_DIMS, MAX_NAME = 8, 500  # dimensions of a tensor, characters of its name
DTYPES = {
    "F64": torch.float64, "F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16,
    "F8_E4M3": torch.float8_e4m3fn, "F8_E5M2": torch.float8_e5m2,
    "I64": torch.int64, "I32": torch.int32, "I16": torch.int16, "I8": torch.int8,
    "U64": torch.uint64, "U32": torch.uint32, "U16": torch.uint16, "U8": torch.uint8, "BOOL": torch.bool,
}  # fmt: skip
PICKLE_PATTERNS = ("*.bin", "*.pt", "*.pth", "*.ckpt", "*.pkl", "*.pickle")
OTHER_FORMATS = {
    "TensorFlow": ("*.h5", "*.ckpt.index"),
    "Flax": ("*.msgpack",),
    "GGUF": ("*.gguf",),
    "ONNX": ("*.onnx", "onnx/*.onnx"),
    "safetensors under another name": ("*.safetensors",),
}
MAGIC_BYTES = {
    b"PK\x03\x04": "pickle",  # torch.save has written zip archives since 2020
    **{bytes([0x80, protocol]): "pickle" for protocol in range(2, 6)},
    b"GGUF": "GGUF",
    b"\x89HDF": "TensorFlow",
    b"version https://git-lfs": "LFS",
}
PICKLE_REMEDY = (
    "opening a pickle can run code, so regard never does. Take a revision of the repository that has "
    "model.safetensors, or, if you trust its author, open it once in transformers with the class that config.json "
    "names under architectures, and save_pretrained(FOLDER, safe_serialization=True)"
)


class TensorInfo(NamedTuple):
    """A tensor, as the header of its file describes it."""

    file: Path
    dtype: torch.dtype
    shape: tuple[int, ...]

    def numel(self) -> int:
        return math.prod(self.shape)

    def meta_tensor(self) -> Tensor:
        """Its dtype and shape, without data."""
        return torch.empty(self.shape, dtype=self.dtype, device="meta")


def read_headers(folder: Path) -> dict[str, TensorInfo]:
    """All tensors of a folder by name."""
    if lexists(folder / SAFE_WEIGHTS):
        return read_header(folder / SAFE_WEIGHTS)
    if not lexists(folder / SAFE_INDEX):
        raise ValueError(missing_weights_message(folder))
    weight_map, stored = read_index(folder / SAFE_INDEX), dict[str, TensorInfo]()
    for file in sorted(set(weight_map.values())):
        if not lexists(folder / file):
            raise ValueError(f"{folder / SAFE_INDEX} names {file}, which is not in its folder")
        for name, info in read_header(folder / file).items():
            if weight_map.get(name) != file:
                claim = f"says {weight_map[name]}" if name in weight_map else "does not list it"
                raise ValueError(f"{folder / file} holds {name}, but {SAFE_INDEX} {claim}")
            stored[name] = info
    if missing := weight_map.keys() - stored.keys():
        name = min(missing)
        raise ValueError(f"{folder / SAFE_INDEX}: {weight_map[name]} does not hold {name}")
    return stored


def read_index(file: Path) -> dict[str, str]:
    """Tensor name -> file name. Only plain file names are accepted: they cannot leave the folder."""
    weight_map = read_json(file).get("weight_map")
    if not isinstance(weight_map, dict) or not weight_map:
        raise ValueError(f"{file} has no weight_map that tells which file holds which tensor")
    for name in weight_map.values():
        if not isinstance(name, str) or not re.fullmatch(r"[\w.-]+\.safetensors", name, re.ASCII):
            raise ValueError(f"{file}: {str(name)[:80]!r} is not the plain name of a safetensors file")
    return weight_map


def read_header(file: Path) -> dict[str, TensorInfo]:
    size = check_regular_file(file).stat().st_size
    try:
        with file.open("rb") as stream:
            start = stream.read(32)
            length = int.from_bytes(start[:8], "little")
            if size < 10 or length > min(MAX_HEADER, size - 8) or start[8:9] != b"{":
                raise ValueError(header_problem(start, length, size))
            stream.seek(8)
            header = parse_json(stream.read(length).decode())
        return {name: TensorInfo(file, *entry) for name, entry in check_header(header, size - 8 - length).items()}
    except (OSError, ValueError, RecursionError) as error:
        raise ValueError(f"{file} cannot be read as safetensors: {error}") from None


def header_problem(start: bytes, length: int, size: int) -> str:
    """Why the first bytes of a file are not the start of a safetensors file."""
    kind = next((kind for magic, kind in MAGIC_BYTES.items() if start.startswith(magic)), None)
    if kind == "pickle":
        return f"it is a pickle by another name; {PICKLE_REMEDY}"
    if kind == "LFS":
        return "it is a note of git that the file is stored elsewhere: run `git lfs pull` in its folder"
    if kind:
        return f"it is a file of {kind} by another name"
    if size < 10:
        return f"it has only {size} bytes"
    if length > min(MAX_HEADER, size - 8):
        return f"its header would have {length:,} bytes, the file has {size:,}, and at most {MAX_HEADER:,} are allowed"
    return "its header does not begin with {"


def check_header(header: dict[str, object], size: int) -> dict[str, tuple[torch.dtype, tuple[int, ...]]]:
    """Dtype and shape by name; ValueError if the header contradicts itself or the `size` in bytes of the data."""
    metadata = header.pop("__metadata__", {})
    if not isinstance(metadata, dict) or not all(isinstance(value, str) for value in metadata.values()):
        raise ValueError("__metadata__ must hold texts only")
    entries, spans = {}, []
    for name, entry in header.items():
        if not name.isprintable() or len(name) > MAX_NAME:
            raise ValueError(f"{name[:MAX_NAME]!r} is not a valid tensor name")
        dtype, shape, (begin, end) = check_entry(name, entry)
        entries[name] = dtype, shape
        spans.append((begin, end, name))
    offset = 0
    for begin, end, name in sorted(spans):
        if begin != offset:
            raise ValueError(f"{name} begins at byte {begin}, but what comes before it ends at {offset}")
        offset = end
    if offset != size:
        raise ValueError(
            f"its tensors end at byte {offset}, but the file goes on to {size}: it is cut off, or too long"
        )
    return entries


def check_entry(name: str, entry: object) -> tuple[torch.dtype, tuple[int, ...], tuple[int, int]]:
    if not isinstance(entry, dict) or entry.keys() != {"dtype", "shape", "data_offsets"}:
        raise ValueError(f"{name} must have a dtype, a shape and data_offsets, and nothing else")
    dtype, shape, span = entry["dtype"], entry["shape"], entry["data_offsets"]
    if not isinstance(dtype, str) or dtype not in DTYPES:
        raise ValueError(f"{name} has dtype {str(dtype)[:20]!r}, which is none of {', '.join(DTYPES)}")
    if not are_sizes(shape) or len(shape) > MAX_DIMS:
        raise ValueError(f"{name}: a shape is a list of at most {MAX_DIMS} whole numbers, not {str(shape)[:40]}")
    if not are_sizes(span) or len(span) != 2 or span[0] > span[1]:
        raise ValueError(f"{name}: data_offsets are a begin and an end, not {str(span)[:40]}")
    if math.prod(shape) * DTYPES[dtype].itemsize != span[1] - span[0]:
        raise ValueError(f"{name}: {span[1] - span[0]} bytes do not hold the shape {tuple(shape)} of {dtype}")
    return DTYPES[dtype], tuple(shape), (span[0], span[1])


def are_sizes(values: object) -> TypeGuard[list[int]]:
    return isinstance(values, list) and all(type(value) is int and 0 <= value < 2**63 for value in values)


def missing_weights_message(folder: Path) -> str:
    def matching_files(patterns: Iterable[str]) -> list[str]:
        return sorted(str(file.relative_to(folder)) for pattern in patterns for file in folder.glob(pattern))

    if pickles := matching_files(PICKLE_PATTERNS):
        return f"{folder} has its weights only as a pickle ({', '.join(pickles[:3])}), and {PICKLE_REMEDY}"
    for kind, patterns in OTHER_FORMATS.items():
        if files := matching_files(patterns):
            only = f"{folder} has weights of {kind} only ({', '.join(files[:3])})"
            return f"{only}, and regard reads {SAFE_WEIGHTS} or {SAFE_INDEX}"
    if lexists(folder / "train.json") and lexists(folder / "task.json"):
        task = read_json(folder / "task.json").get("task")
        saved = any(folder.glob("step-*"))
        command = f"regard train {task} --resume --output-dir {folder}" if saved else "the command that started it"
        return f"{folder} is a training run that was stopped before its first evaluation: resume with {command}"
    return f"{folder} has no weights: neither {SAFE_WEIGHTS} nor {SAFE_INDEX}"


def read_tensors(stored: Mapping[str, TensorInfo]) -> dict[str, Tensor]:
    """Memory-mapped tensors: their data is read on first use."""
    tensors = dict[str, Tensor]()
    for file in sorted({info.file for info in stored.values()}):
        try:
            with safe_open(file, framework="pt") as tensor_file:
                tensors |= {name: tensor_file.get_tensor(name) for name, info in stored.items() if info.file == file}
        except (SafetensorError, OSError) as error:
            raise ValueError(f"{file} cannot be read as safetensors: {error}") from None
    return tensors
