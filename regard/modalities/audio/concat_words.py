"""Concatenates recordings of single words to recordings of word sequences: clips of one speaker, with pauses between.

seven + pause + one + pause + one          ->          "seven one one"

So a folder of single words is enough to train speech recognition. The clips and the pauses follow from a seed. Training
and validation set share no clip, because the clips are split before they are concatenated.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator

import numpy as np

from regard.data.lines import BadRow, Note
from regard.data.rows import Row, train_valid_split
from regard.modalities.audio.audio_files import Audio, LabelledAudio, TranscribedAudio, audio_row
from regard.modalities.audio.audio_io import Samples

WORDS = (1, 7)  # least and most words of a sequence; a length n has probability ∝ 1/n, so all lengths share the words
PAUSE = (0.02, 0.3)  # seconds
PAUSE_NOISE = 12  # largest standard deviation of the noise in a pause, in int16 units
SEQUENCES_PER_CLIP = 2


def concat_words(
    clips: Iterable[LabelledAudio | BadRow | Note], count: int | None = None, seed: int = 0
) -> Iterator[TranscribedAudio | BadRow | Note]:
    """Yields `count` sequences, by default two per clip. Bad rows pass through."""
    items = list(clips)
    rows = [item for item in items if isinstance(item, Row)]
    yield from (item for item in items if not isinstance(item, Row))
    if rows:
        yield from draw_sequences(rows, SEQUENCES_PER_CLIP * len(rows) if count is None else count, seed)


def draw_sequences(rows: list[LabelledAudio], count: int, seed: int) -> Iterator[TranscribedAudio]:
    rng = random.Random(seed)
    speakers: dict[str, list[LabelledAudio]] = {}
    for row in rows:
        speakers.setdefault(row.input.speaker, []).append(row)
    lengths = range(WORDS[0], WORDS[1] + 1)
    for length in rng.choices(lengths, [1 / length for length in lengths], k=count):
        clips = speakers[rng.choice(rows).input.speaker]  # a speaker's share is that of the clips
        words = [rng.choice(clips) for _ in range(length)]
        parts: list[Samples] = []
        for clip in words:
            parts += [draw_pause(rng, clip.input.sampling_rate), clip.input.samples]
        text, first = " ".join(clip.target.names[0] for clip in words), words[0]
        rate = first.input.sampling_rate
        yield audio_row(Audio((*parts, draw_pause(rng, rate)), rate), text, first.file, first.line)


def draw_pause(rng: random.Random, sampling_rate: int) -> Samples:
    """White noise of random length and level."""
    noise, length = np.random.default_rng(rng.getrandbits(32)), int(rng.uniform(*PAUSE) * sampling_rate)
    return (noise.standard_normal(length) * rng.uniform(0, PAUSE_NOISE)).round().astype(np.int16)


def split_and_concat(
    clips: Iterable[LabelledAudio | BadRow | Note], share: Callable[[float], float]
) -> dict[str, Iterator[TranscribedAudio | BadRow | Note]]:
    """A training and a validation set of sequences, from disjoint sets of clips."""
    rows = list(clips)
    bad = [clip for clip in rows if not isinstance(clip, Row)]
    good = [clip for clip in rows if isinstance(clip, Row)]
    if bad and len(good) < 2:
        return {"train": concat_words(rows)}  # the bad rows will stop the run
    train, valid = train_valid_split(good, share(len(good)))
    return {"train": concat_words([*bad, *train]), "valid": concat_words(valid, seed=1)}
