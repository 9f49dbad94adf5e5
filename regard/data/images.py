"""Pictures with labels or captions, from folders, idx files, .npz and tables, and what makes them ready for a model.

Every picture gives exactly one row or one `Bad`. Pixels are bytes, (height, width, 1 or 3); sizes may differ. A photo
is made smaller as it is read: thousands of them as the camera took them would fill any memory.

    normal(x) = (x / 255 - mean) / std          with the mean and std of the training pictures, for each channel
"""

from __future__ import annotations

import math
import os
import re
import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from PIL import Image, ImageOps
from torch import Tensor

from regard.choose import must
from regard.data.arrays import read_idx, read_npz
from regard.data.lines import Bad, Lines, Note
from regard.data.processor import CONFIG as CONFIG
from regard.data.processor import find_processor, read_processor, write_processor
from regard.data.text import columns, flaw, kinds_of, tabbed, too_few

Pixels = npt.NDArray[np.uint8]

FORMATS = {".png": "PNG", ".jpg": "JPEG", ".jpeg": "JPEG", ".gif": "GIF", ".webp": "WEBP", ".bmp": "BMP"}
IDX = re.compile(r"idx\d-ubyte(\.gz)?$")
LITTER = ("Thumbs.db", "desktop.ini")  # put into folders by machines, not by people; so are names with a dot in front
LARGEST = 224  # pixels of a side, unless it is given
KEPT = 512  # pixels of the shorter edge of a photo, and so of the largest side that can be given
STRIP = 100  # how much longer one edge may be: a strip made as high as others would be a bomb


class Picture(NamedTuple):
    pixels: Pixels
    labels: tuple[str, ...]
    file: str
    line: int  # the picture's number in its file

    @property
    def asked(self) -> str:
        return digest(self.pixels)

    @property
    def said(self) -> str:
        return "\t".join((self.asked, *self.labels))


class Captioned(NamedTuple):
    pixels: Pixels
    caption: str
    file: str
    line: int

    @property
    def asked(self) -> str:
        return digest(self.pixels)

    @property
    def said(self) -> str:
        return f"{self.asked}\t{self.caption}"

    @property
    def texts(self) -> tuple[str, ...]:
        return (self.caption,)


def digest(pixels: Pixels) -> str:
    return blake2b(f"{pixels.shape}".encode() + pixels.tobytes(), digest_size=16).hexdigest()


def read_pictures(paths: Sequence[str | Path]) -> Iterator[Picture | Bad]:
    """A folder with one subfolder a class; two idx files, of pictures and labels, or a folder with just these; a .npz
    file with the arrays images (or x) and labels (or y)."""
    for path in paths:
        if not os.path.exists(path):
            raise ValueError(f"{path}: no such file or folder")
    match [Path(path) for path in paths]:
        case [folder] if folder.is_dir():
            names = sorted(name for name in os.listdir(folder) if IDX.search(name))
            if len(names) > 2:
                raise ValueError(f"{folder}: which two of {', '.join(names)}? Name the pictures and their labels")
            yield from from_idx([folder / name for name in names]) if names else from_folder(folder)
        case [file] if file.suffix.lower() == ".npz":
            yield from from_arrays(*read_npz(file), str(file))
        case [_, _] as files:
            yield from from_idx(files)
        case _:
            raise ValueError(
                f"pictures come from a folder with a folder for each class, a .npz file, or two idx files "
                f"(pictures, labels), not from {' '.join(map(str, paths)) or 'nothing'}"
            )


def from_folder(folder: Path) -> Iterator[Picture | Bad]:
    entries = sorted(folder.iterdir())
    classes = [entry for entry in entries if entry.is_dir() and not entry.name.startswith((".", "__"))]
    if not classes:
        raise ValueError(f"{folder}: it has no folders; the pictures of a class belong into a folder with its name")
    for entry in entries:
        if entry.suffix.lower() in FORMATS and entry.is_file():
            yield Bad(str(entry), 1, "missing field", "this picture is in no folder of a class")
    for label in classes:
        files = [file for file in sorted(label.iterdir()) if file.name[0] != "." and file.name not in LITTER]
        if files and all(file.is_dir() for file in files):
            raise ValueError(
                f"{label}: folders, but no pictures; if this is one of several sets, name it, not {folder}"
            )
        if not files:
            yield Bad(str(label), 1, "empty", "there is no picture of this class")
        for file in files:
            pixels = decode(file)
            if isinstance(pixels, str):
                yield Bad(str(file), 1, "not an image", pixels)
            else:
                yield Picture(pixels, (label.name,), str(file), 1)


def open_picture(file: str | Path) -> Pixels:
    """A single picture, as the readers see it."""
    pixels = decode(Path(file))
    if isinstance(pixels, str):
        raise ValueError(f"{file}: not an image ({pixels})")
    return pixels


