"""Who attends to whom: the weights of every head on one text, and the numbers behind them.

w_ts = softmax_s(q_t·k_s / √E)          Vaswani et al. 2017, eq. 1
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import Any

import numpy as np

from regard.parts.attention import repeated
from regard.view.page import blob
from regard.view.trace import BLIND, Inside
from regard.view.word_attention import Floats, Start, sharpest, start_of
from regard.view.word_pieces import Line

ROOM = 1_000_000  # bytes of queries, keys, values and weights that a page may hold

# Where each kind of attention stands in a model; the first that there is opens the page.
HOMES = {
    "cross": r"body\.(decoder\.\d+\.)?cross\.inner",
    "self": r"body\.blocks\.\d+\.mixer\.inner",
    "encoder": r"body\.encoder\.\d+\.mixer\.inner",
    "decoder": r"body\.decoder\.\d+\.mixer\.inner",
    "pooling": r"head\.pooling",
}
SAYS = {
    "cross": "A row is the token that the decoder writes, a column one of the source: where it looks while it writes.",
    "self": "A row is the token that asks, a column the one that answers.",
    "encoder": "The source reads itself: a row is the token that asks, a column the one that answers.",
    "decoder": "The target reads itself: a row is the token that asks, a column the one that answers.",
    "pooling": "What the one vector of the whole text is made of.",
}
CAUSAL, WRITES = (
    " It sees nothing that comes after it.",
    " A row is named after the token it was given: it writes the next.",
)


@dataclass(frozen=True)
class Map:
    name: str
    says: str
    asks: Line
    answers: Line
    homes: list[str]  # the modules, layer by layer
    weights: Floats  # (L,H,T,S)
    start: Start
    found: str | None  # the start in words


def maps(inside: Inside, word: str | None = None) -> list[Map]:
    """All attention of a run. Each map starts with the head that looks most from `word` to one other."""
    given = inside.given
    whole = Line(["the whole"], [0], ["the whole"])
    sides = {"self": (given, given), "decoder": (given, given), "pooling": (whole, given)}
    if inside.source and inside.wanted:
        sides |= {"cross": (inside.wanted, inside.source), "encoder": (inside.source, inside.source)}
    found = {name: map_of(inside, name, *sides[name], word) for name in HOMES if name in sides}
    there = [one for one in found.values() if one]
    if not there:
        raise ValueError(BLIND)
    known = dict.fromkeys(name for one in there for name in one.asks.words)
    if word and word.casefold() not in (name.casefold() for name in known):
        raise ValueError(f'no word "{word}" asks in this text: there are {", ".join(known)}')
    return there


def map_of(inside: Inside, name: str, asks: Line, answers: Line, word: str | None) -> Map | None:
    homes = [path.removesuffix(".weights") for path in inside.seen if re.fullmatch(HOMES[name] + r"\.weights", path)]
    layers = [inside.seen[f"{home}.weights"].float().cpu() for home in homes]
    # What was pooled before it comes to the head leaves nothing to choose from.
    if not layers or layers[0].size(-1) != len(answers.pieces):
        return None
    weights = np.stack([layer.flatten(0, -3).numpy() for layer in layers])  # (L,H,T,S)
    start, found = start_of(weights, asks, answers, word, sharpest(weights) if name == "cross" else None)
    causal = getattr(inside.model.get_submodule(homes[0]), "causal", False)
    says = SAYS[name] + CAUSAL * causal + WRITES * bool(causal and inside.wanted)
    return Map(name, says, asks, answers, homes, weights, start, found)


def attention_tab(found: list[Map], inside: Inside) -> dict[str, Any]:
    return {
        "kind": "attention",
        "title": "Attention",
        "says": "Every word asks all words, and hears a mixture of their answers. Choose a word to see whom it listens "
        "to. Each small square below is one head: look for lines beside the diagonal, for columns that all look at, "
        "and for single words that find each other.",
        "maps": [as_told(one, inside, ROOM // len(found)) for one in found],
    }


def as_told(one: Map, inside: Inside, room: int) -> dict[str, Any]:
    """A map as the page takes it."""
    L, H = one.weights.shape[:2]
    return {
        "name": one.name,
        "says": one.says,
        "asks": one.asks.pieces,
        "answers": one.answers.pieces,
        "askWords": one.asks.places,
        "answerWords": one.answers.places,
        "layers": L,
        "heads": H,
        "weights": blob(np.rint(255 * one.weights).astype(np.uint8)),
        "opened": [opened(one, inside, layer, head) for layer, head in to_open(one, inside, room)],
        "start": one.start._asdict(),
        "found": one.found,
    }


def to_open(one: Map, inside: Inside, room: int) -> list[tuple[int, int]]:
    """Heads of which all numbers are told: as many as there is room for, first that of the start and its layer."""
    queries = inside.seen.get(f"{one.homes[0]}.queries")
    if queries is None:
        return []
    T, S = one.weights.shape[2:]
    size = 4 * (T * S + (T + 2 * S) * queries.size(-1))
    heads = [(layer, head) for layer in range(one.weights.shape[0]) for head in range(one.weights.shape[1])]
    heads.sort(key=lambda at: (at != one.start[:2], at[0] != one.start.layer, at))
    return sorted(heads[: max(1, room // size)])


def opened(one: Map, inside: Inside, layer: int, head: int) -> dict[str, Any]:
    """All that a head works with. Several heads may share a key and a value."""
    home, H = one.homes[layer], one.weights.shape[1]
    q, k, v = (repeated(inside.seen[f"{home}.{name}"], H)[0, head] for name in ("queries", "keys", "values"))
    T, S, E = q.size(0), k.size(0), q.size(1)
    module: Any = inside.model.get_submodule(home)
    bias, mask = getattr(module, "score_bias", None), inside.seen.get(f"{home}.mask")
    return {
        "layer": layer,
        "head": head,
        "weights": blob(one.weights[layer, head]),
        "queries": blob(q.float().cpu().numpy()),
        "keys": blob(k.float().cpu().numpy()),
        "values": blob(v.float().cpu().numpy()),
        "size": E,
        "scale": 1 / math.sqrt(E),
        "mask": None if mask is None else blob(mask.expand(1, 1, T, S)[0, 0].cpu().numpy()),
        "bias": None if bias is None else blob(bias(T, S)[0, head].float().cpu().numpy()),
    }


def steps_tab(attention: dict[str, Any]) -> dict[str, Any] | None:
    """Of a model with a head of which all numbers are told."""
    if not any(one["opened"] for one in attention["maps"]):
        return None
    return {
        "kind": "steps",
        "title": "Step by step",
        "says": "One head, from the products of queries and keys to the weighted values, in the model's own numbers. "
        "Point at a number to see how it came about.",
    }
