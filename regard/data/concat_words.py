"""Single words become strings of words: clips of one speaker, one after the other, with pauses between them.

seven + pause + one + pause + one          ->          "seven one one"

So a folder of single words is enough to learn to write down a row of them. Which clips and which pauses follows from a
seed; no two sets may share a clip, so a folder is divided before anything is joined.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator

import numpy as np

from regard.data.audio_files import LabelledAudio, TranscribedAudio
from regard.data.audio_io import Samples
from regard.data.lines import Bad
from regard.data.text import hold_out

WORDS = (1, 7)  # in a string: short ones are more frequent, so that as many words are in strings of each length
PAUSE = (0.02, 0.3)  # seconds
HISS = 12  # the loudest that a pause may be, of 32768
STRINGS = 2  # for each clip


def concat_words(
    clips: Iterable[LabelledAudio | Bad], count: int | None = None, seed: int = 0
) -> Iterator[TranscribedAudio | Bad]:
    """`count` strings; two for each clip unless given. What cannot be used passes through."""
    rows: list[LabelledAudio] = []
    for clip in clips:
        if isinstance(clip, Bad):
            yield clip
        else:
            rows.append(clip)
    if rows:
        yield from strings(rows, STRINGS * len(rows) if count is None else count, seed)


def strings(rows: list[LabelledAudio], count: int, seed: int) -> Iterator[TranscribedAudio]:
    luck = random.Random(seed)
    speakers: dict[str, list[LabelledAudio]] = {}
    for row in rows:
        speakers.setdefault(row.speaker, []).append(row)
    lengths = range(WORDS[0], WORDS[1] + 1)
    for many in luck.choices(lengths, [1 / length for length in lengths], k=count):
        own = speakers[luck.choice(rows).speaker]  # who has said more is heard more often
        said = [luck.choice(own) for _ in range(many)]
        parts: list[Samples] = []
        for clip in said:
            parts += [pause(luck, clip.sampling_rate), clip.samples]
        text = " ".join(clip.labels[0] for clip in said)
        yield TranscribedAudio(
            (*parts, pause(luck, said[0].sampling_rate)), text, said[0].sampling_rate, said[0].file, said[0].line
        )


def pause(luck: random.Random, sampling_rate: int) -> Samples:
    """Never quite silent, as no room is."""
    noise = np.random.default_rng(luck.getrandbits(32))
    return (
        (noise.standard_normal(int(luck.uniform(*PAUSE) * sampling_rate)) * luck.uniform(0, HISS))
        .round()
        .astype(np.int16)
    )


def split_and_concat(
    clips: Iterable[LabelledAudio | Bad], share: Callable[[float], float]
) -> dict[str, Iterator[TranscribedAudio | Bad]]:
    """Strings to train on, and strings of held-out clips."""
    found = list(clips)
    bad = [clip for clip in found if isinstance(clip, Bad)]
    good = [clip for clip in found if isinstance(clip, LabelledAudio)]
    if bad and len(good) < 2:
        return {"train": concat_words(found)}  # which will be refused for what is bad
    kept, held = hold_out(good, share(len(good)))
    return {"train": concat_words([*bad, *kept]), "valid": concat_words(held, seed=1)}
