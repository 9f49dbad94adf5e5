"""Reads images with labels or captions from class folders, idx files, .npz files and tables.

Each image gives one row or one `BadRow`. Pixels are uint8, (height, width, 1 or 3); sizes may differ. Images to
train on are downscaled as they are read, to bound the memory that thousands of photos take.
"""

from __future__ import annotations

import os
import re
import warnings
from collections.abc import Callable, Iterator, Sequence
from functools import cache, partial
from hashlib import blake2b
from pathlib import Path
from typing import TypeVar

import numpy as np
import numpy.typing as npt
from PIL import Image, ImageOps

from regard.data.arrays import read_idx, read_npz
from regard.data.lines import UTF8, BadRow, Dialect, Note
from regard.data.media_files import NO_SUCH_FILE, MediaFile, class_files, file_problem, read_file_table
from regard.data.rows import Labels, Row

Pixels = npt.NDArray[np.uint8]
Array = npt.NDArray[np.generic]
Y = TypeVar("Y")

IMAGE_FORMATS = {".png": "PNG", ".jpg": "JPEG", ".jpeg": "JPEG", ".gif": "GIF", ".webp": "WEBP", ".bmp": "BMP"}
IDX_NAME = re.compile(r"idx\d-ubyte(\.gz)?$")
MAX_EDGE = 512  # pixels of the shorter edge of an image to train on, and so the largest --image-size
MAX_ASPECT_RATIO = 100  # scaling a longer strip to the height of other images could exhaust memory


LabelledImage = Row[Pixels, Labels]
CaptionedImage = Row[Pixels, str]


def labelled_image(pixels: Pixels, label: str, file: str, line: int) -> LabelledImage:
    return Row(pixels, Labels((label,)), file, line, digest(pixels))


def digest(pixels: Pixels) -> str:
    return blake2b(f"{pixels.shape}".encode() + pixels.tobytes(), digest_size=16).hexdigest()


def read_images(paths: Sequence[str | Path]) -> Iterator[LabelledImage | BadRow]:
    """From a folder with one subfolder per class; from two idx files, of images and labels, or a folder that holds only
    these; or from a .npz file with the arrays images (or x) and labels (or y)."""
    for path in paths:
        if not os.path.exists(path):
            raise ValueError(f"{path}: no such file or folder")
    match [Path(path) for path in paths]:
        case [folder] if folder.is_dir():
            names = sorted(name for name in os.listdir(folder) if IDX_NAME.search(name))
            if len(names) > 2:
                raise ValueError(f"{folder}: which two of {', '.join(names)}? Name the images and their labels")
            yield from read_idx_pair([folder / name for name in names]) if names else read_class_folders(folder)
        case [file] if file.suffix.lower() == ".npz":
            yield from images_from_arrays(*read_npz(file), str(file))
        case [_, _] as files:
            yield from read_idx_pair(files)
        case _:
            inputs = " ".join(map(str, paths)) or "nothing"
            kinds = "a folder with one folder per class, a .npz file, or two idx files (images, labels)"
            raise ValueError(f"images come from {kinds}, not from {inputs}")


def read_class_folders(folder: Path) -> Iterator[LabelledImage | BadRow]:
    entries = sorted(folder.iterdir())
    classes = [entry for entry in entries if entry.is_dir() and not entry.name.startswith((".", "__"))]
    for entry in entries:
        if classes and entry.suffix.lower() in IMAGE_FORMATS and entry.is_file():
            yield BadRow(str(entry), 1, "missing field", "this image is in no class folder")
    for item in class_files(folder, classes, "image", "images"):
        yield item if isinstance(item, BadRow) else image_row(item)


def image_row(
    item: MediaFile[Y], load: Callable[[Path], tuple[Pixels, str] | str] | None = None
) -> Row[Pixels, Y] | BadRow:
    image = (load or load_image)(item.path)
    if isinstance(image, str):
        return item.bad_row(image, "not an image")
    return Row(image[0], item.target, item.file, item.line, image[1])


def load_image(file: Path) -> tuple[Pixels, str] | str:
    """The pixels and their digest, or an error message."""
    pixels = decode_image(file)
    return pixels if isinstance(pixels, str) else (pixels, digest(pixels))


