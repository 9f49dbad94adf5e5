"""Languages so small that the probability of each text is written down, to search for the best of them.

    P(text) = Π P(word | beginning)          P(word | beginning) = Σ P(texts with both) / Σ P(texts with this beginning)

A language of texts of three words out of V is a table (V,V,V); several of them are (B,V,V,V).
"""

from __future__ import annotations

import torch
from torch import Tensor

from regard.generate import Decoding, Step, generate
from regard.parts.cache import Cache
from regard.view.beam_tree import BeamTree, beam_tree

NEVER = 1e-30  # the probability of what cannot follow: of a row of zeros no softmax can be taken


def languages(count: int, words: int, length: int, sharpness: float, seed: int) -> Tensor:
    """(B,V,...,V): random ones, of texts of one length. `sharpness` is the spread of a next word's logits."""
    made = torch.Generator().manual_seed(seed)
    joint = torch.ones(count)
    for _ in range(length):
        logits = torch.randn(*joint.shape, words, generator=made) * sharpness
        joint = joint[..., None] * logits.softmax(-1)
    return joint


def written_down(texts: dict[str, float]) -> tuple[list[str], Tensor]:
    """The words of one language, and (1,V,V,V) the probability of each text of three of them."""
    words = sorted({word for text in texts for word in text.split()})
    joint = torch.zeros(1, *[len(words)] * 3)
    for text, chance in texts.items():
        joint[(0, *map(words.index, text.split()))] = chance
    return words, joint


def search(joint: Tensor, width: int) -> tuple[list[list[int]], Tensor]:
    """What a beam of this width finds in each language, and (B,) its joint probability."""
    rows, limits = torch.arange(len(joint)), torch.full((len(joint),), joint.dim() - 1)
    answers = generate(
        next_words(joint), beginning(joint), rows, joint.size(-1), limits, how=searching(width), numbers=rows
    )
    texts = [best.ids for best, *_ in answers]
    return texts, torch.stack([language[tuple(ids)] for language, ids in zip(joint, texts, strict=True)])


def search_tree(joint: Tensor, width: int) -> BeamTree:
    """All that such a beam looks at in one language."""
    longest = joint.dim() - 1
    return beam_tree(
        next_words(joint), beginning(joint), torch.zeros(1).long(), joint.size(-1), longest, searching(width)
    )


def searching(width: int) -> Decoding:
    return Decoding(beam=width, length_penalty=0.0)  # ranked by the joint probability alone


def beginning(joint: Tensor) -> list[Cache]:
    """What is kept of each text: the row of its language, and its words so far."""
    return [Cache(state=(torch.arange(len(joint)), torch.zeros(len(joint), 0, dtype=torch.long)))]


def next_words(joint: Tensor) -> Step:
    """Tells the next word by adding up all texts that begin so; after the last word comes the end, V."""
    V, longest = joint.size(-1), joint.dim() - 1

    def step(ids: Tensor, caches: list[Cache]) -> Tensor:
        (memory,) = caches
        assert memory.state is not None
        rows, texts = memory.state
        if memory.length:  # a beam that ended is asked too, and not heard: any word will do
            texts = torch.cat((texts, ids.clamp(max=V - 1)), 1)  # (rows,t)
        memory.advance((rows, texts), 1)
        logits = torch.full((len(rows), V + 1), -torch.inf)
        if texts.size(1) == longest:
            logits[:, V] = 0.0
        else:
            logits[:, :V] = joint[(rows, *texts.T)].reshape(len(rows), V, -1).sum(-1).clamp(min=NEVER).log()
        return logits

    return step
