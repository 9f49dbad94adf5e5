"""The phrasebook: English sentences with their German, made by a small grammar, as many as are wanted.

Every English sentence has exactly one German one, so a model that has learnt the grammar makes no mistake.
"""

import random
from collections.abc import Iterable, Iterator
from hashlib import blake2b
from typing import NamedTuple

from regard.data.bundled.german.clauses import SentencePair
from regard.data.bundled.german.sentence_kinds import MAKERS, TEA_AND_WATER
from regard.data.bundled.german.speaker import Speaker
from regard.data.bundled.german.word_forms import Words

KINDS: tuple[str, ...] = tuple(MAKERS)
LONGEST = 14  # words and punctuation marks of a sentence
PATIENCE = 20_000  # draws without a new sentence, after which the grammar counts as exhausted


class Phrase(NamedTuple):
    english: str
    german: str
    english_tags: tuple[tuple[str, str], ...]  # word or punctuation mark, universal part of speech
    german_tags: tuple[tuple[str, str], ...]
    kind: str  # one of KINDS


def phrases(count: int = 60_000, seed: int = 0) -> list[Phrase]:
    """`count` different phrases, the same for the same seed. What `split` holds out has only words seen in training."""
    return collect(sentences(random.Random(seed)), count)


def split(phrase: Phrase) -> str:
    """'train', 'valid' or 'test', decided by the English sentence alone."""
    share = int.from_bytes(blake2b(phrase.english.encode(), digest_size=4).digest(), "big") % 100
    return "valid" if share < 2 else "test" if share < 4 else "train"


def join(words: Iterable[tuple[str, str]]) -> str:
    """A sentence from its words: a punctuation mark leans on the word before it."""
    return "".join([word if tag == "PUNCT" else " " + word for word, tag in words])[1:]


def phrase(kind: str, said: SentencePair) -> Phrase:
    english, german = finished(said.english, said.stop), finished(said.german, said.stop)
    return Phrase(join(english), join(german), english, german, kind)


def finished(words: Words, stop: str) -> Words:
    (first, tag), *others = words
    return ((first[0].upper() + first[1:], tag), *others, *(((stop, "PUNCT"),) if stop else ()))


def sentences(rng: random.Random) -> Iterator[Phrase]:
    """Phrases without end, some more than once; the first is the one that everybody tries."""
    yield phrase("request", TEA_AND_WATER)
    speaker = Speaker(rng)
    makers = [(kind, make) for kind, (make, share) in MAKERS.items() for _ in range(share)]
    while True:
        kind, make = speaker.pick(makers)
        speaker.used.clear()
        drawn = phrase(kind, make(speaker))
        if max(len(drawn.english_tags), len(drawn.german_tags)) <= LONGEST:
            yield drawn


def collect(stream: Iterable[Phrase], count: int) -> list[Phrase]:
    """The first `count` different phrases of a stream; one held out must not bring words of its own."""
    found: dict[str, Phrase] = {}
    english_known: set[tuple[str, str]] = set()
    german_known: set[tuple[str, str]] = set()
    idle = 0
    for drawn in stream:
        if len(found) >= count or idle > PATIENCE:
            break
        idle += 1
        if drawn.english in found:
            continue
        if split(drawn) == "train":
            english_known.update(drawn.english_tags)
            german_known.update(drawn.german_tags)
        elif not (english_known.issuperset(drawn.english_tags) and german_known.issuperset(drawn.german_tags)):
            continue
        found[drawn.english] = drawn
        idle = 0
    if len(found) < count:
        raise ValueError(f"{count:,} different phrases were asked for, but the grammar makes only {len(found):,}")
    return list(found.values())
