"""A small ResNet (He et al. 2016): what ViT replaced.

    block(x) = relu(x + convolve(relu(convolve(x))))          each convolution followed by a batch norm

It differs from ViT in that a place sees only its neighbours, and farther ones by depth alone.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch.nn.functional as F
from torch import Tensor, nn

from regard.parts.stems import as_tokens, pixel_by_pixel
from regard.validate import check_config


@dataclass(frozen=True)
class ConvolutionConfig:
    channels: int = 3  # 3 for colours, 1 for grey
    dim: int = 64  # width of the last stage; each stage is twice as wide as the one before
    stages: int = 3  # groups of blocks; each but the first halves the image
    layers: int = 1  # blocks in each stage
    dropout: float = 0.0  # share of numbers dropped before the head

    def __post_init__(self) -> None:
        check_config(self)
        if self.stages > self.dim.bit_length() or self.dim % 2 ** (self.stages - 1):
            raise ValueError(f"dim ({self.dim}) must be divisible by 2 for each of the later stages ({self.stages})")


SIZES: dict[str, dict[str, int]] = {
    "tiny": {"stages": 3, "layers": 1, "dim": 64},
    # He et al. 2016: section 4.2, and table 1 with the small stem of the former
    "resnet20": {"stages": 3, "layers": 3, "dim": 64},
    "resnet18": {"stages": 4, "layers": 2, "dim": 512},
}


class BasicBlock(nn.Module):
    def __init__(self, narrow: int, dim: int, stride: int):
        super().__init__()
        self.inner = nn.Sequential(
            nn.Conv2d(narrow, dim, 3, stride, padding=1, bias=False),
            nn.BatchNorm2d(dim),
            nn.ReLU(),
            nn.Conv2d(dim, dim, 3, padding=1, bias=False),
            nn.BatchNorm2d(dim),
        )
        self.skip = nn.Identity() if narrow == dim and stride == 1 else Matched(narrow, dim, stride)

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(self.skip(x) + self.inner(x))


class Matched(nn.Sequential):
    """What a block adds to must have the shape of what it adds.

    Pixels are passed over before the convolution, not by it: with few channels, the gradient of one that takes strides
    is written past its memory by oneDNN (https://github.com/uxlfoundation/oneDNN/issues/6035).
    """

    def __init__(self, narrow: int, dim: int, stride: int):
        super().__init__(nn.Conv2d(narrow, dim, 1, bias=False), nn.BatchNorm2d(dim))
        self.stride = stride

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x[..., :: self.stride, :: self.stride])


class Convolution(nn.Module):
    def __init__(self, c: ConvolutionConfig):
        super().__init__()
        self.config = c
        widths = [c.dim // 2**i for i in reversed(range(c.stages))]
        self.stem = nn.Sequential(
            nn.Conv2d(c.channels, widths[0], 3, padding=1, bias=False), nn.BatchNorm2d(widths[0]), nn.ReLU()
        )
        self.blocks = nn.Sequential()
        for stage, dim in enumerate(widths):
            for layer in range(c.layers):
                shrinks = stage > 0 and layer == 0
                self.blocks.append(BasicBlock(dim // 2 if shrinks else dim, dim, 2 if shrinks else 1))
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out")
        pixel_by_pixel(self.stem)
        pixel_by_pixel(self.blocks)

    def forward(self, pixels: Tensor) -> Tensor:  # (B,C,H,W) -> (B,P,D)
        return as_tokens(self.blocks(self.stem(pixels)))
