"""Attention maps: the weights of every head on one text, with the queries, keys and values of some heads.

w_ts = softmax_s(q_t·k_s / √E)          Vaswani et al. 2017, eq. 1
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

import numpy as np

from regard.parts.attention import repeat_kv
from regard.view.page import Tab, blob
from regard.view.trace import NO_ATTENTION, Trace
from regard.view.word_attention import Floats, InitialView, choose_initial_view, sharpest_layer
from regard.view.word_pieces import TokenizedText

BYTE_BUDGET = 1_000_000  # bytes of queries, keys, values and weights on a page

# Module paths of each kind of attention; the page opens with the first kind that the model has.
MODULES = {
    "cross": r"body\.(decoder\.\d+\.)?cross\.inner",
    "self": r"body\.blocks\.\d+\.mixer\.inner",
    "encoder": r"body\.encoder\.\d+\.mixer\.inner",
    "decoder": r"body\.decoder\.\d+\.mixer\.inner",
    "pooling": r"head\.pooling",
}
DESCRIPTIONS = {
    "cross": "Cross-attention: a row is a target token (query), a column a source token (key).",
    "self": "A row is a query token, a column a key token.",
    "encoder": "Self-attention of the encoder: a row is a query token, a column a key token.",
    "decoder": "Self-attention of the decoder: a row is a query token, a column a key token.",
    "pooling": "The weight of each token in the one vector that represents the text.",
}
CAUSAL = " Causal: a token attends to itself and to earlier tokens only."
NEXT_TOKEN = " A row is named after its input token; it predicts the next one."


@dataclass(frozen=True)
class AttentionMap:
    name: str
    description: str
    queries: TokenizedText
    keys: TokenizedText
    modules: list[str]  # one per layer
    weights: Floats  # (L,H,T,S)
    initial: InitialView
    highlight: str | None  # a sentence about the initial view


def attention_maps(trace: Trace, word: str | None = None) -> list[AttentionMap]:
    """All attention of a trace. Each map opens with the head that attends most from `word` to another word."""
    inputs = trace.inputs
    pooled = TokenizedText(["whole text"], [0], ["whole text"])
    sides = {"self": (inputs, inputs), "decoder": (inputs, inputs), "pooling": (pooled, inputs)}
    if trace.source and trace.targets:
        sides |= {"cross": (trace.targets, trace.source), "encoder": (trace.source, trace.source)}
    by_kind = {name: attention_map(trace, name, *sides[name], word) for name in MODULES if name in sides}
    maps = [attention for attention in by_kind.values() if attention]
    if not maps:
        raise ValueError(NO_ATTENTION)
    query_words = dict.fromkeys(name for attention in maps for name in attention.queries.words)
    if word and word.casefold() not in (name.casefold() for name in query_words):
        raise ValueError(f'no query word "{word}" in this text: choose from {", ".join(query_words)}')
    return maps


def attention_map(
    trace: Trace, name: str, queries: TokenizedText, keys: TokenizedText, word: str | None
) -> AttentionMap | None:
    modules = [
        path.removesuffix(".weights") for path in trace.activations if re.fullmatch(MODULES[name] + r"\.weights", path)
    ]
    layers = [trace.activations[f"{module}.weights"].float().cpu() for module in modules]
    # A body that pools before the head leaves the head one vector, and nothing to attend to.
    if not layers or layers[0].size(-1) != len(keys.tokens):
        return None
    weights = np.stack([layer.flatten(0, -3).numpy() for layer in layers])  # (L,H,T,S)
    initial, highlight = choose_initial_view(
        weights, queries, keys, word, sharpest_layer(weights) if name == "cross" else None
    )
    causal = getattr(trace.model.get_submodule(modules[0]), "causal", False)
    description = DESCRIPTIONS[name] + CAUSAL * causal + NEXT_TOKEN * bool(causal and trace.targets)
    return AttentionMap(name, description, queries, keys, modules, weights, initial, highlight)


def attention_tab(maps: list[AttentionMap], trace: Trace) -> Tab:
    return {
        "kind": "attention",
        "title": "Attention",
        "description": "Each query word attends to all key words and receives a weighted mean of their values. Choose "
        "a word to see its weights. Each small square below is one head: look for lines beside the diagonal, for "
        "columns that all words attend to, and for pairs of related words.",
        "maps": [map_data(attention, trace, BYTE_BUDGET // len(maps)) for attention in maps],
    }


def map_data(attention: AttentionMap, trace: Trace, byte_budget: int) -> Tab:
    L, H = attention.weights.shape[:2]
    return {
        "name": attention.name,
        "description": attention.description,
        "queryTokens": attention.queries.tokens,
        "keyTokens": attention.keys.tokens,
        "queryWordIds": attention.queries.word_ids,
        "keyWordIds": attention.keys.word_ids,
        "layers": L,
        "heads": H,
        "weights": blob(np.rint(255 * attention.weights).astype(np.uint8)),
        "exactHeads": [
            exact_head(attention, trace, *head) for head in choose_exact_heads(attention, trace, byte_budget)
        ],
        "initial": attention.initial._asdict(),
        "highlight": attention.highlight,
    }


def choose_exact_heads(attention: AttentionMap, trace: Trace, byte_budget: int) -> list[tuple[int, int]]:
    """(layer, head) of the heads stored in full: as many as fit, first the initial head, then those of its layer."""
    queries = trace.activations.get(f"{attention.modules[0]}.queries")
    if queries is None:
        return []
    T, S = attention.weights.shape[2:]
    size = 4 * (T * S + (T + 2 * S) * queries.size(-1))
    heads = [(layer, head) for layer in range(attention.weights.shape[0]) for head in range(attention.weights.shape[1])]
    heads.sort(key=lambda at: (at != attention.initial[:2], at[0] != attention.initial.layer, at))
    return sorted(heads[: max(1, byte_budget // size)])


def exact_head(attention: AttentionMap, trace: Trace, layer: int, head: int) -> Tab:
    """Every tensor of one head in float32. Several heads may share a key and a value (grouped-query attention)."""
    path, H = attention.modules[layer], attention.weights.shape[1]
    q, k, v = (repeat_kv(trace.activations[f"{path}.{name}"], H)[0, head] for name in ("queries", "keys", "values"))
    T, S, E = q.size(0), k.size(0), q.size(1)
    bias, mask = getattr(trace.model.get_submodule(path), "score_bias", None), trace.activations.get(f"{path}.mask")
    return {
        "layer": layer,
        "head": head,
        "weights": blob(attention.weights[layer, head]),
        "queries": blob(q.float().cpu().numpy()),
        "keys": blob(k.float().cpu().numpy()),
        "values": blob(v.float().cpu().numpy()),
        "size": E,
        "scale": 1 / math.sqrt(E),
        "mask": None if mask is None else blob(mask.expand(1, 1, T, S)[0, 0].cpu().numpy()),
        "bias": None if bias is None else blob(bias(T, S)[0, head].float().cpu().numpy()),
    }


def steps_tab(maps: list[AttentionMap], trace: Trace) -> Tab | None:
    """For a model with a head that is stored in full."""
    if not any(choose_exact_heads(attention, trace, BYTE_BUDGET) for attention in maps):
        return None
    return {
        "kind": "steps",
        "title": "Step by step",
        "description": "One head, from the dot products of queries and keys to the weighted values, in the model's own "
        "numbers. Point at a number to see its arithmetic.",
    }
