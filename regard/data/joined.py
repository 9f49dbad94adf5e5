"""Single words become strings of words: clips of one speaker, one after the other, with pauses between them.

seven + pause + one + pause + one          ->          "seven one one"

So a folder of single words is enough to learn to write down a row of them. Which clips and which pauses follows from a
seed; no two sets may share a clip, so a folder is divided before anything is joined.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator

import numpy as np

from regard.data.lines import BadRow
from regard.data.parallel_text import train_valid_split
from regard.data.recordings import Samples
from regard.data.sounds import Sound, Spoken

WORDS = (1, 7)  # in a string: short ones are more frequent, so that as many words are in strings of each length
PAUSE = (0.02, 0.3)  # seconds
HISS = 12  # the loudest that a pause may be, of 32768
STRINGS = 2  # for each clip


def join(clips: Iterable[Sound | BadRow], count: int | None = None, seed: int = 0) -> Iterator[Spoken | BadRow]:
    """`count` strings; two for each clip unless given. What cannot be used passes through."""
    rows: list[Sound] = []
    for clip in clips:
        if isinstance(clip, BadRow):
            yield clip
        else:
            rows.append(clip)
    if rows:
        yield from strings(rows, STRINGS * len(rows) if count is None else count, seed)


def strings(rows: list[Sound], count: int, seed: int) -> Iterator[Spoken]:
    luck = random.Random(seed)
    speakers: dict[str, list[Sound]] = {}
    for row in rows:
        speakers.setdefault(row.speaker, []).append(row)
    lengths = range(WORDS[0], WORDS[1] + 1)
    for many in luck.choices(lengths, [1 / length for length in lengths], k=count):
        own = speakers[luck.choice(rows).speaker]  # who has said more is heard more often
        said = [luck.choice(own) for _ in range(many)]
        parts: list[Samples] = []
        for clip in said:
            parts += [pause(luck, clip.rate), clip.samples]
        text = " ".join(clip.labels[0] for clip in said)
        yield Spoken((*parts, pause(luck, said[0].rate)), text, said[0].rate, said[0].file, said[0].line)


def pause(luck: random.Random, rate: int) -> Samples:
    """Never quite silent, as no room is."""
    noise = np.random.default_rng(luck.getrandbits(32))
    return (noise.standard_normal(int(luck.uniform(*PAUSE) * rate)) * luck.uniform(0, HISS)).round().astype(np.int16)


def divided(clips: Iterable[Sound | BadRow], share: Callable[[float], float]) -> dict[str, Iterator[Spoken | BadRow]]:
    """Strings to train on, and strings of held-out clips."""
    found = list(clips)
    bad = [clip for clip in found if isinstance(clip, BadRow)]
    good = [clip for clip in found if isinstance(clip, Sound)]
    if bad and len(good) < 2:
        return {"train": join(found)}  # which will be refused for what is bad
    kept, held = train_valid_split(good, share(len(good)))
    return {"train": join([*bad, *kept]), "valid": join(held, seed=1)}
