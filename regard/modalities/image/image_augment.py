"""Image augmentation: random shift, flip, rotation, zoom and colour jitter in training.

augmented(p) = image(A p + b)          A: rotation and zoom, or a flip;  b: a shift
then each channel is multiplied by 1 + t
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from regard.validate import check_fields


@dataclass(frozen=True)
class ImageAugment:
    """Image size and augmentation."""

    image_size: int | None = None  # height and width of images in pixels; default: their most common longer edge
    shift: int = 0  # augmentation: maximal random shift in each direction, in pixels
    flip: bool = False  # augmentation: flip images horizontally with probability 0.5
    rotate: float = 0.0  # augmentation: maximal random rotation, in degrees
    zoom: float = 0.0  # augmentation: random zoom by a factor of 1 ± at most this
    color_jitter: float = 0.0  # augmentation: multiply each colour channel by a random factor of 1 ± at most this

    def __post_init__(self) -> None:
        check_fields(
            self,
            image_size=(self.image_size is None or self.image_size >= 1, "at least 1"),
            shift=(self.shift >= 0, "0 or more"),
            rotate=(0 <= self.rotate <= 180, "from 0 to 180"),
            zoom=(0 <= self.zoom < 1, "at least 0 and below 1"),
            color_jitter=(0 <= self.color_jitter < 1, "at least 0 and below 1"),
        )

    def augment(self, pixels: Tensor) -> Tensor:
        """(B,C,H,W), from 0 to 255; each image with random numbers of its own."""
        if self.shift or self.flip:
            pixels = shift_and_flip(pixels, self.shift, self.flip)
        if self.rotate or self.zoom:
            pixels = rotate_and_zoom(pixels, self.rotate, self.zoom)
        if self.color_jitter:
            pixels = scale_channels(pixels, self.color_jitter)
        return pixels


def shift_and_flip(pixels: Tensor, shift: int, flip: bool) -> Tensor:
    """Shifts each image by up to `shift` pixels in both directions and repeats its edge; flips half of them."""
    count, channels, height, width = pixels.shape
    offsets = torch.randint(-shift, shift + 1, (2, count, 1), device=pixels.device)
    rows = (torch.arange(height, device=pixels.device) + offsets[0]).clamp(0, height - 1)  # (B,H)
    columns = (torch.arange(width, device=pixels.device) + offsets[1]).clamp(0, width - 1)  # (B,W)
    if flip:
        columns = torch.where(torch.rand(count, 1, device=pixels.device) < 0.5, columns.flip(1), columns)
    source = (rows[:, :, None] * width + columns[:, None, :]).flatten(1)  # (B,H·W)
    return pixels.flatten(2).gather(2, source[:, None].expand(-1, channels, -1)).view_as(pixels)


def rotate_and_zoom(pixels: Tensor, rotate: float, zoom: float) -> Tensor:
    """About the centre of each image; the edge is repeated."""
    random = torch.rand(2, len(pixels), device=pixels.device) * 2 - 1
    angle, size = random[0] * math.radians(rotate), 1 + random[1] * zoom
    cos, sin, zero = angle.cos() / size, angle.sin() / size, torch.zeros_like(angle)
    theta = torch.stack((cos, -sin, zero, sin, cos, zero), 1).view(-1, 2, 3)
    grid = F.affine_grid(theta, list(pixels.shape), align_corners=False)
    return F.grid_sample(pixels.float(), grid, padding_mode="border", align_corners=False)


def scale_channels(pixels: Tensor, jitter: float) -> Tensor:
    random = torch.rand(*pixels.shape[:2], 1, 1, device=pixels.device) * 2 - 1  # (B,C,1,1)
    return (pixels * (1 + random * jitter)).clamp(0, 255)
