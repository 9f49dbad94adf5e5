"""Decodes audio files: wav with the standard library, all other formats with soundfile if it is installed.

Samples are int16, of one channel; several channels are mixed down.
"""

from __future__ import annotations

import wave
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from regard.data.media_files import NO_SUCH_FILE, file_problem
from regard.json_files import check_unpacked_size

Samples = npt.NDArray[np.int16]

SOUNDFILE_FORMATS = (".flac", ".ogg", ".mp3", ".aiff", ".aif", ".au", ".opus")
AUDIO_FORMATS = (".wav", *SOUNDFILE_FORMATS)
FULL_SCALE = 32768  # of int16
SILENCE = 8  # a recording whose samples differ by no more is silent
SAMPLING_RATES = (1_000, 400_000)  # Hz; a rate outside this range is an error in the file's header


class Recording(NamedTuple):
    samples: Samples
    sampling_rate: int  # Hz


def open_audio(file: str | Path) -> Recording:
    recording = decode_audio(Path(file))
    if isinstance(recording, str):
        raise ValueError(f"{file}: {recording}" if recording == NO_SUCH_FILE else f"{file}: not audio ({recording})")
    return recording


def decode_audio(file: Path) -> Recording | str:
    """The recording, or an error message."""
    if problem := file_problem(file, "audio files", AUDIO_FORMATS):
        return problem
    try:
        recording = read_wav(file) if file.suffix.lower() == ".wav" else read_soundfile(file)
    except EOFError:
        return f"it is truncated: {file.stat().st_size:,} bytes are no complete wav file"
    except Exception as error:  # a broken file makes the decoders raise nearly any error
        return f"{type(error).__name__}: {error}"
    if isinstance(recording, str):
        return recording
    samples, sampling_rate = recording
    if not SAMPLING_RATES[0] <= sampling_rate <= SAMPLING_RATES[1]:
        return f"a sampling rate of {sampling_rate:,} Hz is not between {SAMPLING_RATES[0]:,} and {SAMPLING_RATES[1]:,}"
    if not len(samples):
        return "it is empty: there is a header, but no sample"
    if int(samples.max()) - int(samples.min()) <= SILENCE:
        return f"it is silent: all of its {len(samples):,} samples are equal"
    return recording


def read_wav(file: Path) -> Recording | str:
    """PCM of 8, 16, 24 or 32 bits, with the standard library."""
    try:
        with wave.open(str(file), "rb") as opened:
            channels, width, sampling_rate, frames = opened.getparams()[:4]
            content = opened.readframes(frames)
    except wave.Error as error:
        if "unknown format" in str(error):  # floating point, or compressed
            return read_soundfile(file)
        return f"this is no wav file: {error}"
    if len(content) != frames * channels * width:
        return f"it is truncated: {frames:,} samples are promised, the file has {len(content) // (channels * width):,}"
    return Recording(mix_down(to_samples(content, width).reshape(-1, channels)), sampling_rate)


def to_samples(content: bytes, width: int) -> Samples:
    """The upper 16 bits of each sample of `width` bytes."""
    match width:
        case 1:  # the only unsigned format
            return (np.frombuffer(content, np.uint8).astype(np.int16) - 128) * 256
        case 2:
            return np.frombuffer(content, "<i2").astype(np.int16)
        case 3:
            return np.frombuffer(content, np.uint8).reshape(-1, 3)[:, 1:].copy().view("<i2")[:, 0].astype(np.int16)
        case 4:
            return (np.frombuffer(content, "<i4") >> 16).astype(np.int16)
    raise ValueError(f"samples of {8 * width} bits are not supported, only 8, 16, 24 and 32")


def read_soundfile(file: Path) -> Recording | str:
    try:
        import soundfile
    except (ImportError, OSError):  # OSError if libsndfile is missing
        return 'only PCM wav files are read without soundfile: pip install "regard[speech]", or convert it'
    try:
        info = soundfile.info(str(file))
        check_unpacked_size(file, 2 * info.frames * info.channels)
        samples, sampling_rate = soundfile.read(str(file), dtype="int16", always_2d=True)
    except soundfile.SoundFileError as error:
        return f"soundfile cannot read it: {error}"
    return Recording(mix_down(samples), int(sampling_rate))


def mix_down(channels: npt.NDArray[np.int16]) -> Samples:
    """(N, channels) to (N,)."""
    if channels.shape[1] == 1:
        return np.ascontiguousarray(channels[:, 0])
    return channels.mean(1).round().astype(np.int16)