def decode(file: Path) -> Pixels | str:
    """The pixels, or what is wrong with them."""
    if file.suffix.lower() not in FORMATS:
        return f"pictures are named {', '.join(FORMATS)}, not {file.suffix!r}"
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", Image.DecompressionBombWarning)
            with Image.open(file, formats=sorted({*FORMATS.values()})) as image:
                if max(image.size) > STRIP * min(image.size):
                    return (
                        f"{image.size[0]} x {image.size[1]} pixels are a strip; an edge is at most {STRIP} x the other"
                    )
                return shrunk(to_pixels(ImageOps.exif_transpose(image)))
    except Exception as error:  # a broken file leads pillow into nearly every error there is
        return f"{type(error).__name__}: {error}"


def to_pixels(image: Image.Image) -> Pixels:
    """Grey stays grey; what is transparent is laid on white."""
    if image.mode.startswith("I"):  # 16 bits: pillow would make all above 255 white
        return (np.asarray(image) >> 8).clip(0, 255).astype(np.uint8)[..., None]
    grey = image.mode in ("1", "L", "LA")
    if image.has_transparency_data:
        top = image.convert("RGBA")
        image = Image.alpha_composite(Image.new("RGBA", top.size, "white"), top)
    pixels = np.asarray(image.convert("L" if grey else "RGB"))
    return pixels[..., None] if grey else pixels


def shrunk(pixels: Pixels) -> Pixels:
    if min(pixels.shape[:2]) <= KEPT:
        return pixels
    small = np.asarray(resized(to_image(pixels), KEPT))
    return small.reshape(*small.shape[:2], -1)


def to_image(pixels: Pixels) -> Image.Image:
    return Image.fromarray(pixels[..., 0] if pixels.shape[2] == 1 else pixels)


def resized(image: Image.Image, side: int, resample: int = Image.Resampling.BILINEAR) -> Image.Image:
    """The shorter edge becomes `side`."""
    wide, high = (int(side * edge / min(image.size)) for edge in image.size)
    return image if (wide, high) == image.size else image.resize((wide, high), Image.Resampling(resample))


def from_idx(files: Sequence[Path]) -> Iterator[Picture]:
    found = sorted(((read_idx(file), str(file)) for file in files), key=lambda one: -one[0].ndim)
    if [array.ndim > 1 for array, _ in found] != [True, False]:
        raise ValueError(
            f"{' '.join(map(str, files))}: one file of pictures (idx3) and one of labels (idx1) are needed"
        )
    (images, file), (labels, _) = found
    yield from from_arrays(images, labels, file)


def from_arrays(images: npt.NDArray[Any], labels: npt.NDArray[Any], file: str) -> Iterator[Picture]:
    pixels = images[..., None] if images.ndim == 3 else images
    if images.dtype != np.uint8:
        raise ValueError(f"{file}: pixels must be bytes (uint8) from 0 to 255, not {images.dtype}")
    if pixels.shape[3] not in (1, 3) or not pixels.size:
        raise ValueError(f"{file}: pictures must be (number, height, width) or (..., 1 or 3), not {images.shape}")
    if labels.dtype.kind not in "iuU":
        raise ValueError(f"{file}: labels must be whole numbers or strings, not {labels.dtype}")
    if len(labels) != len(pixels):
        raise ValueError(f"{file}: {len(pixels)} pictures, but {len(labels)} labels")
    for number, (one, label) in enumerate(zip(pixels, labels.tolist(), strict=True), 1):
        yield Picture(one, (str(label),), file, number)


def read_captioned(
    paths: Sequence[str | Path], fields: Sequence[str] | None = None
) -> Iterator[Captioned | Bad | Note]:
    """A table (.tsv) of pictures and captions, or a folder with a captions.tsv: the files of the pictures are named
    as seen from the table. `fields` are their columns: numbers from 1, or names in the first line."""
    if fields and len(fields) != 2:
        raise ValueError(f"fields are picture and caption, not {' '.join(fields)}")
    files = [Path(path) / "captions.tsv" if os.path.isdir(path) else Path(path) for path in paths]
    if kinds_of(files) not in ([".tsv"], [".txt"]):
        raise ValueError(f"captions come from one .tsv file, not from {' '.join(map(str, files)) or 'nothing'}")
    lines = Lines(files[0])
    rows = tabbed(lines)
    left, right = columns(rows, lines.file, fields) if fields else (0, 1)
    seen: dict[str, Pixels | str] = {}  # a picture may have several captions
    for row in rows:
        if isinstance(row, Bad):
            yield row
            continue
        number, cells = row
        if len(cells) <= max(left, right):
            yield too_few(cells, max(left, right) + 1, lines.file, number)
            continue
        name, caption = cells[left], cells[right]
        if bad := flaw("picture", name, lines.file, number) or flaw("caption", caption, lines.file, number):
            yield bad
            continue
        if name not in seen:
            seen[name] = decode(files[0].parent / name)
        pixels = seen[name]
        if isinstance(pixels, str):
            yield Bad(lines.file, number, "not an image", f"{name}: {pixels}")
        else:
            yield Captioned(pixels, caption, lines.file, number)
    yield from lines.notes()


