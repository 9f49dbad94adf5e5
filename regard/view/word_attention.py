"""How much one word attends to another, and which head finds the most for a word.

    between(a, b) = mean over the pieces t of a of Σ w_ts over the pieces s of b

so that the weights of a word still sum to 1, over all words and special tokens.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from regard.view.word_pieces import Line

Floats = npt.NDArray[np.float32]
PRONOUNS = ("it", "er", "sie", "es")


class Start(NamedTuple):
    """What a map opens with: a head, and the place of a token that asks."""

    layer: int
    head: int
    ask: int


def between_words(weights: Floats, asks: Line, answers: Line) -> Floats:
    """(...,T,S) -> (...,asking words,answering words)"""
    rows, columns = membership(asks), membership(answers)
    return rows / rows.sum(1, keepdims=True) @ weights @ columns.T


def membership(text: Line) -> Floats:
    """(words, pieces), 1 where a piece is of a word."""
    return (np.array(text.places) == np.arange(len(text.words))[:, None]).astype(np.float32)


def sharpest(weights: Floats) -> int:
    """The layer whose heads, taken together, leave the least doubt about where they look."""
    mean = weights.mean(1)  # (L,T,S)
    return int((-(mean * np.log(mean + 1e-12)).sum(-1).mean(-1)).argmin())


def start_of(
    weights: Floats, asks: Line, answers: Line, word: str | None, layer: int | None = None
) -> tuple[Start, str | None]:
    """The head that finds the most for a word, of all layers or of one; and the same in words, if it finds any."""
    between = between_words(weights, asks, answers)  # (L,H,asking words,answering words)
    letters = np.array([has_letters(name) for name in answers.words], bool)
    worth = telling(between, asks.words, letters) if asks is answers else np.where(letters, between, -1)
    rows = asking(asks.words, word, PRONOUNS if asks is answers else ())
    counts = np.full_like(worth, -1)
    here = np.ix_([layer] if layer is not None else range(len(worth)), range(worth.shape[1]), rows)
    counts[here] = worth[here]
    if counts.max(initial=-1) == -1:
        return Start(layer or 0, 0, asks.places.index(rows[0]) if rows else 0), None
    layer, head, ask, answer = (int(i) for i in np.unravel_index(counts.argmax(), counts.shape))
    pieces = [i for i, place in enumerate(asks.places) if place == ask]
    columns = [i for i, place in enumerate(answers.places) if place == answer]
    best = max(pieces, key=lambda piece: weights[layer, head, piece, columns].sum())
    weight = between[layer, head, ask, answer]
    told = f'layer {layer + 1}, head {head + 1} puts {weight:.2f} of "{asks.words[ask]}" on "{answers.words[answer]}"'
    if asks is answers:
        told += for_others_too(between[:, :, ask, answer], layer, head)
    return Start(layer, head, best), told


def for_others_too(weights: Floats, layer: int, head: int) -> str:
    """The head with the most weight of all between two words, if that is not the one that finds the most."""
    most = np.unravel_index(weights.argmax(), weights.shape)
    if weights[most] <= weights[layer, head]:
        return ""
    return (
        f" (most of all heads: layer {most[0] + 1}, head {most[1] + 1} with {weights[most]:.2f}, for other words too)"
    )


def telling(between: Floats, words: list[str], letters: npt.NDArray[np.bool_]) -> Floats:
    """What a word finds for itself: weight on another, less what others put there too; -1 where nothing counts.

    Every model has heads that look at a neighbour, or at one place whatever asks. So neighbours count only if there is
    nothing else. A pronoun stands for a word before it, and punctuation for none.
    """
    place = np.arange(len(words))
    back = place[:, None] - place  # (words,words)
    between = between * (back != 0)
    askers = np.maximum(1, (between > 0).sum(-2, keepdims=True) - 1)
    others = (between.sum(-2, keepdims=True) - between) / askers
    seen = (between > 0).any((0, 1)) & letters
    far = seen & (abs(back) > 1)
    stands = [i for i, name in enumerate(words) if name.casefold() in PRONOUNS]
    far[stands] &= back[stands] > 0
    far |= seen & ~far.any(1, keepdims=True)
    return np.where(far, between - others, -1).astype(np.float32)


def asking(words: list[str], word: str | None, others: tuple[str, ...]) -> list[int]:
    """The places of the word, or else of these others, or else of all that have letters."""
    small = [name.casefold() for name in words]
    for wanted in ((word.casefold(),) if word else (), others):
        if found := [i for i, name in enumerate(small) if name in wanted]:
            return found
    return [i for i, name in enumerate(words) if has_letters(name)]


def has_letters(word: str) -> bool:
    return any(sign.isalnum() for sign in word)
