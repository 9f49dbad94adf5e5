"""Audio augmentation: random changes of log-mel frames in training.

tempo, shift     frame_t  <-  frame at (t - a) / s          faster or slower speech, starting earlier or later
vtlp, pitch      mel_m    <-  mel at m / w - p              vocal tract length perturbation (Jaitly & Hinton 2013)
random_eq        + a smooth curve over the mels             another microphone
noise            log(e^x + e^n)                             background noise
spec_augment     a range of mels and a range of time are replaced by the mean          (Park et al. 2019, SpecAugment)
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from regard.modalities.audio.logmel import decibels_to_log
from regard.validate import check_fields

MIN_NOISE = -55.0  # decibels relative to the loudest frame, the lowest noise level that is drawn


@dataclass(frozen=True)
class AudioAugment:
    """Log-mel features and audio augmentation."""

    mels: int = 40  # number of mel filters; a frame is 10 ms
    stride: int = 2  # frames per token: 1, 2, 4, 8 or 16
    shift: int = 6  # augmentation: pad start and end by up to this many frames each, or cut up to a third of that
    tempo: float = 0.1  # augmentation: change the tempo by a factor of 1 ± at most this
    vtlp: float = 0.1  # augmentation: vocal tract length perturbation, stretch the mels by a factor of 1 ± at most this
    pitch: float = 1.5  # augmentation: shift the mels up or down by at most this many mels
    random_eq: float = 4.0  # augmentation: random equalisation of the mels, in decibels
    noise: float = -25.0  # augmentation: highest noise level, in decibels relative to the loudest frame; -100 = off
    spec_augment: float = 0.1  # augmentation: mask at most this share of the mels and of the frames (SpecAugment)

    def __post_init__(self) -> None:
        check_fields(
            self,
            mels=(1 <= self.mels <= 512, "from 1 to 512"),
            stride=(self.stride in (1, 2, 4, 8, 16), "1, 2, 4, 8 or 16"),
            shift=(0 <= self.shift <= 1000, "from 0 to 1000"),
            tempo=(0 <= self.tempo < 1, "at least 0 and below 1"),
            vtlp=(0 <= self.vtlp < 1, "at least 0 and below 1"),
            pitch=(0 <= self.pitch <= 512, "from 0 to 512"),
            random_eq=(0 <= self.random_eq <= 100, "from 0 to 100"),
            noise=(-100 <= self.noise <= 20, "from -100 to 20"),
            spec_augment=(0 <= self.spec_augment < 1, "at least 0 and below 1"),
        )

    def augment(self, frames: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        """Frames (B,T,mels) and their lengths (B,) after all augmentations but SpecAugment, which follows
        normalisation. Each clip has random numbers of its own."""
        if self.shift or self.tempo or self.vtlp or self.pitch:
            frames, lengths = warp(frames, lengths, self.shift, self.tempo, self.vtlp, self.pitch)
        if self.random_eq:
            frames = frames + random_eq_curves(len(frames), frames.size(2), decibels_to_log(self.random_eq))
        if self.noise > -100:
            frames = add_noise(frames, lengths, decibels_to_log(MIN_NOISE), decibels_to_log(self.noise))
        return frames, lengths


def frame_mask(frames: Tensor, lengths: Tensor) -> Tensor:
    """(B,T), True for frames, False for padding."""
    return torch.arange(frames.size(1)) < lengths[:, None]


def uniform(count: int, limit: float) -> Tensor:
    """(count,) random numbers between -limit and limit."""
    return (torch.rand(count) * 2 - 1) * limit


def warp(frames: Tensor, lengths: Tensor, shift: int, tempo: float, vtlp: float, pitch: float) -> tuple[Tensor, Tensor]:
    """Resamples time and mels by linear interpolation. New frames before the start and after the end take the minimum
    of each mel."""
    B, T, M = frames.shape
    speed = 1 + uniform(B, tempo)
    before, after = ((torch.rand(2, B) * 4 / 3 - 1 / 3) * shift).round().long()
    stretched = (lengths * speed).round().long().clamp(min=1)
    new_lengths = (stretched + before + after).clamp(min=1)
    time = (torch.arange(int(new_lengths.max())) - before[:, None]) / speed[:, None]  # (B,T')
    inside = (time >= -0.5) & (time <= lengths[:, None] - 0.5)
    time = time.clamp(min=0).minimum(lengths[:, None] - 1)
    middle = (M - 1) / 2
    mel = (torch.arange(M) - middle) / (1 + uniform(B, vtlp))[:, None] + middle + uniform(B, pitch)[:, None]  # (B,M)
    columns = (mel * 2 / max(1, M - 1) - 1)[:, None, :].expand(-1, time.size(1), -1)
    rows = (time * 2 / max(1, T - 1) - 1)[:, :, None].expand(-1, -1, M)
    grid = torch.stack((columns, rows), -1)  # (B,T',M,2)
    warped = F.grid_sample(frames[:, None], grid, padding_mode="border", align_corners=True)[:, 0]
    quiet = frames.masked_fill(~frame_mask(frames, lengths)[:, :, None], math.inf).amin(1, keepdim=True)  # (B,1,M)
    return torch.where(inside[:, :, None], warped, quiet), new_lengths


def random_eq_curves(count: int, mels: int, limit: float) -> Tensor:
    """(B,1,mels): random sums of three cosines."""
    x = torch.linspace(0, 1, mels)
    curve = sum(uniform(count, limit / n)[:, None] * torch.cos(math.pi * n * x) for n in (1, 2, 3))
    return torch.as_tensor(curve)[:, None]


def add_noise(frames: Tensor, lengths: Tensor, min_level: float, max_level: float) -> Tensor:
    """Adds noise with a random level and spectral slope per clip; its power is exponentially distributed."""
    B, T, M = frames.shape
    loudest = frames.masked_fill(~frame_mask(frames, lengths)[:, :, None], -math.inf).amax((1, 2))  # (B,)
    level = loudest + min_level + torch.rand(B) * max(0.0, max_level - min_level)
    slope = uniform(B, 2.0)[:, None] * torch.linspace(-1, 1, M)  # (B,M)
    power = -torch.rand(B, T, M).clamp(min=1e-4).log()
    return torch.logaddexp(frames, level[:, None, None] + slope[:, None] + power.log())


def spec_augment(frames: Tensor, lengths: Tensor, share: float) -> Tensor:
    """Masks one range of time and one range of mels with 0, the mean of normalised frames."""
    B, T, M = frames.shape
    ranges = []
    for count, total in ((T, lengths.float()), (M, torch.full((B,), float(M)))):
        width = torch.rand(B) * share * total
        start = torch.rand(B) * (total - width)
        index = torch.arange(count)
        ranges.append((index >= start[:, None]) & (index < (start + width)[:, None]))  # (B,T), (B,M)
    return frames.masked_fill(ranges[0][:, :, None] | ranges[1][:, None], 0.0)
