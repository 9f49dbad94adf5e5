"""A recording from a file: wav by the standard library, whatever else there is by soundfile, if installed.

Samples are whole numbers of 16 bits, of one channel: several are mixed.
"""

from __future__ import annotations

import os
import wave
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from regard.data.flaws import MISSING
from regard.hub.files import must_unpack

Samples = npt.NDArray[np.int16]

OTHERS = (".flac", ".ogg", ".mp3", ".aiff", ".aif", ".au", ".opus")  # that soundfile reads
ENDINGS = (".wav", *OTHERS)
LOUDEST = 32768  # of 16 bits
SILENCE = 8  # a sound that nowhere differs by more is silent
RATES = (1_000, 400_000)  # samples a second: outside of these, somebody has mistaken a number


class Recording(NamedTuple):
    samples: Samples
    sampling_rate: int  # samples a second


def open_audio(file: str | Path) -> Recording:
    """A single sound."""
    found = decode(Path(file))
    if isinstance(found, str):
        raise ValueError(f"{file}: {found}" if found == MISSING else f"{file}: not a sound ({found})")
    return found


def decode(file: Path) -> Recording | str:
    """What is recorded, or what is wrong with it."""
    if not os.path.exists(file):
        return MISSING
    ending = file.suffix.lower()
    if ending not in ENDINGS:
        return f"sounds are named {', '.join(ENDINGS)}, not {ending!r}"
    if file.exists() and not file.is_file():
        return "it is a folder, a pipe or a device, not a file"
    try:
        found = from_wav(file) if ending == ".wav" else from_other(file)
    except EOFError:
        return f"it ends too early: {file.stat().st_size:,} bytes are no whole wav file"
    except Exception as error:  # a broken file leads the readers into nearly every error there is
        return f"{type(error).__name__}: {error}"
    if isinstance(found, str):
        return found
    if not RATES[0] <= found.sampling_rate <= RATES[1]:
        return f"{found.sampling_rate:,} samples a second are not between {RATES[0]:,} and {RATES[1]:,}"
    if not len(found.samples):
        return "it is empty: there is a header, and not a single sample"
    if int(found.samples.max()) - int(found.samples.min()) <= SILENCE:
        return f"it is silent: none of its {len(found.samples):,} samples differs from the others"
    return found


def from_wav(file: Path) -> Recording | str:
    """8, 16, 24 or 32 bits, by the standard library."""
    try:
        with wave.open(str(file), "rb") as opened:
            channels, width, sampling_rate, frames = opened.getparams()[:4]
            content = opened.readframes(frames)
    except wave.Error as error:
        if "unknown format" in str(error):  # decimals, or packed
            return from_other(file)
        return f"this is no wav file: {error}"
    if len(content) != frames * channels * width:
        return f"it is cut off: {frames:,} samples are promised, and {len(content) // (channels * width):,} are there"
    return Recording(mixed(to_samples(content, width).reshape(-1, channels)), sampling_rate)


def to_samples(content: bytes, width: int) -> Samples:
    """The upper 16 bits of each."""
    match width:
        case 1:  # the only ones without a sign
            return (np.frombuffer(content, np.uint8).astype(np.int16) - 128) * 256
        case 2:
            return np.frombuffer(content, "<i2").astype(np.int16)
        case 3:
            return np.frombuffer(content, np.uint8).reshape(-1, 3)[:, 1:].copy().view("<i2")[:, 0].astype(np.int16)
        case 4:
            return (np.frombuffer(content, "<i4") >> 16).astype(np.int16)
    raise ValueError(f"samples of {8 * width} bits cannot be read, but those of 8, 16, 24 and 32")


def from_other(file: Path) -> Recording | str:
    try:
        import soundfile
    except (ImportError, OSError):  # OSError where the library behind it is missing
        return 'only wav files of whole numbers are read without soundfile: pip install "regard[speech]", or convert it'
    try:
        told = soundfile.info(str(file))
        must_unpack(file, 2 * told.frames * told.channels)
        samples, sampling_rate = soundfile.read(str(file), dtype="int16", always_2d=True)
    except soundfile.SoundFileError as error:
        return f"soundfile cannot read it: {error}"
    return Recording(mixed(samples), int(sampling_rate))


def mixed(channels: npt.NDArray[np.int16]) -> Samples:
    """(N, channels) to (N,)."""
    if channels.shape[1] == 1:
        return np.ascontiguousarray(channels[:, 0])
    return channels.mean(1).round().astype(np.int16)
