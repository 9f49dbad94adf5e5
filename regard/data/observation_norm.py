"""Senses: what is observed becomes what a model is given, and back. All scales are estimated from episodes.

    given = (x - mean) / spread, in patches            change = (x_t+1 - x_t) / √ mean (x_t+1 - x_t)²

Each number of an observation has a scale of its own; all pixels of a frame share one.
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

from regard.choose import must
from regard.data.episodes import Episode, Floats
from regard.data.patchify import count_patches, patchify, resolve_patch, unpatchify

Reals = npt.NDArray[np.float64]

SAMPLE = 200  # videos are many: so many of them tell their scale


@dataclass(frozen=True)
class ObservationNorm:
    shape: list[int]  # of an observation: how many numbers, or height and width of a frame, and its colours
    patch: int  # height and width of a patch of a frame
    mean: list[float]
    std: list[float]
    delta_std: list[float]  # in a step
    low: float
    high: float

    def __post_init__(self) -> None:
        must(self, shape=(1 <= len(self.shape) <= 3 and min(self.shape) >= 1, "numbers, or height and width"))
        resolve_patch(self.shape, self.patch)
        wide = 1 if self.is_frames else self.shape[0]
        for name in ("mean", "std", "delta_std"):
            numbers = getattr(self, name)
            least = -math.inf if name == "mean" else 0.0
            fine = len(numbers) == wide and all(least < number < math.inf for number in numbers)
            must(self, **{name: (fine, f"{wide} finite numbers, and those of a scale above 0")})

    @classmethod
    def fit(cls, episodes: Sequence[Episode], patch: int | None) -> ObservationNorm:
        shape = list(episodes[0].observations.shape[1:])
        is_frames = len(shape) > 1
        some = episodes[:: max(1, len(episodes) // SAMPLE)] if is_frames else episodes
        axes = None if is_frames else 0
        seen = [one.as_float().astype(np.float64) for one in some]
        every, moved = np.concatenate(seen), np.concatenate([np.diff(one, axis=0) for one in seen])
        std, delta_std = nonzero_std(every.std(axes)), nonzero_std(np.sqrt((moved**2).mean(axes)))
        low, high = float(every.min()), float(every.max())
        mean, spreads, deltas = (listed(one) for one in (every.mean(axes), std, delta_std))
        return cls(shape, resolve_patch(shape, patch), mean, spreads, deltas, low, high)

    @property
    def is_frames(self) -> bool:
        return len(self.shape) > 1

    @property
    def num_patches(self) -> int:
        return count_patches(self.shape, self.patch)

    @property
    def sizes(self) -> dict[str, int]:
        return {"observation": math.prod(self.shape) // self.num_patches, "places": self.num_patches}

    @cached_property
    def scales(self) -> tuple[Tensor, Tensor, Tensor]:
        return torch.tensor(self.mean), torch.tensor(self.std), torch.tensor(self.delta_std)

    def normalize(self, observations: Tensor) -> Tensor:
        """(B,T, ...) as observed -> (B,T,K,O)"""
        mean, std, _ = (one.to(observations) for one in self.scales)
        return patchify((observations - mean) / std, self.shape, self.patch)

    def deltas(self, observations: Tensor) -> Tensor:
        """From each to the next, (B,T+1, ...) -> (B,T,K,O)"""
        return patchify(observations.diff(dim=1) / self.scales[2].to(observations), self.shape, self.patch)

    def apply_delta(self, observations: Tensor, delta_std: Tensor) -> Tensor:
        """What comes of a change, (B,T, ...) as it would be observed; a pixel stays within those that there are."""
        moved = observations + unpatchify(delta_std, self.shape, self.patch) * self.scales[2].to(delta_std)
        return moved.clamp(self.low, self.high) if self.is_frames else moved

    def clip_delta(self, normalize: Tensor, delta_std: Tensor) -> Tensor:
        """The change, but for what would leave the range of the pixels."""
        if not self.is_frames:
            return delta_std
        now, by = normalize * self.std[0] + self.mean[0], self.delta_std[0]
        return ((now + delta_std * by).clamp(self.low, self.high) - now) / by

    def step_error(self, wrong: Tensor) -> Tensor:
        """The squared error of each step, (B,T,K,O) -> (B,T): of a frame in its own units, of numbers the mean."""
        return wrong.square().flatten(-2).sum(-1) * (self.delta_std[0] ** 2 if self.is_frames else 1 / self.shape[0])

    def observation_error(self, told: Floats, true: Reals) -> Reals:
        """The same, of observations (T, ...)."""
        axes = tuple(range(1, true.ndim))
        if self.is_frames:
            return np.asarray(((told - true) ** 2).sum(axes))
        return np.asarray((((told - true) / self.delta_std) ** 2).mean(axes))


def listed(numbers: Reals) -> list[float]:
    return [float(number) for number in np.atleast_1d(numbers)]


def nonzero_std(std: Reals) -> Reals:
    """What never changes is left as it is."""
    return np.where(std > 1e-8, std, 1.0)
