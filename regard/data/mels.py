"""Mels: a sound as a picture of which pitches are in it, one column of numbers every hundredth of a second.

frame_t = log(F |FFT(window · samples_t)|²)          F: triangles, evenly spaced in mel = 2595 log10(1 + hertz / 700)
normal  = (frame - mean) / std                       with each clip's own mean, mel by mel, and its one std

The ear tells low pitches apart better than high ones, and mels are spaced so (Stevens et al. 1937; Davis & Mermelstein
1980). The logarithm turns a microphone, which multiplies, into something added, and taking the mean of each mel away
takes that out again (Atal 1974).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from regard.atomic import write_json
from regard.data.recordings import LOUDEST, Samples
from regard.hub.files import read_json, there
from regard.validate import check_fields

Frames = npt.NDArray[np.float32]

FILE = "sounds.json"
SECONDS = {"window": 0.032, "hop": 0.01}
HIGHEST = 8_000.0  # hertz: above, there is nothing that tells words apart
RANGE = 60.0  # decibels below the loudest: what is quieter still counts as that quiet
EDGE = 40.0  # decibels below the loudest: a beginning or an end that is quieter is cut off
KEPT = 4  # frames of it that stay


@dataclass(frozen=True)
class Mels:
    """Makes sounds of any length ready for a model."""

    rate: int  # samples a second
    mels: int  # numbers in a frame
    stride: int  # frames that become one token
    window: int  # samples that a frame is made of
    hop: int  # samples from one frame to the next

    def __post_init__(self) -> None:
        check_fields(
            self,
            rate=(self.rate >= 1, "at least 1"),
            mels=(1 <= self.mels <= 512, "from 1 to 512"),
            stride=(self.stride in (1, 2, 4, 8, 16), "1, 2, 4, 8 or 16"),
            window=(2 <= self.window <= 2**16, "from 2 to 65536"),
            hop=(1 <= self.hop <= self.window, "at least 1 and at most a window"),
        )

    @classmethod
    def fit(cls, rows: Sequence[Any], mels: int, stride: int) -> Mels:
        """For sounds of the rate of these."""
        if not rows:
            raise ValueError("there are no sounds to measure")
        rate = rows[0].rate
        return cls(rate, mels, stride, *(max(2, round(rate * seconds)) for seconds in SECONDS.values()))

    @property
    def tokens_a_second(self) -> float:
        return self.rate / (self.hop * self.stride)

    @cached_property
    def filters(self) -> npt.NDArray[np.float64]:
        """(window // 2 + 1, mels): how much of each frequency is in each mel."""
        top = min(self.rate / 2, HIGHEST)
        edges = to_hertz(np.linspace(0, to_mel(top), self.mels + 2))  # (mels + 2,)
        hertz = np.linspace(0, self.rate / 2, self.window // 2 + 1)[:, None]
        rising = (hertz - edges[:-2]) / (edges[1:-1] - edges[:-2])
        falling = (edges[2:] - hertz) / (edges[2:] - edges[1:-1])
        return np.minimum(rising, falling).clip(min=0)

    def frames(self, samples: Samples) -> Frames:
        """(T,mels), without the silence around it; at least one."""
        x = samples / LOUDEST
        missing = max(0, self.window - len(x)) or -(len(x) - self.window) % self.hop
        whole = np.pad(x - x.mean(), (0, missing))
        cut = np.lib.stride_tricks.sliding_window_view(whole, self.window)[:: self.hop]  # (T,window)
        power = np.abs(np.fft.rfft(cut * np.hanning(self.window + 1)[:-1])) ** 2
        logs = np.log(power @ self.filters + 1e-10)
        loud = power.sum(1)
        heard = np.flatnonzero(loud >= loud.max() * 10 ** (-EDGE / 10))
        logs = logs[max(0, heard[0] - KEPT) : heard[-1] + 1 + KEPT]
        return logs.clip(min=logs.max() - to_log(RANGE)).astype(np.float32)

    def prepare(self, rows: Sequence[Any], context: int) -> list[Frames]:
        """The frames of every row; one that is of another rate, or too long for the model, is named."""
        found = []
        for row in rows:
            if row.rate != self.rate:
                raise ValueError(
                    f"{row.file}:{row.line}: it has {row.rate:,} samples a second, but this model hears {self.rate:,}: "
                    f"convert it (ffmpeg -i OLD -ar {self.rate} NEW)"
                )
            found.append(self.frames(row.samples))
            if context and len(found[-1]) > context * self.stride:
                seconds = len(found[-1]) * self.hop / self.rate
                raise ValueError(
                    f"{row.file}:{row.line}: {seconds:.1f} seconds are more than the "
                    f"{context / self.tokens_a_second:.1f} that this model hears at once: cut it into parts, or train "
                    f"with a larger --context"
                )
        return found

    def save(self, folder: Path) -> None:
        write_json(folder / FILE, asdict(self))

    @classmethod
    def load(cls, folder: Path) -> Mels:
        told = read_json(folder / FILE)
        known = cls.__dataclass_fields__
        if set(told) != set(known) or not all(type(value) is int for value in told.values()):
            raise ValueError(f"{folder / FILE} must have the whole numbers {', '.join(known)}, and no others")
        try:
            return cls(**told)
        except ValueError as error:
            raise ValueError(f"{folder / FILE}: {error}") from None

    @staticmethod
    def lies_in(folder: Path) -> bool:
        return there(folder / FILE)


def to_mel(hertz: Any) -> Any:
    return 2595 * np.log10(1 + hertz / 700)


def to_hertz(mel: Any) -> Any:
    return 700 * (10 ** (mel / 2595) - 1)


def to_log(decibels: float) -> float:
    """A power so many decibels louder, as a difference of logarithms."""
    return decibels / 10 * float(np.log(10))


def normal(frames: Frames) -> Frames:
    """(T,mels) of one clip, around 0."""
    x = frames - frames.mean(0)
    return x / (x.std() + np.float32(0.1))


def side_by_side(clips: Sequence[Frames], length: int | None = None) -> Frames:
    """(B,T,mels), filled up with 0; as long as the longest unless given."""
    table = np.zeros((len(clips), length or max(map(len, clips)), clips[0].shape[1]), np.float32)
    for i, clip in enumerate(clips):
        table[i, : len(clip)] = clip
    return table
