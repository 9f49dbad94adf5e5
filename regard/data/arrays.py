"""Reads arrays from idx files, the format of MNIST (plain or gzip), and from .npz files. Pickled objects are refused.

idx = 0 0 8 dims, then the size of each dimension in 4 bytes, then the values, one byte each
"""

import math
import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np
import numpy.typing as npt

from regard.data.lines import Lines
from regard.json_files import MAX_ARRAYS, check_unpacked_size

LOAD_LOCK = Lock()  # of np.load: CPython 3.11 fails now and then if two threads parse literals, as in .npy headers


def read_idx(file: Path) -> npt.NDArray[np.uint8]:
    if not file.is_file():
        raise ValueError(f"{file}: not a regular file, or it does not exist")
    chunks = Lines(file).chunks()
    data = bytearray(next(chunks, b""))
    dims = data[3] if len(data) > 3 and data.startswith(b"\0\0\x08") else 0
    start = 4 + 4 * dims
    if not 1 <= dims <= 4 or len(data) < start:
        raise ValueError(f"{file}: not an idx file of bytes, like train-images-idx3-ubyte")
    shape = np.frombuffer(data[4:start], ">u4").tolist()
    size = start + math.prod(shape)
    if size > MAX_ARRAYS:
        raise ValueError(f"{file}: {shape} are over {MAX_ARRAYS >> 30} GB; is this an idx file?")
    check_unpacked_size(file, size)
    for chunk in chunks:
        data += chunk
        if len(data) > size:
            break
    if len(data) != size:
        actual = "more" if len(data) > size else len(data)
        raise ValueError(f"{file}: {shape} need {size} bytes, but the file has {actual}; copy or download it again")
    return np.frombuffer(data, np.uint8, offset=start).reshape(shape)


def read_npz(file: Path) -> tuple[npt.NDArray[np.generic], npt.NDArray[np.generic]]:
    """The images (array `images` or `x`) and their labels (`labels` or `y`); another name is accepted if only one array
    has the right number of dimensions."""
    arrays = read_arrays(file)
    return select_array(arrays, ("images", "x"), (3, 4), file), select_array(arrays, ("labels", "y"), (1,), file)


def read_arrays(file: Path) -> dict[str, npt.NDArray[Any]]:
    """All arrays of a .npz file, by their lower-case names."""
    if file.exists() and not file.is_file():
        raise ValueError(f"{file}: not a regular file")
    try:
        with zipfile.ZipFile(file) as archive:
            size = sum(part.file_size for part in archive.infolist())
        if size > MAX_ARRAYS:
            raise ValueError(f"over {MAX_ARRAYS >> 30} GB")
        check_unpacked_size(file, size)
        with LOAD_LOCK, np.load(file, allow_pickle=False) as archive:
            return {name.lower(): archive[name] for name in archive.files}
    except (ValueError, OSError, EOFError, RuntimeError, MemoryError, zlib.error, zipfile.BadZipFile) as error:
        if str(file) in str(error):
            raise
        raise ValueError(f"{file}: not a .npz file of plain arrays: {str(error)[:100]}") from error


def select_array(
    arrays: Mapping[str, npt.NDArray[np.generic]], names: tuple[str, str], dims: tuple[int, ...], file: Path
) -> npt.NDArray[np.generic]:
    candidates = {name: array for name, array in arrays.items() if array.ndim in dims}
    matches = [array for name, array in candidates.items() if name in names] or [*candidates.values()]
    if len(matches) != 1:
        content = ", ".join(f"{name} {array.shape}" for name, array in arrays.items()) or "no arrays"
        raise ValueError(f"{file}: exactly one array named {' or '.join(names)} is needed; the file has {content}")
    return matches[0]
