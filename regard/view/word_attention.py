"""Attention between words, and which head a map opens with.

    word_attention(a, b) = mean over the tokens t of a of Σ w_ts over the tokens s of b

so that the weights of a word still sum to 1, over all words and special tokens.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from regard.view.word_pieces import TokenizedText

Floats = npt.NDArray[np.float32]
Matrix = npt.NDArray[np.float64]
# Without --word a map opens with a pronoun, if there is one: its attention to its antecedent is the classic example.
# English and German, the languages of the data that ships; in any other language all words are candidates.
PRONOUNS = ("it", "er", "sie", "es")


class InitialView(NamedTuple):
    """What a map opens with: a head, and the position of a query token."""

    layer: int
    head: int
    query: int


def attention_between_words(weights: Floats, queries: TokenizedText, keys: TokenizedText) -> Floats:
    """(...,T,S) -> (...,query words,key words)"""
    rows, columns = word_matrix(queries), word_matrix(keys)
    return rows / rows.sum(1, keepdims=True) @ weights @ columns.T


def word_matrix(text: TokenizedText) -> Floats:
    """(words, tokens), 1 where a token belongs to a word."""
    return (np.array(text.word_ids) == np.arange(len(text.words))[:, None]).astype(np.float32)


def sharpest_layer(weights: Floats | Matrix) -> int:
    """The layer whose mean attention over heads has the lowest entropy."""
    mean = weights.mean(1)  # (L,T,S)
    return int((-(mean * np.log(mean + 1e-12)).sum(-1).mean(-1)).argmin())


def choose_initial_view(
    weights: Floats, queries: TokenizedText, keys: TokenizedText, word: str | None, layer: int | None = None
) -> tuple[InitialView, str | None]:
    """The head, of all layers or of one, with the most distinctive attention of a word; and a sentence about it."""
    attention = attention_between_words(weights, queries, keys)  # (L,H,query words,key words)
    letters = np.array([is_word(name) for name in keys.words], bool)
    scores = (
        distinctive_attention(attention, queries.words, letters)
        if queries is keys
        else np.where(letters, attention, -1)
    )
    rows = query_rows(queries.words, word, PRONOUNS if queries is keys else ())
    candidates = np.full_like(scores, -1)
    selection = np.ix_([layer] if layer is not None else range(len(scores)), range(scores.shape[1]), rows)
    candidates[selection] = scores[selection]
    if candidates.max(initial=-1) == -1:
        return InitialView(layer or 0, 0, queries.word_ids.index(rows[0]) if rows else 0), None
    layer, head, query, key = (int(i) for i in np.unravel_index(candidates.argmax(), candidates.shape))
    tokens = [i for i, word_id in enumerate(queries.word_ids) if word_id == query]
    columns = [i for i, word_id in enumerate(keys.word_ids) if word_id == key]
    best = max(tokens, key=lambda token: weights[layer, head, token, columns].sum())
    percent = 100 * attention[layer, head, query, key]
    sentence = (
        f'layer {layer + 1}, head {head + 1}: from "{queries.words[query]}", '
        f'{percent:.0f} % of the attention goes to "{keys.words[key]}"'
    )
    if queries is keys:
        sentence += strongest_head_note(attention[:, :, query, key], layer, head)
    return InitialView(layer, head, best), sentence


def strongest_head_note(weights: Floats, layer: int, head: int) -> str:
    """The head with the most weight between two words, if its attention is less distinctive than the chosen one's."""
    strongest = np.unravel_index(weights.argmax(), weights.shape)
    if weights[strongest] <= weights[layer, head]:
        return ""
    return (
        f" (most of all heads: layer {strongest[0] + 1}, head {strongest[1] + 1} with "
        f"{100 * weights[strongest]:.0f} %, for other words too)"
    )


def distinctive_attention(attention: Floats, words: list[str], letters: npt.NDArray[np.bool_]) -> Floats:
    """The weight of a word on another, minus the mean weight of all other words there; -1 for excluded pairs.

    Every model has heads that attend to a neighbour, or to one position for every query. Therefore neighbours count
    only where nothing else is visible. A pronoun refers to an earlier word, and to no punctuation.
    """
    position = np.arange(len(words))
    distance = position[:, None] - position  # (words,words)
    attention = attention * (distance != 0)
    other_queries = np.maximum(1, (attention > 0).sum(-2, keepdims=True) - 1)
    others = (attention.sum(-2, keepdims=True) - attention) / other_queries
    visible = (attention > 0).any((0, 1)) & letters
    far = visible & (abs(distance) > 1)
    pronouns = [i for i, name in enumerate(words) if name.casefold() in PRONOUNS]
    far[pronouns] &= distance[pronouns] > 0
    far |= visible & ~far.any(1, keepdims=True)
    return np.where(far, attention - others, -1).astype(np.float32)


def query_rows(words: list[str], word: str | None, fallback: tuple[str, ...]) -> list[int]:
    """Positions of the word, or else of the fallback words, or else of all words that have letters."""
    lowercase = [name.casefold() for name in words]
    for candidates in ((word.casefold(),) if word else (), fallback):
        if matches := [i for i, name in enumerate(lowercase) if name in candidates]:
            return matches
    return [i for i, name in enumerate(words) if is_word(name)]


def is_word(text: str) -> bool:
    return any(char.isalnum() for char in text)
