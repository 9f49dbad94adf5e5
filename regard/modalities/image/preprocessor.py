"""Images as model inputs: pixels of one size, normalised, and augmented in training."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Hashable, Sequence
from dataclasses import asdict, dataclass, field
from io import BytesIO
from pathlib import Path

import numpy as np
import torch

from regard.data.batches import Ints
from regard.data.rows import Row
from regard.modalities.image.image_augment import ImageAugment
from regard.modalities.image.image_files import Pixels, digest, open_image, to_image
from regard.modalities.image.image_transform import ImageTransform
from regard.modalities.protocols import EncodedInputs, Inputs, Preprocessor, Target
from regard.modalities.synthetic import shapes

TOKENS = 50  # an image counts as so many in a batch


class PixelArrays(EncodedInputs):
    """Images of one size."""

    def __init__(self, pixels: Pixels):
        super().__init__(np.full(len(pixels), TOKENS))
        self.pixels = pixels  # (N,C,H,W)

    def keys(self) -> Sequence[Hashable]:
        return [*map(digest, self.pixels)]


@dataclass
class ImagePreprocessor(Preprocessor):
    transform: ImageTransform
    augmentation: ImageAugment = field(default_factory=ImageAugment)

    modality = "image"
    example = "picture.png"
    has_pictures = True

    def encode(self, rows: Sequence[Row[Pixels, object]], context: int, whole: bool = False) -> PixelArrays:
        return PixelArrays(self.transform.prepare([row.input for row in rows]))

    def collate(self, inputs: PixelArrays, rows: Ints, training: bool) -> Inputs:
        pixels = torch.from_numpy(inputs.pixels[rows])
        return Inputs(self.transform.normalize(self.augmentation.augment(pixels) if training else pixels))

    def sizes(self) -> dict[str, int]:
        return {"image_size": self.transform.image_size, "channels": self.transform.channels}

    def parse(self, raw: str, target: Target) -> Row[Pixels, None]:
        """The name of an image file."""
        pixels = open_image(raw)
        return Row(pixels, None, raw, 1, digest(pixels))

    def probes(self, count: int, target: Target) -> list[Row[Pixels, object]]:
        scenes = enumerate(shapes.shapes(count), 1)
        return [Row(scene.pixels, scene.caption, "", i, scene.caption) for i, scene in scenes]

    def draw(self, row: Row[Pixels, object]) -> str:
        """As the model reads it: resized and cropped."""
        stream = BytesIO()
        to_image(self.transform.prepare([row.input])[0].transpose(1, 2, 0)).save(stream, "PNG")
        return "data:image/png;base64," + b64encode(stream.getvalue()).decode()

    def save(self, folder: Path) -> dict[str, object]:
        self.transform.save(folder)
        return {"image_augment": asdict(self.augmentation)}
