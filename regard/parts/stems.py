"""Stems: an image becomes a sequence, (B,C,H,W) -> (B,P,D), one vector for each place; and so does a sound.

Patches            x_p = W · patch_p + b          Dosovitskiy et al. 2021: squares side by side, each mapped alone
ConvolutionStem    a few convolutions             Xiao et al. 2021: overlapping squares, which are easier to train
SoundStem          convolutions along time        Radford et al. 2023 (Whisper): (B,T,mels) -> (B,S,D)
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class PatchEmbedding(nn.Module):
    """A convolution whose squares do not overlap is a linear map of each square."""

    def __init__(self, channels: int, patch: int, dim: int, *, bias: bool = True):
        super().__init__()
        self.patch = patch
        self.map = nn.Conv2d(channels, dim, patch, patch, bias=bias)

    def forward(self, pixels: Tensor) -> Tensor:
        height, width = pixels.shape[-2:]
        if height % self.patch or width % self.patch:
            raise ValueError(f"patches of {self.patch} x {self.patch} do not tile an image of {height} x {width}")
        return as_tokens(self.map(pixels))

    def places(self, image: int) -> int:
        """How many vectors a square image becomes."""
        return (image // self.patch) ** 2


class ConvStem(nn.Module):
    """Convolutions that halve the image until it is as small as patches would make it (2, 4, 8 ... times), after one
    that keeps its size; and one that only mixes channels. 28 x 28 becomes 7 x 7. From a quarter of the width
    they double it twice, or once where they halve once."""

    def __init__(self, channels: int, dim: int, patch: int = 4):
        super().__init__()
        halvings = patch.bit_length() - 1
        if patch != 2**halvings:
            raise ValueError(f"convolutions shrink an image 1, 2, 4, 8 ... times, not {patch} times")
        self.patch = patch
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
        return as_tokens(self.layers(pixels))

    def places(self, image: int) -> int:
        """How many vectors a square image becomes; an odd row at the edge counts as a whole one."""
        return (-(-image // self.patch)) ** 2


class AudioStem(nn.Module):
    """One convolution of three frames that keeps their number, then as many that halve it as make one token of `stride`
    frames. The mask is that of the tokens: what lies behind the end of a sound is 0 for each of them, as it would be if
    the sound stood alone."""

    def __init__(self, mels: int, dim: int, stride: int = 2):
        super().__init__()
        halvings = stride.bit_length() - 1
        if stride != 2**halvings:
            raise ValueError(f"convolutions make one token of 1, 2, 4, 8 ... frames, not of {stride}")
        self.stride = stride
        self.layers = nn.ModuleList(
            nn.Conv1d(dim if i else mels, dim, 3, stride=2 if i else 1, padding=1) for i in range(halvings + 1)
        )

    def forward(self, frames: Tensor, mask: Tensor | None = None) -> Tensor:
        if frames.size(1) % self.stride:
            raise ValueError(f"{frames.size(1)} frames do not make whole tokens of {self.stride}")
        x = frames.mT  # (B,mels,T)
        for layer in self.layers:
            if mask is not None:
                x = x.masked_fill(~mask[:, 0].repeat_interleave(x.size(2) // mask.size(3), 2), 0)
            x = F.gelu(layer(x))
        return x.mT  # (B,S,D)


def as_tokens(maps: Tensor) -> Tensor:
    """(B,D,H,W) -> (B,P,D), row by row."""
    return maps.flatten(2).mT


def to_channels_last(layers: nn.Sequential) -> nn.Sequential:
    """The same convolutions, for which the channels of a pixel lie side by side in memory: faster on a processor."""
    return layers.to(memory_format=torch.channels_last)  # type: ignore[call-overload]


def check_image_shape(pixels: Tensor, channels: int, image: int) -> None:
    """Positions are trained for images of one size: another would be read in a wrong order without an error."""
    if pixels.shape[1:] != (channels, image, image):
        given = " x ".join(map(str, pixels.shape[1:]))
        raise ValueError(f"this model sees images of {channels} x {image} x {image}, not {given}")
