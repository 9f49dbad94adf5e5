"""Views: in training a picture is hardly ever seen twice in the same way.

seen(p) = picture(A p + b)          A: a small turn and zoom, or a mirror;  b: a small move
then each channel times 1 + t
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from regard.validate import check_fields


@dataclass(frozen=True)
class Views:
    """How pictures are looked at."""

    side: int | None = None  # pixels of a side; as most pictures have it unless given
    shift: int = 0  # in training, move a picture by up to so many pixels
    flip: bool = False  # in training, mirror half of the pictures
    turn: float = 0.0  # in training, turn a picture by up to so many degrees
    zoom: float = 0.0  # in training, make it larger or smaller by up to this share
    tint: float = 0.0  # in training, make each colour stronger or weaker by up to this share

    def __post_init__(self) -> None:
        check_fields(
            self,
            side=(self.side is None or self.side >= 1, "at least 1"),
            shift=(self.shift >= 0, "0 or more"),
            turn=(0 <= self.turn <= 180, "from 0 to 180"),
            zoom=(0 <= self.zoom < 1, "at least 0 and below 1"),
            tint=(0 <= self.tint < 1, "at least 0 and below 1"),
        )

    def seen(self, pixels: Tensor) -> Tensor:
        """(B,C,H,W), from 0 to 255, each picture in a way of its own."""
        if self.shift or self.flip:
            pixels = moved(pixels, self.shift, self.flip)
        if self.turn or self.zoom:
            pixels = turned(pixels, self.turn, self.zoom)
        if self.tint:
            pixels = tinted(pixels, self.tint)
        return pixels


def moved(pixels: Tensor, shift: int, flip: bool) -> Tensor:
    """Each picture moved by up to `shift` pixels both ways, its edge repeated; if `flip`, half of them mirrored."""
    count, channels, high, wide = pixels.shape
    moves = torch.randint(-shift, shift + 1, (2, count, 1), device=pixels.device)
    rows = (torch.arange(high, device=pixels.device) + moves[0]).clamp(0, high - 1)  # (B,high)
    places = (torch.arange(wide, device=pixels.device) + moves[1]).clamp(0, wide - 1)  # (B,wide)
    if flip:
        places = torch.where(torch.rand(count, 1, device=pixels.device) < 0.5, places.flip(1), places)
    source = (rows[:, :, None] * wide + places[:, None, :]).flatten(1)  # (B,high*wide)
    return pixels.flatten(2).gather(2, source[:, None].expand(-1, channels, -1)).view_as(pixels)


def turned(pixels: Tensor, turn: float, zoom: float) -> Tensor:
    """Each about its middle; what comes in at the edge repeats it."""
    luck = torch.rand(2, len(pixels), device=pixels.device) * 2 - 1
    angle, size = luck[0] * math.radians(turn), 1 + luck[1] * zoom
    cos, sin, none = angle.cos() / size, angle.sin() / size, torch.zeros_like(angle)
    maps = torch.stack((cos, -sin, none, sin, cos, none), 1).view(-1, 2, 3)
    grid = F.affine_grid(maps, list(pixels.shape), align_corners=False)
    return F.grid_sample(pixels.float(), grid, padding_mode="border", align_corners=False)


def tinted(pixels: Tensor, tint: float) -> Tensor:
    luck = torch.rand(*pixels.shape[:2], 1, 1, device=pixels.device) * 2 - 1  # (B,C,1,1)
    return (pixels * (1 + luck * tint)).clamp(0, 255)
