"""Normalises observations for a model and back, with statistics of the training episodes.

    normalize = (x - mean) / std, in patches            delta = (x_t+1 - x_t) / √ mean (x_t+1 - x_t)²

Each entry of an observation vector has its own statistics; all pixels of frames share theirs.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from regard.data.episodes import Episode, Floats
from regard.data.patchify import count_patches, patchify, resolve_patch, unpatchify
from regard.validate import check_fields, matches_type

Reals = npt.NDArray[np.float64]

MAX_VIDEOS = 200  # about as many videos are enough for the statistics


@dataclass(frozen=True)
class ObservationNorm:
    shape: list[int]  # of an observation: [entries], or [height, width] or [height, width, channels] of a frame
    patch: int  # height and width of a patch of a frame
    mean: list[float]
    std: list[float]
    delta_std: list[float]  # root mean square change in one step
    low: float
    high: float

    def __post_init__(self) -> None:
        check_fields(self, shape=(1 <= len(self.shape) <= 3 and min(self.shape) >= 1, "entries, or height and width"))
        resolve_patch(self.shape, self.patch)
        size = 1 if self.is_frames else self.shape[0]
        for name in ("mean", "std", "delta_std"):
            values = getattr(self, name)
            minimum = -math.inf if name == "mean" else 0.0
            are_numbers = matches_type(values, list[float]) and len(values) == size
            valid = are_numbers and all(minimum < value < math.inf for value in values)
            check_fields(self, **{name: (valid, f"{size} finite numbers, and those of std and delta_std above 0")})

    @classmethod
    def fit(cls, episodes: Sequence[Episode], patch: int | None) -> ObservationNorm:
        shape = list(episodes[0].observations.shape[1:])
        is_frames = len(shape) > 1
        sample = episodes[:: max(1, len(episodes) // MAX_VIDEOS)] if is_frames else episodes
        axes = None if is_frames else 0
        arrays = [episode.as_float().astype(np.float64) for episode in sample]
        observations, deltas = np.concatenate(arrays), np.concatenate([np.diff(array, axis=0) for array in arrays])
        scales = nonzero_std(observations.std(axes)), nonzero_std(np.sqrt((deltas**2).mean(axes)))
        low, high = float(observations.min()), float(observations.max())
        mean, std, delta_std = (np.atleast_1d(values).tolist() for values in (observations.mean(axes), *scales))
        return cls(shape, resolve_patch(shape, patch), mean, std, delta_std, low, high)

    @property
    def is_frames(self) -> bool:
        return len(self.shape) > 1

    @property
    def num_patches(self) -> int:
        return count_patches(self.shape, self.patch)

    @property
    def sizes(self) -> dict[str, int]:
        return {"observation_dim": math.prod(self.shape) // self.num_patches, "observation_tokens": self.num_patches}

    @cached_property
    def scales(self) -> tuple[Tensor, Tensor, Tensor]:
        return torch.tensor(self.mean), torch.tensor(self.std), torch.tensor(self.delta_std)

    def normalize(self, observations: Tensor) -> Tensor:
        """(B,T, ...) as observed -> (B,T,K,O)"""
        mean, std, _ = (scale.to(observations) for scale in self.scales)
        return patchify((observations - mean) / std, self.shape, self.patch)

    def deltas(self, observations: Tensor) -> Tensor:
        """Normalised changes from each observation to the next, (B,T+1, ...) -> (B,T,K,O)"""
        return patchify(observations.diff(dim=1) / self.scales[2].to(observations), self.shape, self.patch)

    def apply_delta(self, observations: Tensor, delta: Tensor) -> Tensor:
        """The next observations, (B,T, ...); pixels are clipped to the range of the training frames."""
        result = observations + unpatchify(delta, self.shape, self.patch) * self.scales[2].to(delta)
        return result.clamp(self.low, self.high) if self.is_frames else result

    def clip_delta(self, normalized: Tensor, delta: Tensor) -> Tensor:
        """The delta, clipped so that pixels stay in the range of the training frames."""
        if not self.is_frames:
            return delta
        pixels, scale = normalized * self.std[0] + self.mean[0], self.delta_std[0]
        return ((pixels + delta * scale).clamp(self.low, self.high) - pixels) / scale

    def step_error(self, error: Tensor) -> Tensor:
        """The squared error of each step, (B,T,K,O) -> (B,T): the sum over a frame in its own units, or the mean over a
        vector in units of delta_std."""
        return error.square().flatten(-2).sum(-1) * (self.delta_std[0] ** 2 if self.is_frames else 1 / self.shape[0])

    def observation_error(self, prediction: Floats | Reals, target: Reals) -> Reals:
        """The same error from observations (T, ...)."""
        axes = tuple(range(1, target.ndim))
        if self.is_frames:
            return np.asarray(((prediction - target) ** 2).sum(axes))
        return np.asarray((((prediction - target) / self.delta_std) ** 2).mean(axes))


def nonzero_std(std: Reals) -> Reals:
    """1 where the standard deviation is 0: constants are not scaled."""
    return np.where(std > 1e-8, std, 1.0)
