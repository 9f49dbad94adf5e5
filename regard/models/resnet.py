"""ResNet (He et al. 2016), with the small stem for small images: the convolutional baseline of ViT.

    block(x) = relu(x + convolve(relu(convolve(x))))          each convolution followed by a batch norm

It differs from ViT in that a position sees only its neighbours; distant ones interact through depth.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch.nn.functional as F
from torch import Tensor, nn

from regard.parts.heads import Body
from regard.parts.stems import flatten_pixels, to_channels_last
from regard.validate import check_config


@dataclass(frozen=True)
class ResNetConfig:
    channels: int = 3  # image channels: 3 for colour, 1 for grey
    dim: int = 64  # width of the last stage; each stage doubles the width
    stages: int = 3  # stages of blocks; each but the first halves the resolution
    layers: int = 1  # blocks per stage
    dropout: float = 0.0  # dropout probability before the head

    def __post_init__(self) -> None:
        check_config(self)
        if self.stages > self.dim.bit_length() or self.dim % 2 ** (self.stages - 1):
            raise ValueError(f"dim ({self.dim}) must be divisible by 2^(stages - 1), stages = {self.stages}")


SIZES: dict[str, dict[str, int]] = {
    "tiny": {"stages": 3, "layers": 1, "dim": 64},
    # He et al. 2016: section 4.2, and table 1 with the small stem of section 4.2
    "resnet20": {"stages": 3, "layers": 3, "dim": 64},
    "resnet18": {"stages": 4, "layers": 2, "dim": 512},
}


class BasicBlock(nn.Module):
    def __init__(self, in_dim: int, dim: int, stride: int):
        super().__init__()
        self.inner = nn.Sequential(
            nn.Conv2d(in_dim, dim, 3, stride, padding=1, bias=False),
            nn.BatchNorm2d(dim),
            nn.ReLU(),
            nn.Conv2d(dim, dim, 3, padding=1, bias=False),
            nn.BatchNorm2d(dim),
        )
        self.skip = nn.Identity() if in_dim == dim and stride == 1 else ProjectionShortcut(in_dim, dim, stride)

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(self.skip(x) + self.inner(x))


class ProjectionShortcut(nn.Sequential):
    """A 1 x 1 convolution that matches the shape of the shortcut to the block's output.

    Slicing takes the stride, not the convolution: with few channels, oneDNN writes the gradient of a strided one out of
    bounds (https://github.com/uxlfoundation/oneDNN/issues/6035).
    """

    def __init__(self, in_dim: int, dim: int, stride: int):
        super().__init__(nn.Conv2d(in_dim, dim, 1, bias=False), nn.BatchNorm2d(dim))
        self.stride = stride

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x[..., :: self.stride, :: self.stride])


class ResNet(Body):
    def __init__(self, c: ResNetConfig):
        super().__init__(c)
        widths = [c.dim // 2**i for i in reversed(range(c.stages))]
        self.stem = nn.Sequential(
            nn.Conv2d(c.channels, widths[0], 3, padding=1, bias=False), nn.BatchNorm2d(widths[0]), nn.ReLU()
        )
        self.blocks = nn.Sequential()
        for stage, dim in enumerate(widths):
            for layer in range(c.layers):
                downsample = stage > 0 and layer == 0
                self.blocks.append(BasicBlock(dim // 2 if downsample else dim, dim, 2 if downsample else 1))
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out")
        to_channels_last(self.stem)
        to_channels_last(self.blocks)

    def forward(self, pixels: Tensor) -> Tensor:  # (B,C,H,W) -> (B,P,D)
        return flatten_pixels(self.blocks(self.stem(pixels)))
