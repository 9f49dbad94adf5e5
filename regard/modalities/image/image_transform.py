"""Resizes, crops and normalises images for a model.

normalize(x) = (x / 255 - mean) / std          mean and std of the training images, per channel
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from regard.data.rows import Row
from regard.modalities.image import image_processor_config
from regard.modalities.image.image_files import MAX_EDGE, Pixels, resize_shorter_edge, to_image
from regard.validate import check_fields

MAX_DEFAULT_SIZE = 224  # largest image size that is chosen by default


@dataclass(frozen=True)
class ImageTransform:
    """The preprocessing of images of any size and colour mode."""

    image_size: int  # height and width in pixels
    channels: int  # 1: grey, 3: RGB
    mean: tuple[float, ...]  # per channel, from 0 to 1
    std: tuple[float, ...]
    resize: Literal["shorter", "both", "none"] = "shorter"  # edges that are resized first
    edge: int | None = None  # their new length, if not `image_size`
    crop: bool = True  # crop the centre afterwards; padded with black if the image is smaller
    resample: int = int(Image.Resampling.BILINEAR)
    scale: float = 1 / 255  # factor of a byte
    origin: tuple[str, bytes] | None = field(default=None, compare=False, repr=False)  # name and content of its file

    def __post_init__(self) -> None:
        rule = f"at least 1 and at most {MAX_EDGE}, the size to which photos are downscaled"
        check_fields(
            self,
            image_size=(1 <= self.image_size <= MAX_EDGE, rule),
            edge=(self.edge is None or 1 <= self.edge <= MAX_EDGE, rule),
            channels=(self.channels in (1, 3), "1 (grey) or 3 (RGB)"),
            mean=(len(self.mean) == self.channels and all(map(math.isfinite, self.mean)), "a number for each channel"),
            std=(
                len(self.std) == self.channels and all(0 < n < math.inf for n in self.std),
                "above 0 for each channel",
            ),
            resample=(self.resample in range(6), "one of pillow's numbers, 0 to 5"),
            scale=(0 < self.scale < math.inf, "above 0"),
        )

    @classmethod
    def fit(cls, rows: Sequence[Row[Pixels, object]], image_size: int | None = None) -> ImageTransform:
        """Estimates mean and std from the training images. The image size defaults to their most common longer edge.

        Edges above MAX_DEFAULT_SIZE count as MAX_DEFAULT_SIZE, because hardly any two photos have the same size.
        """
        if not rows:
            raise ValueError("there are no images to estimate mean and std from")
        shapes = Counter(row.input.shape for row in rows)
        edges: Counter[int] = Counter()
        for (height, width, _), count in shapes.items():
            edges[min(MAX_DEFAULT_SIZE, max(height, width))] += count
        channels = max(shape[2] for shape in shapes)
        unscaled = cls(image_size or edges.most_common(1)[0][0], channels, (0.0,) * channels, (1.0,) * channels)
        counts = np.zeros((channels, 256))
        for start in range(0, len(rows), 1024):
            images = unscaled.prepare([row.input for row in rows[start : start + 1024]])
            counts += [np.bincount(images[:, channel].ravel(), minlength=256) for channel in range(channels)]
        shares, values = counts / counts.sum(1, keepdims=True), np.arange(256) / 255
        mean = shares @ values
        std = np.sqrt((shares * (values - mean[:, None]) ** 2).sum(1))
        return cls(unscaled.image_size, channels, tuple(mean.tolist()), tuple(np.where(std > 0, std, 1.0).tolist()))

    def prepare(self, arrays: Sequence[Pixels]) -> Pixels:
        """Resized and cropped images, (N,C,image_size,image_size)."""
        batch = np.empty((len(arrays), self.image_size, self.image_size, self.channels), np.uint8)
        for i, pixels in enumerate(arrays):
            fits = pixels.shape == batch.shape[1:] and self.edge is None
            batch[i] = pixels if fits else self.resize_and_crop(pixels)
        return np.ascontiguousarray(batch.transpose(0, 3, 1, 2))

    def resize_and_crop(self, pixels: Pixels) -> Pixels:
        image, size = to_image(pixels).convert("L" if self.channels == 1 else "RGB"), self.image_size
        if self.resize == "shorter":
            image = resize_shorter_edge(image, self.edge or size, self.resample)
        elif self.resize == "both":
            image = image.resize((self.edge or size,) * 2, Image.Resampling(self.resample))
        if self.crop:
            left, top = ((length - size) // 2 for length in image.size)
            image = image.crop((left, top, left + size, top + size))
        if image.size != (size, size):
            width, height = image.size
            raise ValueError(f"an image has {width} x {height} pixels, but this model takes only {size} x {size}")
        return np.asarray(image).reshape(size, size, self.channels)

    def normalize(self, pixels: Tensor) -> Tensor:
        """Pixels (B,C,H,W), from 0 to 255, as float32 of mean 0 and std 1."""
        mean, std = (pixels.new_tensor(x, dtype=torch.float32).view(-1, 1, 1) for x in (self.mean, self.std))
        return (pixels / (1 / self.scale) - mean) / std

    def save(self, folder: Path) -> None:
        settings = (self.image_size, self.channels, self.mean, self.std, self.origin)
        image_processor_config.write_image_processor(folder, *settings)

    @classmethod
    def load(cls, folder: Path) -> ImageTransform:
        """From the model folder's preprocessor_config.json."""
        return image_processor_config.read_image_processor(folder, cls)

    @staticmethod
    def exists_in(folder: Path) -> bool:
        return image_processor_config.find_image_processor(folder) is not None
