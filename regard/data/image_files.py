"""Pictures with labels or captions, from folders, idx files, .npz and tables.

Every picture gives exactly one row or one `Bad`. Pixels are bytes, (height, width, 1 or 3); sizes may differ. A photo
to train on is made smaller as it is read: thousands of them as the camera took them would fill any memory.
"""

from __future__ import annotations

import os
import re
import warnings
from collections.abc import Iterator, Sequence
from hashlib import blake2b
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from PIL import Image, ImageOps

from regard.data.arrays import read_idx, read_npz
from regard.data.flaws import MISSING, flaw, unread
from regard.data.lines import UTF8, Bad, Dialect, Lines, Note
from regard.data.tables import columns, split_columns, too_few
from regard.data.text import kinds_of

Pixels = npt.NDArray[np.uint8]

IMAGE_FORMATS = {".png": "PNG", ".jpg": "JPEG", ".jpeg": "JPEG", ".gif": "GIF", ".webp": "WEBP", ".bmp": "BMP"}
IDX = re.compile(r"idx\d-ubyte(\.gz)?$")
LITTER = ("Thumbs.db", "desktop.ini")  # put into folders by machines, not by people; so are names with a dot in front
KEPT = 512  # pixels of the shorter edge of a photo to train on, and so of the largest side that can be given
STRIP = 100  # how much longer one edge may be: a strip made as high as others would be a bomb


class LabelledImage(NamedTuple):
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


class CaptionedImage(NamedTuple):
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


def read_images(paths: Sequence[str | Path]) -> Iterator[LabelledImage | Bad]:
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


def from_folder(folder: Path) -> Iterator[LabelledImage | Bad]:
    entries = sorted(folder.iterdir())
    classes = [entry for entry in entries if entry.is_dir() and not entry.name.startswith((".", "__"))]
    if not classes:
        raise ValueError(f"{folder}: it has no folders; the pictures of a class belong into a folder with its name")
    for entry in entries:
        if entry.suffix.lower() in IMAGE_FORMATS and entry.is_file():
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
                yield Bad(str(file), 1, unread(pixels, "not an image"), pixels)
            else:
                yield LabelledImage(pixels, (label.name,), str(file), 1)


def open_image(file: str | Path) -> Pixels:
    """A single picture, as large as it is."""
    pixels = decode(Path(file), whole=True)
    if isinstance(pixels, str):
        raise ValueError(f"{file}: {pixels}" if pixels == MISSING else f"{file}: not an image ({pixels})")
    return pixels


def decode(file: Path, whole: bool = False) -> Pixels | str:
    """The pixels, or what is wrong with them; of a photo no more than are kept, unless the whole is wanted."""
    if not os.path.exists(file):
        return MISSING
    if file.suffix.lower() not in IMAGE_FORMATS:
        return f"pictures are named {', '.join(IMAGE_FORMATS)}, not {file.suffix!r}"
    if file.exists() and not file.is_file():
        return "it is a folder, a pipe or a device, not a file"
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", Image.DecompressionBombWarning)
            with Image.open(file, formats=sorted({*IMAGE_FORMATS.values()})) as image:
                if max(image.size) > STRIP * min(image.size):
                    return (
                        f"{image.size[0]} x {image.size[1]} pixels are a strip; an edge is at most {STRIP} x the other"
                    )
                pixels = to_pixels(ImageOps.exif_transpose(image))
                return pixels if whole else shrunk(pixels)
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


def from_idx(files: Sequence[Path]) -> Iterator[LabelledImage]:
    found = sorted(((read_idx(file), str(file)) for file in files), key=lambda one: -one[0].ndim)
    if [array.ndim > 1 for array, _ in found] != [True, False]:
        raise ValueError(
            f"{' '.join(map(str, files))}: one file of pictures (idx3) and one of labels (idx1) are needed"
        )
    (images, file), (labels, _) = found
    yield from from_arrays(images, labels, file)


def from_arrays(images: npt.NDArray[Any], labels: npt.NDArray[Any], file: str) -> Iterator[LabelledImage]:
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
        yield LabelledImage(one, (str(label),), file, number)


def read_captioned_images(
    paths: Sequence[str | Path], fields: Sequence[str] | None = None, dialect: Dialect = UTF8
) -> Iterator[CaptionedImage | Bad | Note]:
    """A table (.tsv) of pictures and captions, or a folder with a captions.tsv: the files of the pictures are named
    as seen from the table. `fields` are their columns: numbers from 1, or names in the first line."""
    if fields and len(fields) != 2:
        raise ValueError(f"fields are picture and caption, not {' '.join(fields)}")
    files = [Path(path) / "captions.tsv" if os.path.isdir(path) else Path(path) for path in paths]
    if kinds_of(files, dialect) not in ([".tsv"], [".txt"]):
        raise ValueError(f"captions come from one .tsv file, not from {' '.join(map(str, files)) or 'nothing'}")
    lines = Lines(files[0], dialect.encoding)
    rows = split_columns(lines, dialect.separator)
    left, right = columns(rows, lines.file, fields) if fields else (0, 1)
    seen: dict[str, Pixels | str] = {}  # a picture may have several captions
    for row in rows:
        if isinstance(row, Bad):
            yield row
            continue
        number, cells = row
        if len(cells) <= max(left, right):
            yield too_few(cells, max(left, right) + 1, lines.file, number, dialect.separator)
            continue
        name, caption = cells[left], cells[right]
        if bad := flaw("picture", name, lines.file, number) or flaw("caption", caption, lines.file, number):
            yield bad
            continue
        if name not in seen:
            seen[name] = decode(files[0].parent / name)
        pixels = seen[name]
        if isinstance(pixels, str):
            yield Bad(lines.file, number, unread(pixels, "not an image"), f"{name}: {pixels}")
        else:
            yield CaptionedImage(pixels, caption, lines.file, number)
    yield from lines.notes()
