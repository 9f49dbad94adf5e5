"""ModernBERT with its heads (Warner et al. 2024)."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from regard.hub.family_map import FamilyMap, Fields, HeadMap, ValueMap, check_value, concat
from regard.hub.tables.shared_entries import ACTIVATION_NAMES, LAYER, LINEAR, STACK, TEXT, head_label_keys
from regard.parts.heads import Classifier, MaskedLMHead, SpanHead, TokenClassifier
from regard.parts.pooling import FirstPool, MeanPool

FULL, SLIDING = "full_attention", "sliding_attention"
THETA_KEYS = {FULL: ("global_rope_theta", 160_000.0), SLIDING: ("local_rope_theta", 10_000.0)}  # older key, default


def layer_types(layers: int, every: int) -> list[str]:
    return [SLIDING if i % every else FULL for i in range(layers)]


def full_attention_period(config: Fields) -> object:
    """Today layer_types names every layer's type; older folders give the period."""
    types = config.get("layer_types")
    if types is None:
        return config.get("global_attn_every_n_layers", 3)
    count = len(types) if isinstance(types, list) else 0
    for period in range(1, count + 1):
        if types == layer_types(count, period):
            return period
    raise ValueError(f"config.json: layer_types is {types!r}, but only the first of every few may be {FULL!r}")


def rope_theta(layer_type: str) -> Callable[[Fields], object]:
    """Reads the RoPE base frequency of a layer type."""
    older_key, default = THETA_KEYS[layer_type]

    def read(config: Fields) -> object:
        rope = config.get("rope_parameters") or {}
        rope = rope.get(layer_type) or {} if isinstance(rope, Mapping) else rope
        if not isinstance(rope, Mapping):
            raise ValueError(f"config.json: rope_parameters.{layer_type} is {rope!r}, but must be an object")
        check_value(f"rope_parameters.{layer_type}.rope_type", rope.get("rope_type", "default"), "default")
        return rope.get("rope_theta", config.get(older_key, default))

    return read


def one_sided_window(config: Fields) -> object:
    """local_attention counts both sides."""
    both_sides = config.get("local_attention", 128)
    return both_sides // 2 if isinstance(both_sides, int) else both_sides


def rope_parameters(c: Fields) -> Fields:
    return {
        FULL: {"rope_type": "default", "rope_theta": c["rope_theta"]},
        SLIDING: {"rope_type": "default", "rope_theta": c["local_rope_theta"]},
    }


def classifier_keys(pooling: str) -> Callable[[Classifier], Fields]:
    return lambda head: {**head_label_keys(head), "classifier_pooling": pooling}


_TRANSFORM = {"head.dense.weight": "head.transform.inner.weight", "head.norm.weight": "head.transform.norm.weight"}
_TRANSFORM_LINEAR = _TRANSFORM | LINEAR
_LAYER = {  # matrices of a layer -> the roles of ours
    "attn_norm": ("mixer norm",),
    "attn.Wqkv": ("query", "key", "value"),
    "attn.Wo": ("out",),
    "mlp_norm": ("feedforward norm",),
    "mlp.Wi": ("gate", "up"),
    "mlp.Wo": ("down",),
}
MODERNBERT = FamilyMap(
    family="modernbert",
    architecture="ModernBertModel",
    model="modernbert",
    config_fields={
        **(TEXT | STACK),
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
        **dict.fromkeys(("bos_token_id", "eos_token_id", "cls_token_id", "sep_token_id")),
    },
    defaults={"hidden_activation": "gelu", "norm_eps": 1e-5, "embedding_dropout": 0.0},
    weights={
        "embeddings.tok_embeddings.weight": "body.tokens.weight",
        "embeddings.norm.weight": "body.embed_norm.weight",
        **{f"layers.{{}}.{n}.weight": concat(*(f"{LAYER[r]}.weight" for r in roles)) for n, roles in _LAYER.items()},
        "final_norm.weight": "body.norm.weight",
    },
    prefix="model.",
    heads={
        (MaskedLMHead,): HeadMap("ModernBertForMaskedLM", _TRANSFORM | {"decoder.bias": "head.bias"}),
        **{
            (Classifier, pool): HeadMap("ModernBertForSequenceClassification", _TRANSFORM_LINEAR, classifier_keys(word))
            for pool, word in ((MeanPool, "mean"), (FirstPool, "cls"))
        },
        (TokenClassifier,): HeadMap("ModernBertForTokenClassification", _TRANSFORM_LINEAR, head_label_keys),
        (SpanHead,): HeadMap("ModernBertForQuestionAnswering", _TRANSFORM_LINEAR, head_label_keys),
    },
    tied={"decoder.weight": "embeddings.tok_embeddings.weight"},
)
