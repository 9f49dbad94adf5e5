"""ModernBERT with its heads (Warner et al. 2024)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from regard.hub.family_map import FamilyMap, Fields, HeadMap, ValueMap, check_value, concat
from regard.hub.tables.shared_entries import (
    ACTIVATION_NAMES,
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
    head_label_keys,
)
from regard.parts.heads import Classifier, MaskedLMHead, SpanHead, TokenClassifier
from regard.parts.pooling import FirstPool, MeanPool

FULL, SLIDING = "full_attention", "sliding_attention"
THETA_KEYS = {  # the older key of each layer type, and its default
    FULL: ("global_rope_theta", 160_000.0),
    SLIDING: ("local_rope_theta", 10_000.0),
}


def layer_types(layers: int, every: int) -> list[str]:
    return [SLIDING if i % every else FULL for i in range(layers)]


def full_attention_period(config: Fields) -> Any:
    """Today layer_types names every layer's type; older folders give the period."""
    types = config.get("layer_types")
    if types is None:
        return config.get("global_attn_every_n_layers", 3)
    for period in range(1, len(types) + 1):
        if list(types) == layer_types(len(types), period):
            return period
    raise ValueError(f"config.json: layer_types is {types!r}, but only the first of every few may be {FULL!r}")


def rope_theta(layer_type: str) -> Any:
    """Reads the RoPE base frequency of a layer type."""
    older_key, default = THETA_KEYS[layer_type]

    def read(config: Fields) -> Any:
        rope = (config.get("rope_parameters") or {}).get(layer_type) or {}
        if not isinstance(rope, Mapping):
            raise ValueError(f"config.json: rope_parameters.{layer_type} is {rope!r}, but must be an object")
        check_value(f"rope_parameters.{layer_type}.rope_type", rope.get("rope_type", "default"), "default")
        return rope.get("rope_theta", config.get(older_key, default))

    return read


def one_sided_window(config: Fields) -> Any:
    """local_attention counts both sides."""
    both_sides = config.get("local_attention", 128)
    return both_sides // 2 if isinstance(both_sides, int) else both_sides


def rope_parameters(c: Fields) -> dict[str, Any]:
    return {
        FULL: {"rope_type": "default", "rope_theta": c["rope_theta"]},
        SLIDING: {"rope_type": "default", "rope_theta": c["local_rope_theta"]},
    }


def classifier_keys(pooling: str) -> Any:
    return lambda head: {**head_label_keys(head), "classifier_pooling": pooling}


_TRANSFORM = {"head.dense.weight": "head.transform.inner.weight", "head.norm.weight": "head.transform.norm.weight"}
_TRANSFORM_LINEAR = _TRANSFORM | LINEAR
MODERNBERT = FamilyMap(
    family="modernbert",
    architecture="ModernBertModel",
    model="modernbert",
    config_fields=TEXT
    | STACK
    | {
        "hidden_activation": ValueMap("activation", ACTIVATION_NAMES),
        "norm_eps": "norm_eps",
        "embedding_dropout": "dropout",
    },
    required={
        "norm_bias": False,
        "attention_bias": False,
        "mlp_bias": False,
        "decoder_bias": True,
        "classifier_bias": False,
        "classifier_activation": "gelu",
        "tie_word_embeddings": True,
    },
    derived_fields={
        "global_every": full_attention_period,
        "window": one_sided_window,
        "rope_theta": rope_theta(FULL),
        "local_rope_theta": rope_theta(SLIDING),
    },
    written_keys={
        "layer_types": lambda c: layer_types(c["layers"], c["global_every"]),
        "local_attention": lambda c: 2 * c["window"],
        "rope_parameters": rope_parameters,
        "attention_dropout": 0.0,
        "mlp_dropout": 0.0,
        "bos_token_id": None,
        "eos_token_id": None,
        "cls_token_id": None,
        "sep_token_id": None,
    },
    defaults={"hidden_activation": "gelu", "norm_eps": 1e-5, "embedding_dropout": 0.0},
    weights={
        "embeddings.tok_embeddings.weight": "body.tokens.weight",
        "embeddings.norm.weight": "body.embed_norm.weight",
        "layers.{}.attn_norm.weight": f"{MIXER_NORM}.weight",
        "layers.{}.attn.Wqkv.weight": concat(f"{QUERY}.weight", f"{KEY}.weight", f"{VALUE}.weight"),
        "layers.{}.attn.Wo.weight": f"{OUT}.weight",
        "layers.{}.mlp_norm.weight": f"{FEEDFORWARD_NORM}.weight",
        "layers.{}.mlp.Wi.weight": concat(f"{GATE}.weight", f"{UP}.weight"),
        "layers.{}.mlp.Wo.weight": f"{DOWN}.weight",
        "final_norm.weight": "body.norm.weight",
    },
    prefix="model.",
    heads={
        (MaskedLMHead,): HeadMap("ModernBertForMaskedLM", _TRANSFORM | {"decoder.bias": "head.bias"}),
        (Classifier, MeanPool): HeadMap(
            "ModernBertForSequenceClassification", _TRANSFORM_LINEAR, classifier_keys("mean")
        ),
        (Classifier, FirstPool): HeadMap(
            "ModernBertForSequenceClassification", _TRANSFORM_LINEAR, classifier_keys("cls")
        ),
        (TokenClassifier,): HeadMap("ModernBertForTokenClassification", _TRANSFORM_LINEAR, head_label_keys),
        (SpanHead,): HeadMap("ModernBertForQuestionAnswering", _TRANSFORM_LINEAR, head_label_keys),
    },
    tied={"decoder.weight": "embeddings.tok_embeddings.weight"},
)
