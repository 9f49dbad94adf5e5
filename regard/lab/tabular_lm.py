"""Language models as tables of joint probabilities, in which the most probable text is known.

    P(text) = Π P(word | prefix)          P(word | prefix) = Σ P(texts with both) / Σ P(texts with this prefix)

A language of texts of three words out of V is a table (V,V,V); several of them are (B,V,V,V).
"""

from __future__ import annotations

import torch
from torch import Tensor

from regard.generate import GenerationOptions, Step, generate
from regard.parts.cache import Cache
from regard.view.beam_tree import BeamTree, beam_tree

MIN_PROB = 1e-30  # probability of impossible words: a row of zeros has no softmax


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
