"""Log-mel spectrograms: the input of speech models, one frame of mel energies every 10 ms.

frame_t    = log(F |FFT(window · samples_t)|²)      F: triangular filters, evenly spaced in mel = 2595 log10(1 + Hz/700)
normalized = (frame - mean) / std                   mean per mel and one std, both of the clip itself

Mel filters follow the resolution of human hearing, which is finer at low frequencies (Stevens et al. 1937; Davis &
Mermelstein 1980). A microphone multiplies the spectrum, so it adds a constant to each log-mel, and subtracting the
mean of the clip removes it (cepstral mean normalisation, Atal 1974).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import numpy.typing as npt

from regard.atomic import write_json
from regard.data.rows import Row
from regard.json_files import read_json
from regard.modalities.audio.audio_files import Audio
from regard.modalities.audio.audio_io import FULL_SCALE, Samples
from regard.validate import check_fields

Frames = npt.NDArray[np.float32]

FILE = "logmel.json"
SECONDS = {"window": 0.032, "hop": 0.01}
MAX_FREQUENCY = 8_000.0  # Hz; higher frequencies do not distinguish words
DYNAMIC_RANGE = 60.0  # decibels below the maximum, to which quieter values are clipped
TRIM_LEVEL = 40.0  # decibels below the loudest frame; quieter frames at the start and the end are trimmed
TRIM_MARGIN = 4  # frames that trimming leaves on either side


@dataclass(frozen=True)
class LogMel:
    """The feature extraction of recordings."""

    sampling_rate: int  # Hz
    mels: int  # mel filters, the numbers of a frame
    stride: int  # frames per token
    window: int  # samples of a frame
    hop: int  # samples between the starts of two frames

    def __post_init__(self) -> None:
        check_fields(
            self,
            sampling_rate=(self.sampling_rate >= 1, "at least 1"),
            mels=(1 <= self.mels <= 512, "from 1 to 512"),
            stride=(self.stride in (1, 2, 4, 8, 16), "1, 2, 4, 8 or 16"),
            window=(2 <= self.window <= 2**16, "from 2 to 65536"),
            hop=(1 <= self.hop <= self.window, "at least 1 and at most the window"),
        )

    @classmethod
    def fit(cls, rows: Sequence[Row[Audio, object]], mels: int, stride: int) -> LogMel:
        """For the sampling rate of these rows."""
        if not rows:
            raise ValueError("there are no recordings to take the sampling rate from")
        hertz = rows[0].input.sampling_rate
        return cls(hertz, mels, stride, *(max(2, round(hertz * seconds)) for seconds in SECONDS.values()))

    @cached_property
    def filters(self) -> npt.NDArray[np.float64]:
        """The mel filter bank, (window // 2 + 1, mels)."""
        top = min(self.sampling_rate / 2, MAX_FREQUENCY)
        edges = to_hertz(np.linspace(0, to_mel(top), self.mels + 2))  # (mels + 2,)
        hertz = np.linspace(0, self.sampling_rate / 2, self.window // 2 + 1)[:, None]
        rising = (hertz - edges[:-2]) / (edges[1:-1] - edges[:-2])
        falling = (edges[2:] - hertz) / (edges[2:] - edges[1:-1])
        return np.minimum(rising, falling).clip(min=0)

    def frames(self, samples: Samples) -> Frames:
        """Log-mel frames (T,mels), with leading and trailing silence trimmed; at least one frame."""
        x = samples / FULL_SCALE
        missing = max(0, self.window - len(x)) or -(len(x) - self.window) % self.hop
        padded = np.pad(x - x.mean(), (0, missing))
        windows = np.lib.stride_tricks.sliding_window_view(padded, self.window)[:: self.hop]  # (T,window)
        power = np.abs(np.fft.rfft(windows * np.hanning(self.window + 1)[:-1])) ** 2
        logs = np.log(power @ self.filters + 1e-10)
        energy = power.sum(1)
        loud = np.flatnonzero(energy >= energy.max() * 10 ** (-TRIM_LEVEL / 10))
        logs = logs[max(0, loud[0] - TRIM_MARGIN) : loud[-1] + 1 + TRIM_MARGIN]
        return logs.clip(min=logs.max() - decibels_to_log(DYNAMIC_RANGE)).astype(np.float32)

    def prepare(self, rows: Sequence[Row[Audio, object]], context: int) -> list[Frames]:
        """The frames of every row. A row with another sampling rate, or longer than the context, is an error."""
        clips = []
        for row in rows:
            if (rate := row.input.sampling_rate) != self.sampling_rate:
                remedy = f"convert it (ffmpeg -i OLD -ar {self.sampling_rate} NEW)"
                rates = f"its sampling rate is {rate:,} Hz, but this model takes {self.sampling_rate:,} Hz"
                raise ValueError(f"{row.location}{rates}: {remedy}")
            clips.append(self.frames(row.input.samples))
            if context and len(clips[-1]) > context * self.stride:
                seconds, limit = (n * self.hop / self.sampling_rate for n in (len(clips[-1]), context * self.stride))
                problem = f"{seconds:.1f} seconds are more than this model's context of {limit:.1f} seconds"
                raise ValueError(f"{row.location}{problem}: split it, or train with a larger --context")
        return clips

    def save(self, folder: Path) -> None:
        write_json(folder / FILE, asdict(self))

    @classmethod
    def load(cls, folder: Path) -> LogMel:
        config = read_json(folder / FILE)
        fields = cls.__dataclass_fields__
        if set(config) != set(fields) or not all(type(value) is int for value in config.values()):
            raise ValueError(f"{folder / FILE} must have the whole numbers {', '.join(fields)}, and no others")
        try:
            return cls(**config)
        except ValueError as error:
            raise ValueError(f"{folder / FILE}: {error}") from None


def to_mel(hertz: float) -> float:
    return 2595 * float(np.log10(1 + hertz / 700))


def to_hertz(mel: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    return 700 * (10 ** (mel / 2595) - 1)


def decibels_to_log(decibels: float) -> float:
    """A ratio of powers in decibels, as a difference of natural logarithms."""
    return decibels / 10 * float(np.log(10))


def normalize_clip(frames: Frames) -> Frames:
    """Frames (T,mels) of one clip, with mean 0 per mel."""
    x = frames - frames.mean(0)
    return x / (x.std() + np.float32(0.1))


def pad_clips(clips: Sequence[Frames], length: int | None = None) -> Frames:
    """(B,T,mels), padded with 0 to `length`, by default that of the longest clip."""
    batch = np.zeros((len(clips), length or max(map(len, clips)), clips[0].shape[1]), np.float32)
    for i, clip in enumerate(clips):
        batch[i, : len(clip)] = clip
    return batch
