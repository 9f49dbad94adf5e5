"""Synthetic data of the experiments, with known answers; every batch is sampled anew, so that no model memorises it.

    recall: a name, filler words, a question         "Ann  la la la … la  who?" → Ann
    reversal of a sentence                           "a b c" → "c b a"
    digits that follow a rule                        x_t = x_{t-2} + 2 x_{t-1}  mod 5
    a toy language with dependencies between words   [adjective] subject verb like a(n) [adjective] image
                                                     [adjective] subject verb over a(n) [adjective] place
    languages as tables of joint probabilities       P(text) = Π P(word | prefix)

In the toy language a verb depends on its subject, an article on the word after it, "like" or "over" on the noun, and an
image on the subject: only time is like an arrow. A language of texts of three words out of V is a table (V,V,V), and
several of them are (B,V,V,V).
"""

from __future__ import annotations

import math
from itertools import product

import torch
from torch import Tensor

from regard.generate import Step, generate
from regard.generation_config import GenerationOptions
from regard.parts.cache import Cache
from regard.view.beam_tree import BeamTree, beam_tree

DIGITS, NOISE = 5, 0.2  # number of digits, and the share that is random
P_RULE = 1 - NOISE + NOISE / DIGITS  # probability of the digit that follows the rule
P_OTHER = NOISE / DIGITS  # probability of another digit
UNIFORM_LOSS = math.log(DIGITS)  # nats, of a uniform prediction
ENTROPY = -P_RULE * math.log(P_RULE) - (DIGITS - 1) * P_OTHER * math.log(P_OTHER)  # nats, the lowest possible loss
MIN_PROB = 1e-30  # probability of impossible words: a row of zeros has no softmax
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


def recall_batch(count: int, distance: int, names: int) -> tuple[Tensor, Tensor]:
    """(B,T) tokens and the names to recall, (B,). Vocabulary: names, then filler words, then "who?"."""
    name = torch.randint(names, (count, 1))
    filler = torch.randint(names, 2 * names, (count, distance))
    return torch.cat((name, filler, torch.full_like(name, 2 * names)), 1), name[:, 0]


def reversal_batch(count: int, length: int, words: int) -> tuple[Tensor, Tensor, Tensor]:
    """Source (B,S), decoder input (B,T) and target: the words reversed, then an end token."""
    source = torch.rand(count, words).argsort(1)[:, :length]
    end, start = (torch.full((count, 1), words + i) for i in (0, 1))
    return source, torch.cat((start, source.flip(1)), 1), torch.cat((source.flip(1), end), 1)


def digit_sequences(count: int, length: int) -> Tensor:
    """(B,T): the next digit depends on the two before and on their order."""
    ids = torch.randint(DIGITS, (count, length))
    follows = torch.rand(count, length) >= NOISE
    for t in range(2, length):
        ids[:, t] = torch.where(follows[:, t], (ids[:, t - 2] + 2 * ids[:, t - 1]) % DIGITS, ids[:, t])
    return ids


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


def random_languages(count: int, words: int, length: int, sharpness: float, seed: int) -> Tensor:
    """(B,V,...,V): random languages, of texts of one length. `sharpness`: standard deviation of the logits."""
    generator = torch.Generator().manual_seed(seed)
    joint = torch.ones(count)
    for _ in range(length):
        logits = torch.randn(*joint.shape, words, generator=generator) * sharpness
        joint = joint[..., None] * logits.softmax(-1)
    return joint


def language_from_texts(texts: dict[str, float]) -> tuple[list[str], Tensor]:
    """The vocabulary of one language, and (1,V,V,V) the probability of each text of three words."""
    words = sorted({word for text in texts for word in text.split()})
    joint = torch.zeros(1, *[len(words)] * 3)
    for text, probability in texts.items():
        joint[(0, *map(words.index, text.split()))] = probability
    return words, joint


def search(joint: Tensor, width: int) -> tuple[list[list[int]], Tensor]:
    """The text that beam search of this width returns for each language, and (B,) its joint probability."""
    rows, limits = torch.arange(len(joint)), torch.full((len(joint),), joint.dim() - 1)
    hypotheses = generate(
        next_token_step(joint),
        empty_caches(joint),
        rows,
        joint.size(-1),
        limits,
        options=decoding_options(width),
        numbers=rows,
    )
    texts = [best.ids for best, *_ in hypotheses]
    return texts, torch.stack([language[tuple(ids)] for language, ids in zip(joint, texts, strict=True)])


def search_tree(joint: Tensor, width: int) -> BeamTree:
    length = joint.dim() - 1
    return beam_tree(
        next_token_step(joint),
        empty_caches(joint),
        torch.zeros(1).long(),
        joint.size(-1),
        length,
        decoding_options(width),
    )


def decoding_options(width: int) -> GenerationOptions:
    return GenerationOptions(num_beams=width, length_penalty=0.0)  # rank by joint probability alone


def empty_caches(joint: Tensor) -> list[Cache]:
    """State of each text: the row of its language, and its words so far."""
    return [Cache(state=(torch.arange(len(joint)), torch.zeros(len(joint), 0, dtype=torch.long)))]


def next_token_step(joint: Tensor) -> Step:
    """Logits of the next word: the sum over all texts with this prefix; after the last word comes the end token V."""
    V, length = joint.size(-1), joint.dim() - 1

    def step(ids: Tensor, caches: list[Cache]) -> Tensor:
        (cache,) = caches
        assert cache.state is not None
        rows, texts = cache.state
        if cache.length:  # a finished beam is scored too, and ignored: any word will do
            texts = torch.cat((texts, ids.clamp(max=V - 1)), 1)  # (rows,t)
        cache.advance((rows, texts), 1)
        logits = torch.full((len(rows), V + 1), -torch.inf)
        if texts.size(1) == length:
            logits[:, V] = 0.0
        else:
            logits[:, :V] = joint[(rows, *texts.T)].reshape(len(rows), V, -1).sum(-1).clamp(min=MIN_PROB).log()
        return logits

    return step