@dataclass(frozen=True)
class Pictures:
    """Makes pictures of any size and colour ready for a model."""

    side: int  # pixels
    channels: int  # 1 grey, 3 colours
    mean: tuple[float, ...]  # of each channel, from 0 to 1
    std: tuple[float, ...]
    resize: Literal["shorter", "both", "none"] = "shorter"  # which edges are brought to a length first
    edge: int | None = None  # that length, if it is not `side`
    crop: bool = True  # then the middle is cut out, with black around it where there is too little
    resample: int = int(Image.Resampling.BILINEAR)
    scale: float = 1 / 255  # a byte times this is a number
    origin: tuple[str, bytes] | None = field(default=None, compare=False, repr=False)  # the file it was read from

    def __post_init__(self) -> None:
        rule = f"at least 1 and at most {KEPT}, which is what is kept of a photo"
        must(
            self,
            side=(1 <= self.side <= KEPT, rule),
            edge=(self.edge is None or 1 <= self.edge <= KEPT, rule),
            channels=(self.channels in (1, 3), "1 (grey) or 3 (colours)"),
            mean=(len(self.mean) == self.channels and all(map(math.isfinite, self.mean)), "a number for each channel"),
            std=(
                len(self.std) == self.channels and all(0 < n < math.inf for n in self.std),
                "above 0 for each channel",
            ),
            resample=(self.resample in range(6), "one of pillow's numbers, 0 to 5"),
            scale=(0 < self.scale < math.inf, "above 0"),
        )

    @classmethod
    def fit(cls, rows: Sequence[Picture | Captioned], side: int | None = None) -> Pictures:
        """Measures the pictures to train on; the side is their most common longer edge, unless given.

        Edges above the largest side count together: of photos hardly any two may be of one size.
        """
        if not rows:
            raise ValueError("there are no pictures to measure")
        shapes = Counter(row.pixels.shape for row in rows)
        edges: Counter[int] = Counter()
        for (high, wide, _), times in shapes.items():
            edges[min(LARGEST, max(high, wide))] += times
        channels = max(shape[2] for shape in shapes)
        plain = cls(side or edges.most_common(1)[0][0], channels, (0.0,) * channels, (1.0,) * channels)
        counts = np.zeros((channels, 256))
        for start in range(0, len(rows), 1024):
            some = plain.prepare([row.pixels for row in rows[start : start + 1024]])
            counts += [np.bincount(some[:, channel].ravel(), minlength=256) for channel in range(channels)]
        shares, values = counts / counts.sum(1, keepdims=True), np.arange(256) / 255
        mean = shares @ values
        std = np.sqrt((shares * (values - mean[:, None]) ** 2).sum(1))
        return cls(plain.side, channels, tuple(mean.tolist()), tuple(np.where(std > 0, std, 1.0).tolist()))

    def prepare(self, arrays: Sequence[Pixels]) -> Pixels:
        """(N,C,side,side): the shorter edge becomes `side`, what the longer one has more is cut off on both ends."""
        ready = np.empty((len(arrays), self.side, self.side, self.channels), np.uint8)
        for i, pixels in enumerate(arrays):
            fits = pixels.shape == ready.shape[1:] and self.edge is None
            ready[i] = pixels if fits else self.fitted(pixels)
        return np.ascontiguousarray(ready.transpose(0, 3, 1, 2))

    def fitted(self, pixels: Pixels) -> Pixels:
        image, edge = to_image(pixels).convert("L" if self.channels == 1 else "RGB"), self.edge or self.side
        if self.resize == "shorter":
            image = resized(image, edge, self.resample)
        elif self.resize == "both":
            image = image.resize((edge, edge), Image.Resampling(self.resample))
        if self.crop:
            left, top = ((edge - self.side) // 2 for edge in image.size)
            image = image.crop((left, top, left + self.side, top + self.side))
        if image.size != (self.side, self.side):
            wide, high = image.size
            raise ValueError(
                f"a picture has {wide} x {high} pixels, but this model takes {self.side} x {self.side} only"
            )
        return np.asarray(image).reshape(self.side, self.side, self.channels)

    def normal(self, pixels: Tensor) -> Tensor:
        """(B,C,side,side) bytes to numbers around 0."""
        mean, std = (pixels.new_tensor(each, dtype=torch.float32).view(-1, 1, 1) for each in (self.mean, self.std))
        return (pixels / (1 / self.scale) - mean) / std

    def save(self, folder: Path) -> None:
        write_processor(folder, self.side, self.channels, self.mean, self.std, self.origin)

    @classmethod
    def load(cls, folder: Path) -> Pictures:
        """As the folder of a model says; see processor.py."""
        return read_processor(folder, cls)

    @staticmethod
    def lies_in(folder: Path) -> bool:
        return find_processor(folder) is not None
