"""A toy language with dependencies between words, to study what attention heads learn.

    [adjective] subject verb like a(n) [adjective] image        [adjective] subject verb over a(n) [adjective] place

A verb depends on its subject, an article on the word after it, "like" or "over" on the noun, and an image on the
subject: only time is like an arrow.
"""

from __future__ import annotations

from itertools import product

import torch
from torch import Tensor

SENTENCE = ["time", "flies", "like", "an", "arrow"]
SUBJECTS = {
    "time": "arrow river", "hope": "anchor candle", "anger": "ember storm", "love": "apple rose",
    "years": "eagle wheel", "words": "axe seed", "tears": "ocean pearl", "stars": "eye lamp",
}  # fmt: skip
VERBS = "flies fly", "comes come", "falls fall", "grows grow"
PLACES = ["island", "abyss", "hill", "bridge"]
ADJECTIVES = ["old", "empty", "golden", "silent"]
CATEGORIES = {
    "subject": [*SUBJECTS], "verb": " ".join(VERBS).split(), "link": ["like", "over"], "article": ["a", "an"],
    "adjective": ADJECTIVES, "noun": [*" ".join(SUBJECTS.values()).split(), *PLACES],
}  # fmt: skip
WORDS = ["", "?", *(word for words in CATEGORIES.values() for word in words)]
PAD, MASK = 0, 1  # ids of the first two words


def category_masks(words: Tensor) -> Tensor:
    """(categories,N): whether each of N words belongs to a category."""
    return torch.tensor([[WORDS[i] in category for i in words.tolist()] for category in CATEGORIES.values()])


def all_sentences() -> Tensor:
    """(N,T) ids of every sentence, the lecture's example first."""
    sentences, adjectives = [], ["", *ADJECTIVES]
    for (subject, images), verbs, first, second in product(SUBJECTS.items(), VERBS, adjectives, adjectives):
        verb = verbs.split()[subject.endswith("s")]
        for link, noun in [*product(["like"], images.split()), *product(["over"], PLACES)]:
            article = "an" if f"{second}{noun}"[0] in "aeiou" else "a"
            sentences.append(f"{first} {subject} {verb} {link} {article} {second} {noun}".split())
    sentences.sort(key=lambda sentence: sentence != SENTENCE)
    return torch.tensor(
        [[WORDS.index(word) for word in sentence] + [PAD] * (7 - len(sentence)) for sentence in sentences]
    )
