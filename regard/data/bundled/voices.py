"""Voices: the ten digits, spoken by people who do not exist.

sound(t) = Σ_h a_h(t) sin(2π h ∫pitch)  +  noise through a moving band
a_h      = h^-slope · Π_k R_k(h · pitch)          R_k: the resonances of a throat, the formants (Fant 1960)

A word is a row of speech sounds, each with three formants, a share of voice and a share of noise; what lies between two
is a glide. A speaker has a pitch, a length of throat, a pace, a breath and vowels of their own. No two takes are alike.
"""

import random
from functools import cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

SAMPLING_RATE = 8_000  # samples a second
HOP = 40  # samples between two settings of the throat
SPEAKERS = {"train": 24, "valid": 3, "test": 3}  # speakers; nobody is in two
TAKES = 4  # of each word by each speaker


class Phone(NamedTuple):
    """A speech sound."""

    formants: tuple[float, float, float]  # hertz
    voice: float = 1.0
    noise: float = 0.0
    band: float = 3000.0  # middle of the noise, in hertz
    wide: float = 1500.0  # its width
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
    ".": Phone((350, 1500, 2500), 0.0, 0.0, seconds=0.05),  # before a stop opens
    "t": Phone((350, 1800, 2650), 0.0, 0.5, 3500, 1000, 0.03),
    "k": Phone((350, 1900, 2400), 0.0, 0.45, 2000, 700, 0.03),
}
WORDS = {
    "zero": "z ih r ow uw",
    "one": "w ah n",
    "two": "t uw",
    "three": "th r iy",
    "four": "f ao r",
    "five": "f aa ih v",
    "six": "s ih . k s",
    "seven": "s eh v ah n",
    "eight": "ey ih . t",
    "nine": "n aa ih n",
}


class Voice(NamedTuple):
    """How somebody speaks."""

    pitch: float  # hertz
    throat: float  # all formants times this
    pace: float  # all lengths times this
    breath: float  # noise beside the voice
    slope: float  # how fast harmonics get weaker
    vowels: dict[str, tuple[float, float]]  # first and second formant times these


class Clip(NamedTuple):
    samples: NDArray[np.int16]
    word: str
    speaker: str


@cache
def voices(part: str, takes: int = TAKES, seed: int = 0) -> tuple[Clip, ...]:
    """Every word by every speaker of a set, some times; the same for the same seed."""
    clips = []
    for number in range(SPEAKERS[part]):
        name = f"{part}{number}"
        luck = random.Random(f"{seed}/{name}")
        voice = somebody(luck)
        clips += [Clip(speak(word, voice, luck), word, name) for _ in range(takes) for word in WORDS]
    return tuple(clips)


def somebody(luck: random.Random) -> Voice:
    size = luck.random()  # small people have short throats and high voices
    return Voice(
        pitch=100 * 2.2 ** (size + luck.uniform(-0.2, 0.2)),
        throat=0.92 + 0.22 * size + luck.uniform(-0.04, 0.04),
        pace=luck.uniform(0.8, 1.3),
        breath=luck.uniform(0.01, 0.08),
        slope=luck.uniform(0.7, 1.3),
        vowels={name: (luck.uniform(0.93, 1.07), luck.uniform(0.93, 1.07)) for name in PHONES},
    )


def speak(word: str, voice: Voice, luck: random.Random) -> NDArray[np.int16]:
    noise = np.random.default_rng(luck.getrandbits(32))
    phones = WORDS[word].split()
    pace = voice.pace * luck.uniform(0.9, 1.1)
    counts = [max(2, round(PHONES[p].seconds * pace * luck.uniform(0.85, 1.15) * SAMPLING_RATE / HOP)) for p in phones]
    told = np.repeat([settings(name, voice, luck) for name in phones], counts, 0)  # (T,7)
    told = np.concatenate((told[:1] * EDGE, told, told[-1:] * EDGE))
    told = glide(told, 7)
    pitch = voice.pitch * luck.uniform(0.93, 1.07) * np.linspace(1.06, luck.uniform(0.82, 0.95), len(told))
    sound = hum(told, pitch, voice.slope) + rustle(told, voice.breath, noise)
    sound = sound / np.abs(sound).max() * luck.uniform(0.1, 0.7)
    whole = np.pad(sound, [int(luck.uniform(0, 0.06) * SAMPLING_RATE) for _ in range(2)])
    hiss = 10 ** luck.uniform(-4, -2.5)
    return ((whole + noise.standard_normal(len(whole)) * hiss) * 32767).clip(-32768, 32767).round().astype(np.int16)


EDGE = np.array([1, 1, 1, 0, 0, 1, 1.0])  # as at the first sound and at the last, but for voice and noise


def settings(name: str, voice: Voice, luck: random.Random) -> list[float]:
    """Three formants, voice, noise, and the noise's band."""
    phone = PHONES[name]
    own = (*voice.vowels[name], 1.0)
    formants = [f * o * voice.throat * luck.uniform(0.97, 1.03) for f, o in zip(phone.formants, own, strict=True)]
    return [*formants, phone.voice, phone.noise, min(3800.0, phone.band * voice.throat**0.5), phone.wide]


def glide(told: NDArray[np.float64], count: int) -> NDArray[np.float64]:
    """The mean of so many neighbours: a throat does not jump."""
    wide = np.pad(told, ((count // 2, count // 2), (0, 0)), "edge")
    return np.mean([wide[i : i + len(told)] for i in range(count)], 0)


def hum(told: NDArray[np.float64], pitch: NDArray[np.float64], slope: float) -> NDArray[np.float64]:
    """The voice: harmonics of the pitch, as loud as the formants let them be."""
    at = np.arange(len(told) * HOP) / HOP
    turns = np.cumsum(np.interp(at, np.arange(len(told)), pitch)) / SAMPLING_RATE
    sound = np.zeros(len(at))
    for h in range(1, int(0.48 * SAMPLING_RATE / pitch.max()) + 1):
        hertz = h * pitch
        loud = told[:, 3] * h**-slope
        for k, width in enumerate((70.0, 90.0, 140.0)):
            own = told[:, k]
            loud = loud * own**2 / np.sqrt((own**2 - hertz**2) ** 2 + (hertz * width) ** 2)
        sound += np.interp(at, np.arange(len(told)), loud) * np.sin(2 * np.pi * h * turns)
    return sound / 10


def rustle(told: NDArray[np.float64], breath: float, noise: np.random.Generator) -> NDArray[np.float64]:
    """What air does in a narrow place: noise, made in windows that overlap by half."""
    hertz = np.linspace(0, SAMPLING_RATE / 2, HOP + 1)
    band = np.exp(-(((hertz - told[:, 5:6]) / told[:, 6:7]) ** 2)) * told[:, 4:5]  # (T,HOP + 1)
    band += breath * told[:, 3:4] * np.exp(-(((hertz - 1800) / 1500) ** 2)) * 0.3
    drawn = noise.standard_normal((2, *band.shape))
    windows = np.fft.irfft(band * (drawn[0] + 1j * drawn[1]), 2 * HOP) * np.hanning(2 * HOP)  # (T,2 HOP)
    sound = np.zeros((len(told) + 1) * HOP)
    sound[:-HOP] += windows[:, :HOP].ravel()
    sound[HOP:] += windows[:, HOP:].ravel()
    return sound[: len(told) * HOP] * 3
