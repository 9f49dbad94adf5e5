"""Hearing: in training a sound is hardly ever heard twice in the same way, nor by the same voice.

tempo, shift     frame_t  <-  frame at (t - a) / s          as if said faster, earlier or later
tract, pitch     mel_m    <-  mel at m / w - p              a shorter throat: all resonances are higher (Jaitly & Hinton
                                                            2013)
colour           + a smooth curve over the mels             another microphone
noise            log(e^x + e^n)                             another room
masks            some mels, and some of the time, become the mean          (Park et al. 2019, SpecAugment)
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from regard.data.mels import to_log
from regard.validate import check_fields

QUIET = -55.0  # decibels below the loudest, of the least noise


@dataclass(frozen=True)
class Hearing:
    """How sounds are heard."""

    mels: int = 40  # bands of pitch, numbers in a frame of a hundredth of a second
    stride: int = 2  # frames that become one token: 1, 2, 4, 8 or 16
    shift: int = 6  # in training, let a sound begin and end up to so many frames later; a third of that earlier
    tempo: float = 0.1  # in training, make it slower or faster by up to this share
    tract: float = 0.1  # in training, stretch the bands by up to this share: another throat
    pitch: float = 1.5  # in training, move them by up to so many bands: another voice
    colour: float = 4.0  # in training, make some bands louder than others by up to so many decibels
    noise: float = -25.0  # in training, the loudest noise, in decibels beside the sound; -100 for none
    masks: float = 0.1  # in training, hide up to this share of the bands, and of the time

    def __post_init__(self) -> None:
        check_fields(
            self,
            mels=(1 <= self.mels <= 512, "from 1 to 512"),
            stride=(self.stride in (1, 2, 4, 8, 16), "1, 2, 4, 8 or 16"),
            shift=(0 <= self.shift <= 1000, "from 0 to 1000"),
            tempo=(0 <= self.tempo < 1, "at least 0 and below 1"),
            tract=(0 <= self.tract < 1, "at least 0 and below 1"),
            pitch=(0 <= self.pitch <= 512, "from 0 to 512"),
            colour=(0 <= self.colour <= 100, "from 0 to 100"),
            noise=(-100 <= self.noise <= 20, "from -100 to 20"),
            masks=(0 <= self.masks < 1, "at least 0 and below 1"),
        )

    def heard(self, frames: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        """(B,T,mels) and how long each is: changed, each in a way of its own, but for what is hidden."""
        if self.shift or self.tempo or self.tract or self.pitch:
            frames, lengths = moved(frames, lengths, self.shift, self.tempo, self.tract, self.pitch)
        if self.colour:
            frames = frames + coloured(len(frames), frames.size(2), to_log(self.colour))
        if self.noise > -100:
            frames = noisy(frames, lengths, to_log(QUIET), to_log(self.noise))
        return frames, lengths


def real_frames(frames: Tensor, lengths: Tensor) -> Tensor:
    """(B,T), True where there is sound."""
    return torch.arange(frames.size(1)) < lengths[:, None]


def about(count: int, most: float) -> Tensor:
    """(count,) numbers from -most to most."""
    return (torch.rand(count) * 2 - 1) * most


def moved(
    frames: Tensor, lengths: Tensor, shift: int, tempo: float, tract: float, pitch: float
) -> tuple[Tensor, Tensor]:
    """Every frame and mel is taken from between those of another time and pitch; before the beginning and after the end
    it is as quiet as each mel gets."""
    B, T, M = frames.shape
    speed = 1 + about(B, tempo)
    before, after = ((torch.rand(2, B) * 4 / 3 - 1 / 3) * shift).round().long()
    least = (lengths * speed).round().long().clamp(min=1)
    longer = (least + before + after).clamp(min=1)
    time = (torch.arange(int(longer.max())) - before[:, None]) / speed[:, None]  # (B,T')
    within = (time >= -0.5) & (time <= lengths[:, None] - 0.5)
    time = time.clamp(min=0).minimum(lengths[:, None] - 1)
    middle = (M - 1) / 2
    band = (torch.arange(M) - middle) / (1 + about(B, tract))[:, None] + middle + about(B, pitch)[:, None]  # (B,M)
    grid = torch.stack(
        (
            (band * 2 / max(1, M - 1) - 1)[:, None, :].expand(-1, time.size(1), -1),
            (time * 2 / max(1, T - 1) - 1)[:, :, None].expand(-1, -1, M),
        ),
        -1,
    )  # (B,T',M,2)
    found = F.grid_sample(frames[:, None], grid, padding_mode="border", align_corners=True)[:, 0]
    quiet = frames.masked_fill(~real_frames(frames, lengths)[:, :, None], math.inf).amin(1, keepdim=True)  # (B,1,M)
    return torch.where(within[:, :, None], found, quiet), longer


def coloured(count: int, mels: int, most: float) -> Tensor:
    """(B,1,mels): a slope, and a wave or two."""
    place = torch.linspace(0, 1, mels)
    curve = sum(about(count, most / n)[:, None] * torch.cos(math.pi * n * place) for n in (1, 2, 3))
    return torch.as_tensor(curve)[:, None]


def noisy(frames: Tensor, lengths: Tensor, least: float, most: float) -> Tensor:
    """Of a level and a slope of its own for each clip, and as uneven as noise is."""
    B, T, M = frames.shape
    loudest = frames.masked_fill(~real_frames(frames, lengths)[:, :, None], -math.inf).amax((1, 2))  # (B,)
    level = loudest + least + torch.rand(B) * max(0.0, most - least)
    slope = about(B, 2.0)[:, None] * torch.linspace(-1, 1, M)  # (B,M)
    uneven = -torch.rand(B, T, M).clamp(min=1e-4).log()
    return torch.logaddexp(frames, level[:, None, None] + slope[:, None] + uneven.log())


def hidden(frames: Tensor, lengths: Tensor, share: float) -> Tensor:
    """One stretch of time and one of mels become 0, the mean."""
    B, T, M = frames.shape
    places = []
    for count, longest in ((T, lengths.float()), (M, torch.full((B,), float(M)))):
        wide = torch.rand(B) * share * longest
        start = torch.rand(B) * (longest - wide)
        at = torch.arange(count)
        places.append((at >= start[:, None]) & (at < (start + wide)[:, None]))  # (B,T), (B,M)
    return frames.masked_fill(places[0][:, :, None] | places[1][:, None], 0.0)
