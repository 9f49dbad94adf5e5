"""Stems: they turn an image into a sequence of P vectors, (B,C,H,W) -> (B,P,D), or a spectrogram into tokens.

PatchEmbedding     x_p = W · patch_p + b          Dosovitskiy et al. 2021: non-overlapping patches, one linear map
ConvStem           a few convolutions             Xiao et al. 2021: overlapping receptive fields, easier to train
AudioStem          convolutions along time        Radford et al. 2023 (Whisper): (B,T,mels) -> (B,S,D)
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class PatchEmbedding(nn.Module):
    """A convolution whose stride equals its kernel size: a linear map of each patch."""

    def __init__(self, channels: int, patch_size: int, dim: int, *, bias: bool = True):
        super().__init__()
        self.patch_size = patch_size
        self.map = nn.Conv2d(channels, dim, patch_size, patch_size, bias=bias)

    def forward(self, pixels: Tensor) -> Tensor:
        height, width = pixels.shape[-2:]
        if height % self.patch_size or width % self.patch_size:
            raise ValueError(f"{height} x {width} pixels cannot be divided into patches of size {self.patch_size}")
        return flatten_pixels(self.map(pixels))

    def num_patches(self, image_size: int) -> int:
        """Vectors per square image."""
        return (image_size // self.patch_size) ** 2


class ConvStem(nn.Module):
    """A convolution at full resolution, then strided ones that downsample `patch_size` times (1, 2, 4, 8 ...), and a
    1 x 1 convolution. With patch_size 4, 28 x 28 becomes 7 x 7. The width starts at a quarter of `dim` and doubles
    twice; with a single strided convolution it starts at half."""

    def __init__(self, channels: int, dim: int, patch_size: int = 4):
        super().__init__()
        halvings = patch_size.bit_length() - 1
        if patch_size != 2**halvings:
            raise ValueError(f"a convolution stem downsamples 1, 2, 4, 8 ... times, not {patch_size} times")
        self.patch_size = patch_size
        widths = [channels, *(max(1, dim >> max(0, min(2, halvings) - i)) for i in range(halvings + 1))]
        layers: list[nn.Module] = []
        for i in range(halvings + 1):
            layers += [
                nn.Conv2d(widths[i], widths[i + 1], 3, stride=2 if i else 1, padding=1, bias=False),
                nn.BatchNorm2d(widths[i + 1]),
                nn.ReLU(),
            ]
        self.layers = to_channels_last(nn.Sequential(*layers, nn.Conv2d(dim, dim, 1)))

    def forward(self, pixels: Tensor) -> Tensor:
        return flatten_pixels(self.layers(pixels))

    def num_patches(self, image_size: int) -> int:
        """Vectors per square image; an incomplete row at the edge counts."""
        return (-(-image_size // self.patch_size)) ** 2


class AudioStem(nn.Module):
    """A convolution over three frames, then strided ones that turn `stride` frames into one token. The mask is that of
    the tokens: every layer sets frames after the end of a clip to 0, so the output does not depend on padding."""

    def __init__(self, mels: int, dim: int, stride: int = 2):
        super().__init__()
        halvings = stride.bit_length() - 1
        if stride != 2**halvings:
            raise ValueError(f"a token is made of 1, 2, 4, 8 ... frames, not of {stride}")
        self.stride = stride
        self.layers = nn.ModuleList(
            nn.Conv1d(dim if i else mels, dim, 3, stride=2 if i else 1, padding=1) for i in range(halvings + 1)
        )

    def forward(self, frames: Tensor, mask: Tensor | None = None) -> Tensor:
        if frames.size(1) % self.stride:
            raise ValueError(f"{frames.size(1)} frames are no multiple of {self.stride}, the frames per token")
        x = frames.mT  # (B,mels,T)
        for layer in self.layers:
            if mask is not None:
                x = x.masked_fill(~mask[:, 0].repeat_interleave(x.size(2) // mask.size(3), 2), 0)
            x = F.gelu(layer(x))
        return x.mT  # (B,S,D)


def flatten_pixels(maps: Tensor) -> Tensor:
    """(B,D,H,W) -> (B,P,D), in row-major order."""
    return maps.flatten(2).mT


def to_channels_last(layers: nn.Sequential) -> nn.Sequential:
    """Store the weights in channels-last memory format, which is faster on a CPU."""
    for weight in (weight for weight in layers.parameters() if weight.dim() == 4):
        weight.data = weight.data.contiguous(memory_format=torch.channels_last)  # `to` does not convert fake tensors
    return layers


def check_image_shape(pixels: Tensor, channels: int, image_size: int) -> None:
    """Positions are trained for one image size; with another they would be wrong without an error."""
    if pixels.shape[1:] != (channels, image_size, image_size):
        shape = " x ".join(map(str, pixels.shape[1:]))
        raise ValueError(f"this model takes images of {channels} x {image_size} x {image_size}, not {shape}")
