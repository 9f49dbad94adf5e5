"""Synthesises the ten digits, spoken by random voices (formant synthesis).

sound(t) = Σ_h a_h(t) sin(2π h ∫pitch)  +  band-pass noise
a_h      = h^-slope · Π_k R_k(h · pitch)          R_k: the resonances of the vocal tract, the formants (Fant 1960)

A word is a sequence of phones, each with three formants, an amount of voice and an amount of noise, with smooth
transitions. A voice has its own pitch, vocal tract length, tempo, breathiness and vowels. No two takes are equal.
"""

import random
from functools import cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

SAMPLING_RATE = 8_000  # Hz
HOP = 40  # samples per control frame
SPEAKERS = {"train": 24, "valid": 3, "test": 3}  # of each set; all different
TAKES = 4  # recordings of each word by each speaker


class Phone(NamedTuple):
    formants: tuple[float, float, float]  # Hz
    voice: float = 1.0
    noise: float = 0.0
    band: float = 3000.0  # centre frequency of the noise in Hz
    bandwidth: float = 1500.0  # of the noise in Hz
    seconds: float = 0.09


PHONES = {
    "iy": Phone((280, 2250, 2900), seconds=0.18),
    "ih": Phone((400, 1950, 2550)),
    "eh": Phone((550, 1800, 2500)),
    "ey": Phone((500, 2000, 2600), seconds=0.13),
    "ah": Phone((640, 1200, 2400), seconds=0.12),
    "aa": Phone((730, 1150, 2450), seconds=0.14),
    "ao": Phone((570, 860, 2450), seconds=0.17),
    "ow": Phone((520, 950, 2400), seconds=0.1),
    "uw": Phone((310, 950, 2250), seconds=0.18),
    "r": Phone((420, 1250, 1650), 0.7, seconds=0.08),
    "w": Phone((300, 650, 2200), 0.6),
    "n": Phone((270, 1350, 2450), 0.4),
    "v": Phone((270, 1150, 2300), 0.35, 0.1, 2900, 1800, 0.07),
    "z": Phone((270, 1550, 2550), 0.25, 0.3, 3700, 600),
    "s": Phone((300, 1550, 2550), 0.0, 0.6, 3750, 600, 0.12),
    "f": Phone((300, 1150, 2300), 0.0, 0.16, 2700, 2200, 0.1),
    "th": Phone((300, 1400, 2500), 0.0, 0.12, 3200, 1800),
    ".": Phone((350, 1500, 2500), 0.0, 0.0, seconds=0.05),  # the closure of a stop
    "t": Phone((350, 1800, 2650), 0.0, 0.5, 3500, 1000, 0.03),
    "k": Phone((350, 1900, 2400), 0.0, 0.45, 2000, 700, 0.03),
}
WORDS = {
    **{"zero": "z ih r ow uw", "one": "w ah n", "two": "t uw", "three": "th r iy", "four": "f ao r"},
    **{"five": "f aa ih v", "six": "s ih . k s", "seven": "s eh v ah n", "eight": "ey ih . t", "nine": "n aa ih n"},
}


class Voice(NamedTuple):
    pitch: float  # Hz
    formant_scale: float  # factor of all formants
    duration_scale: float  # factor of all durations
    breathiness: float  # amount of noise in voiced phones
    slope: float  # decay of the harmonics
    vowels: dict[str, tuple[float, float]]  # factors of the first and the second formant


class Clip(NamedTuple):
    samples: NDArray[np.int16]
    word: str
    speaker: str


@cache
def voices(part: str, takes: int = TAKES, seed: int = 0) -> tuple[Clip, ...]:
    """All takes of every word by every speaker of a set; the same seed gives the same recordings."""
    clips = []
    for number in range(SPEAKERS[part]):
        name = f"{part}{number}"
        rng = random.Random(f"{seed}/{name}")
        voice = draw_voice(rng)
        clips += [Clip(speak(word, voice, rng), word, name) for _ in range(takes) for word in WORDS]
    return tuple(clips)


def draw_voice(rng: random.Random) -> Voice:
    size = rng.random()  # a short vocal tract goes with a high pitch
    return Voice(
        pitch=100 * 2.2 ** (size + rng.uniform(-0.2, 0.2)),
        formant_scale=0.92 + 0.22 * size + rng.uniform(-0.04, 0.04),
        duration_scale=rng.uniform(0.8, 1.3),
        breathiness=rng.uniform(0.01, 0.08),
        slope=rng.uniform(0.7, 1.3),
        vowels={name: (rng.uniform(0.93, 1.07), rng.uniform(0.93, 1.07)) for name in PHONES},
    )