def open_image(file: str | Path) -> Pixels:
    """One image in full size."""
    pixels = decode_image(Path(file), full_size=True)
    if isinstance(pixels, str):
        raise ValueError(f"{file}: {pixels}" if pixels == NO_SUCH_FILE else f"{file}: not an image ({pixels})")
    return pixels


def decode_image(file: Path, full_size: bool = False) -> Pixels | str:
    """The pixels, or an error message. The shorter edge is downscaled to MAX_EDGE unless `full_size`."""
    if problem := file_problem(file, "images", IMAGE_FORMATS):
        return problem
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", Image.DecompressionBombWarning)
            with Image.open(file, formats=sorted({*IMAGE_FORMATS.values()})) as image:
                if max(image.size) > MAX_ASPECT_RATIO * min(image.size):
                    size = f"{image.size[0]} x {image.size[1]} pixels"
                    return f"{size}: an edge is at most {MAX_ASPECT_RATIO} x the other"
                pixels = to_pixels(ImageOps.exif_transpose(image))
                return pixels if full_size else downscale(pixels)
    except Exception as error:  # a broken file makes pillow raise nearly any error
        return f"{type(error).__name__}: {error}"


def to_pixels(image: Image.Image) -> Pixels:
    """Grey stays one channel; transparency is composited on white."""
    if image.mode.startswith("I"):  # 16 bits: pillow would clip all above 255
        return (np.asarray(image) >> 8).clip(0, 255).astype(np.uint8)[..., None]
    is_grey = image.mode in ("1", "L", "LA")
    if image.has_transparency_data:
        foreground = image.convert("RGBA")
        image = Image.alpha_composite(Image.new("RGBA", foreground.size, "white"), foreground)
    pixels = np.asarray(image.convert("L" if is_grey else "RGB"))
    return pixels[..., None] if is_grey else pixels


def downscale(pixels: Pixels) -> Pixels:
    if min(pixels.shape[:2]) <= MAX_EDGE:
        return pixels
    small = np.asarray(resize_shorter_edge(to_image(pixels), MAX_EDGE))
    return small.reshape(*small.shape[:2], -1)


def to_image(pixels: Pixels) -> Image.Image:
    return Image.fromarray(pixels[..., 0] if pixels.shape[2] == 1 else pixels)


def resize_shorter_edge(image: Image.Image, length: int, resample: int = Image.Resampling.BILINEAR) -> Image.Image:
    width, height = (int(length * edge / min(image.size)) for edge in image.size)
    return image if (width, height) == image.size else image.resize((width, height), Image.Resampling(resample))


def read_idx_pair(files: Sequence[Path]) -> Iterator[LabelledImage]:
    arrays = sorted(((read_idx(file), str(file)) for file in files), key=lambda pair: -pair[0].ndim)
    if [array.ndim > 1 for array, _ in arrays] != [True, False]:
        raise ValueError(f"{' '.join(map(str, files))}: one file of images (idx3) and one of labels (idx1) are needed")
    (images, file), (labels, _) = arrays
    yield from images_from_arrays(images, labels, file)


def images_from_arrays(images: Array, labels: Array, file: str) -> Iterator[LabelledImage]:
    batch = images[..., None] if images.ndim == 3 else images
    if images.dtype != np.uint8:
        raise ValueError(f"{file}: pixels must be bytes (uint8) from 0 to 255, not {images.dtype}")
    if batch.shape[3] not in (1, 3) or not batch.size:
        raise ValueError(f"{file}: images must be (number, height, width) or (..., 1 or 3), not {images.shape}")
    if labels.dtype.kind not in "iuU":
        raise ValueError(f"{file}: labels must be whole numbers or strings, not {labels.dtype}")
    if len(labels) != len(batch):
        raise ValueError(f"{file}: {len(batch)} images, but {len(labels)} labels")
    for number, (pixels, label) in enumerate(zip(batch, labels.tolist(), strict=True), 1):
        yield labelled_image(pixels, str(label), file, number)


def read_captioned_images(
    paths: Sequence[str | Path], fields: Sequence[str] | None = None, dialect: Dialect = UTF8
) -> Iterator[CaptionedImage | BadRow | Note]:
    """From a table (.tsv) of images and captions, or a folder with a captions.tsv. An image may occur several times."""
    files = [Path(path) / "captions.tsv" if os.path.isdir(path) else Path(path) for path in paths]
    make_row = partial(image_row, load=cache(load_image))
    return read_file_table(files, fields, ("image", "caption"), dialect, make_row)
