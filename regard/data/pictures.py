"""Pictures of any size and colour, made ready for a model.

normal(x) = (x / 255 - mean) / std          with the mean and std of the training pictures, for each channel
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

from regard.data.images import KEPT, Captioned, Picture, Pixels, resized, to_image
from regard.data.processor import find_processor, read_processor, write_processor
from regard.validate import check_fields

LARGEST = 224  # pixels of a side, unless it is given


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
        check_fields(
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
