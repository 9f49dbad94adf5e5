"""ModernBERT."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from regard.hub.family_map import FamilyMap, Fields, Head, ValueMap, joined, must_say
from regard.hub.tables.shared_entries import (
    ACTIVATION_WORDS,
    DOWN,
    FEEDFORWARD_NORM,
    GATE,
    KEY,
    LINEAR,
    MIXER_NORM,
    OUT,
    QUERY,
    STACK,
    TEXT,
    UP,
    VALUE,
    labels,
)
from regard.parts.heads import Classifier, MaskedOutput, PerToken, SpanScores
from regard.parts.pooling import First, Mean

FULL, SLIDING = "full_attention", "sliding_attention"
BASES = {FULL: ("global_rope_theta", 160_000.0), SLIDING: ("local_rope_theta", 10_000.0)}


def kinds(layers: int, every: int) -> list[str]:
    return [SLIDING if i % every else FULL for i in range(layers)]


def every(config: Fields) -> Any:
    """They once said it in a number, and today in a word for each layer."""
    said = config.get("layer_types")
    if said is None:
        return config.get("global_attn_every_n_layers", 3)
    for period in range(1, len(said) + 1):
        if list(said) == kinds(len(said), period):
            return period
    raise ValueError(f"config.json: layer_types is {said!r}, but only the first of every few may be {FULL!r}")


def base(kind: str) -> Any:
    older, usual = BASES[kind]

    def read(config: Fields) -> Any:
        said = (config.get("rope_parameters") or {}).get(kind) or {}
        if not isinstance(said, Mapping):
            raise ValueError(f"config.json: rope_parameters.{kind} is {said!r}, but must be an object")
        must_say(f"rope_parameters.{kind}.rope_type", said.get("rope_type", "default"), "default")
        return said.get("rope_theta", config.get(older, usual))

    return read


def window(config: Fields) -> Any:
    said = config.get("local_attention", 128)
    return said // 2 if isinstance(said, int) else said


def turns(c: Fields) -> dict[str, Any]:
    return {
        FULL: {"rope_type": "default", "rope_theta": c["base"]},
        SLIDING: {"rope_type": "default", "rope_theta": c["near_base"]},
    }


def pooled(word: str) -> Any:
    return lambda head: {**labels(head), "classifier_pooling": word}


_THOUGHT = {"head.dense.weight": "head.thought.inner.weight", "head.norm.weight": "head.thought.norm.weight"}
_ANSWER = _THOUGHT | LINEAR
MODERNBERT = FamilyMap(
    family="modernbert",
    architecture="ModernBertModel",
    model="modernbert",
    sizes=TEXT
    | STACK
    | {
        "hidden_activation": ValueMap("activation", ACTIVATION_WORDS),
        "norm_eps": "eps",
        "embedding_dropout": "dropout",
    },
    theirs={
        "norm_bias": False,
        "attention_bias": False,
        "mlp_bias": False,
        "decoder_bias": True,
        "classifier_bias": False,
        "classifier_activation": "gelu",
        "tie_word_embeddings": True,
    },
    reads={"every": every, "window": window, "base": base(FULL), "near_base": base(SLIDING)},
    written={
        "layer_types": lambda c: kinds(c["layers"], c["every"]),
        "local_attention": lambda c: 2 * c["window"],
        "rope_parameters": turns,
        "attention_dropout": 0.0,
        "mlp_dropout": 0.0,
        "bos_token_id": None,
        "eos_token_id": None,
        "cls_token_id": None,
        "sep_token_id": None,
    },
    absent={"hidden_activation": "gelu", "norm_eps": 1e-5, "embedding_dropout": 0.0},
    weights={
        "embeddings.tok_embeddings.weight": "body.tokens.weight",
        "embeddings.norm.weight": "body.embed_norm.weight",
        "layers.{}.attn_norm.weight": f"{MIXER_NORM}.weight",
        "layers.{}.attn.Wqkv.weight": joined(f"{QUERY}.weight", f"{KEY}.weight", f"{VALUE}.weight"),
        "layers.{}.attn.Wo.weight": f"{OUT}.weight",
        "layers.{}.mlp_norm.weight": f"{FEEDFORWARD_NORM}.weight",
        "layers.{}.mlp.Wi.weight": joined(f"{GATE}.weight", f"{UP}.weight"),
        "layers.{}.mlp.Wo.weight": f"{DOWN}.weight",
        "final_norm.weight": "body.norm.weight",
    },
    prefix="model.",
    heads={
        (MaskedOutput,): Head("ModernBertForMaskedLM", _THOUGHT | {"decoder.bias": "head.bias"}),
        (Classifier, Mean): Head("ModernBertForSequenceClassification", _ANSWER, pooled("mean")),
        (Classifier, First): Head("ModernBertForSequenceClassification", _ANSWER, pooled("cls")),
        (PerToken,): Head("ModernBertForTokenClassification", _ANSWER, labels),
        (SpanScores,): Head("ModernBertForQuestionAnswering", _ANSWER, labels),
    },
    twins={"decoder.weight": "embeddings.tok_embeddings.weight"},
)
