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

from regard.data.episodes import Episode, Floats
from regard.data.frames import divides, in_patches, places_of, whole
from regard.validate import check_fields

Reals = npt.NDArray[np.float64]

SAMPLE = 200  # videos are many: so many of them tell their scale


@dataclass(frozen=True)
class Senses:
    shape: list[int]  # of an observation: how many numbers, or height and width of a frame, and its colours
    patch: int  # height and width of a patch of a frame
    mean: list[float]
    spread: list[float]
    change: list[float]  # in a step
    low: float
    high: float

    def __post_init__(self) -> None:
        check_fields(self, shape=(1 <= len(self.shape) <= 3 and min(self.shape) >= 1, "numbers, or height and width"))
        divides(self.shape, self.patch)
        wide = 1 if self.frames else self.shape[0]
        for name in ("mean", "spread", "change"):
            numbers = getattr(self, name)
            least = -math.inf if name == "mean" else 0.0
            fine = len(numbers) == wide and all(least < number < math.inf for number in numbers)
            check_fields(self, **{name: (fine, f"{wide} finite numbers, and those of a scale above 0")})

    @classmethod
    def fit(cls, episodes: Sequence[Episode], patch: int | None) -> Senses:
        shape = list(episodes[0].observations.shape[1:])
        frames = len(shape) > 1
        some = episodes[:: max(1, len(episodes) // SAMPLE)] if frames else episodes
        axes = None if frames else 0
        seen = [one.seen().astype(np.float64) for one in some]
        every, moved = np.concatenate(seen), np.concatenate([np.diff(one, axis=0) for one in seen])
        spread, change = or_1(every.std(axes)), or_1(np.sqrt((moved**2).mean(axes)))
        low, high = float(every.min()), float(every.max())
        mean, spreads, changes = (listed(one) for one in (every.mean(axes), spread, change))
        return cls(shape, divides(shape, patch), mean, spreads, changes, low, high)

    @property
    def frames(self) -> bool:
        return len(self.shape) > 1

    @property
    def places(self) -> int:
        return places_of(self.shape, self.patch)

    @property
    def sizes(self) -> dict[str, int]:
        return {"observation": math.prod(self.shape) // self.places, "places": self.places}

    @cached_property
    def scales(self) -> tuple[Tensor, Tensor, Tensor]:
        return torch.tensor(self.mean), torch.tensor(self.spread), torch.tensor(self.change)

    def given(self, observations: Tensor) -> Tensor:
        """(B,T, ...) as observed -> (B,T,K,O)"""
        mean, spread, _ = (one.to(observations) for one in self.scales)
        return in_patches((observations - mean) / spread, self.shape, self.patch)

    def changes(self, observations: Tensor) -> Tensor:
        """From each to the next, (B,T+1, ...) -> (B,T,K,O)"""
        return in_patches(observations.diff(dim=1) / self.scales[2].to(observations), self.shape, self.patch)

    def after(self, observations: Tensor, change: Tensor) -> Tensor:
        """What comes of a change, (B,T, ...) as it would be observed; a pixel stays within those that there are."""
        moved = observations + whole(change, self.shape, self.patch) * self.scales[2].to(change)
        return moved.clamp(self.low, self.high) if self.frames else moved

    def within(self, given: Tensor, change: Tensor) -> Tensor:
        """The change, but for what would leave the range of the pixels."""
        if not self.frames:
            return change
        now, by = given * self.spread[0] + self.mean[0], self.change[0]
        return ((now + change * by).clamp(self.low, self.high) - now) / by

    def off(self, wrong: Tensor) -> Tensor:
        """The squared error of each step, (B,T,K,O) -> (B,T): of a frame in its own units, of numbers the mean."""
        return wrong.square().flatten(-2).sum(-1) * (self.change[0] ** 2 if self.frames else 1 / self.shape[0])

    def apart(self, told: Floats, true: Reals) -> Reals:
        """The same, of observations (T, ...)."""
        axes = tuple(range(1, true.ndim))
        if self.frames:
            return np.asarray(((told - true) ** 2).sum(axes))
        return np.asarray((((told - true) / self.change) ** 2).mean(axes))


def listed(numbers: Reals) -> list[float]:
    return [float(number) for number in np.atleast_1d(numbers)]


def or_1(spread: Reals) -> Reals:
    """What never changes is left as it is."""
    return np.where(spread > 1e-8, spread, 1.0)