def speak(word: str, voice: Voice, rng: random.Random) -> NDArray[np.int16]:
    noise = np.random.default_rng(rng.getrandbits(32))
    phones = WORDS[word].split()
    scale = voice.duration_scale * rng.uniform(0.9, 1.1)
    counts = [max(2, round(PHONES[p].seconds * scale * rng.uniform(0.85, 1.15) * SAMPLING_RATE / HOP)) for p in phones]
    controls = np.repeat([phone_controls(name, voice, rng) for name in phones], counts, 0)  # (T,7)
    controls = np.concatenate((controls[:1] * SILENT_EDGE, controls, controls[-1:] * SILENT_EDGE))
    controls = smooth(controls, 7)
    pitch = voice.pitch * rng.uniform(0.93, 1.07) * np.linspace(1.06, rng.uniform(0.82, 0.95), len(controls))
    sound = voiced_part(controls, pitch, voice.slope) + noise_part(controls, voice.breathiness, noise)
    sound = sound / np.abs(sound).max() * rng.uniform(0.1, 0.7)
    padded = np.pad(sound, [int(rng.uniform(0, 0.06) * SAMPLING_RATE) for _ in range(2)])
    level = 10 ** rng.uniform(-4, -2.5)
    samples = (padded + noise.standard_normal(len(padded)) * level) * 32767
    return samples.clip(-32768, 32767).round().astype(np.int16)


SILENT_EDGE = np.array([1, 1, 1, 0, 0, 1, 1.0])  # factors of the controls at both ends: no voice, no noise


def phone_controls(name: str, voice: Voice, rng: random.Random) -> list[float]:
    """Three formants, amounts of voice and noise, centre and width of the noise band."""
    phone, scale = PHONES[name], voice.formant_scale
    factors = (*voice.vowels[name], 1.0)
    formants = [f * o * scale * rng.uniform(0.97, 1.03) for f, o in zip(phone.formants, factors, strict=True)]
    return [*formants, phone.voice, phone.noise, min(3800.0, phone.band * scale**0.5), phone.bandwidth]


def smooth(controls: NDArray[np.float64], count: int) -> NDArray[np.float64]:
    """The moving average over `count` frames."""
    padded = np.pad(controls, ((count // 2, count // 2), (0, 0)), "edge")
    return np.mean([padded[i : i + len(controls)] for i in range(count)], 0)


def voiced_part(controls: NDArray[np.float64], pitch: NDArray[np.float64], slope: float) -> NDArray[np.float64]:
    """Harmonics of the pitch, with the amplitudes of the formants."""
    time = np.arange(len(controls) * HOP) / HOP
    cycles = np.cumsum(np.interp(time, np.arange(len(controls)), pitch)) / SAMPLING_RATE
    sound = np.zeros(len(time))
    for h in range(1, int(0.48 * SAMPLING_RATE / pitch.max()) + 1):
        hertz = h * pitch
        amplitude = controls[:, 3] * h**-slope
        for k, width in enumerate((70.0, 90.0, 140.0)):
            formant = controls[:, k]
            amplitude = amplitude * formant**2 / np.sqrt((formant**2 - hertz**2) ** 2 + (hertz * width) ** 2)
        sound += np.interp(time, np.arange(len(controls)), amplitude) * np.sin(2 * np.pi * h * cycles)
    return sound / 10


def noise_part(controls: NDArray[np.float64], breathiness: float, noise: np.random.Generator) -> NDArray[np.float64]:
    """Band-pass noise, synthesised in windows that overlap by half."""
    hertz = np.linspace(0, SAMPLING_RATE / 2, HOP + 1)
    band = np.exp(-(((hertz - controls[:, 5:6]) / controls[:, 6:7]) ** 2)) * controls[:, 4:5]  # (T,HOP + 1)
    band += breathiness * controls[:, 3:4] * np.exp(-(((hertz - 1800) / 1500) ** 2)) * 0.3
    gaussian = noise.standard_normal((2, *band.shape))
    windows = np.fft.irfft(band * (gaussian[0] + 1j * gaussian[1]), 2 * HOP) * np.hanning(2 * HOP)  # (T,2 HOP)
    sound = np.zeros((len(controls) + 1) * HOP)
    sound[:-HOP] += windows[:, :HOP].ravel()
    sound[HOP:] += windows[:, HOP:].ravel()
    return sound[: len(controls) * HOP] * 3
