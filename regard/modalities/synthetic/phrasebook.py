"""Generates English sentences with their German translations, from a small grammar.

Each English sentence has exactly one translation, so a model that has learnt the grammar makes no error.
"""

import random
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from regard.modalities.synthetic.distinct import MAX_REPEATS, split_by_hash
from regard.modalities.synthetic.german.clauses import SentencePair
from regard.modalities.synthetic.german.sentence_kinds import SENTENCE_KINDS, TEA_AND_WATER
from regard.modalities.synthetic.german.speaker import Speaker
from regard.modalities.synthetic.german.word_forms import Words

KINDS: tuple[str, ...] = tuple(SENTENCE_KINDS)
MAX_WORDS = 14  # most words and punctuation marks of a sentence


class Phrase(NamedTuple):
    english: str
    german: str
    english_tags: tuple[tuple[str, str], ...]  # (word or punctuation mark, universal part-of-speech tag)
    german_tags: tuple[tuple[str, str], ...]
    kind: str  # one of KINDS


def phrases(count: int = 60_000, seed: int = 0) -> list[Phrase]:
    """`count` different phrases; the same seed gives the same phrases. Valid and test sets have only training words."""
    return collect_distinct(draw_phrases(random.Random(seed)), count)


def split(phrase: Phrase) -> str:
    """'train', 'valid' or 'test', by a hash of the English sentence."""
    return split_by_hash(phrase.english, 2)


def join_words(words: Iterable[tuple[str, str]]) -> str:
    """A sentence from its words, without a space before punctuation."""
    return "".join([word if tag == "PUNCT" else " " + word for word, tag in words])[1:]


def make_phrase(kind: str, pair: SentencePair) -> Phrase:
    english, german = finish(pair.english, pair.stop), finish(pair.german, pair.stop)
    return Phrase(join_words(english), join_words(german), english, german, kind)


def finish(words: Words, stop: str) -> Words:
    (first, tag), *rest = words
    return ((first[0].upper() + first[1:], tag), *rest, *(((stop, "PUNCT"),) if stop else ()))


def draw_phrases(rng: random.Random) -> Iterator[Phrase]:
    """An endless stream of phrases with repetitions; "Tea and water please" comes first."""
    yield make_phrase("request", TEA_AND_WATER)
    speaker = Speaker(rng)
    makers = [(kind, make) for kind, (make, share) in SENTENCE_KINDS.items() for _ in range(share)]
    while True:
        kind, make = speaker.pick(makers)
        speaker.used.clear()
        phrase = make_phrase(kind, make(speaker))
        if max(len(phrase.english_tags), len(phrase.german_tags)) <= MAX_WORDS:
            yield phrase


def collect_distinct(stream: Iterable[Phrase], count: int) -> list[Phrase]:
    """The first `count` different phrases; valid and test phrases must have only words of the training set."""
    distinct: dict[str, Phrase] = {}
    english: set[tuple[str, str]] = set()  # words of the training set
    german: set[tuple[str, str]] = set()
    repeats = 0
    for phrase in stream:
        if len(distinct) >= count or repeats > MAX_REPEATS:
            break
        repeats += 1
        if phrase.english in distinct:
            continue
        if split(phrase) == "train":
            english.update(phrase.english_tags)
            german.update(phrase.german_tags)
        elif not (english.issuperset(phrase.english_tags) and german.issuperset(phrase.german_tags)):
            continue
        distinct[phrase.english] = phrase
        repeats = 0
    if len(distinct) < count:
        raise ValueError(f"{count:,} different phrases were requested, but the grammar has only {len(distinct):,}")
    return list(distinct.values())
