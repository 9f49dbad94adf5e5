"""One table for each family: its names at Hugging Face on the left, ours on the right.

A family without a table, or a body with a setting that its family does not have, is written under our own names.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from regard.hub.names import Head, Names, Plain, Rule, framed, joined, turned
from regard.models import MODELS
from regard.parts.heads import Classifier, MaskedOutput, Output, PerToken, SpanScores, Unembed
from regard.parts.pooling import First

QUERY, KEY, VALUE, OUT = (f"body.blocks.{{}}.mixer.inner.{role}" for role in ("query", "key", "value", "out"))
GATE, UP, DOWN = (f"body.blocks.{{}}.feedforward.inner.{role}" for role in ("gate", "up", "down"))
MIXER_NORM, FEEDFORWARD_NORM = "body.blocks.{}.mixer.norm", "body.blocks.{}.feedforward.norm"


def _modules(names: Mapping[str, str]) -> dict[str, str | Rule]:
    """Weight and bias of each, as far as it has them."""
    return {f"{theirs}.{w}": f"{ours}.{w}" for theirs, ours in names.items() for w in ("weight", "bias")}


def _turned(names: Mapping[str, tuple[str, ...]]) -> dict[str, Rule]:
    weights = {f"{theirs}.weight": turned(*(f"{one}.weight" for one in ours)) for theirs, ours in names.items()}
    return weights | {f"{theirs}.bias": joined(*(f"{one}.bias" for one in ours)) for theirs, ours in names.items()}


def _within(outer: str, names: Mapping[str, Any]) -> dict[str, Any]:
    return {f"{outer}.{name}": value for name, value in names.items()}


def _four_times(key: str) -> Any:
    """What is no number is refused later, under its own name."""
    return lambda config: 4 * config[key] if isinstance(config[key], int) else config[key]


def _ends(head: Any) -> dict[str, Any]:
    """</s> closes a text of ours, and opens the next."""
    return {"bos_token_id": 0, "eos_token_id": 0}


def _labels(head: Any) -> dict[str, Any]:
    """Without these they would make two."""
    names = {f"LABEL_{i}": i for i in range(head.out.out_features)}
    return {"id2label": {str(i): name for name, i in names.items()}, "label2id": names}


_TOWER = {"hidden_size": "dim", "num_hidden_layers": "layers", "num_attention_heads": "heads"}
_STACK = _TOWER | {"intermediate_size": "hidden"}
_TEXT = {"vocab_size": "vocab", "max_position_embeddings": "context", "pad_token_id": "pad"}
_IMAGE = {"image_size": "image", "num_channels": "channels", "patch_size": "patch"}
_NO_TOKENS = {"bos_token_id": None, "eos_token_id": None}
_LINEAR = {"classifier.weight": "head.out.weight", "classifier.bias": "head.out.bias"}
_POOLER = ("pooler.dense.weight", "pooler.dense.bias")


def _side(side: str, attentions: Mapping[str, str]) -> dict[str, str]:
    """One of the two stacks of a Transformer."""
    roles = {"q_proj": "query", "k_proj": "key", "v_proj": "value", "out_proj": "out"}
    names = {f"{a}.{x}": f"{b}.inner.{y}" for a, b in attentions.items() for x, y in roles.items()}
    names |= {f"{a}_layer_norm": f"{b}.norm" for a, b in attentions.items()}
    names |= {"fc1": "feedforward.inner.up", "fc2": "feedforward.inner.down", "final_layer_norm": "feedforward.norm"}
    return {f"{side}.layers.{{}}.{a}": f"body.{side}.{{}}.{b}" for a, b in names.items()}


MARIAN = Names(
    family="marian",
    architecture="MarianModel",
    model="transformer",
    sizes=_TEXT
    | {
        "d_model": "dim",
        "encoder_layers": "encoder_layers",
        "decoder_layers": "decoder_layers",
        "encoder_attention_heads": "heads",
        "decoder_attention_heads": "heads",
        "encoder_ffn_dim": "hidden",
        "decoder_ffn_dim": "hidden",
        "dropout": "dropout",
        "decoder_start_token_id": "pad",
    },
    ours={"norm_last": True},
    theirs={
        "activation_function": "relu",
        "scale_embedding": True,
        "static_position_embeddings": True,
        "share_encoder_decoder_embeddings": True,
        "tie_word_embeddings": True,
        "is_encoder_decoder": True,
        "normalize_embedding": False,
        "normalize_before": False,
        "add_final_layer_norm": False,
        "attention_dropout": 0.0,
        "activation_dropout": 0.0,
        "eos_token_id": 0,
    },
    weights=_modules(
        {
            "shared": "body.tokens",
            **_side("encoder", {"self_attn": "mixer"}),
            **_side("decoder", {"self_attn": "mixer", "encoder_attn": "cross"}),
        }
    ),
    prefix="model.",
    heads={(Unembed,): Head("MarianMTModel", {"final_logits_bias": "head.bias"})},
)
PEGASUS = replace(
    MARIAN,
    family="pegasus",
    architecture="PegasusModel",
    ours={"norm_last": False},
    theirs={**MARIAN.theirs, "normalize_before": True, "add_final_layer_norm": True},
    weights={
        **MARIAN.weights,
        **_modules({"encoder.layer_norm": "body.encoder_norm", "decoder.layer_norm": "body.decoder_norm"}),
    },
    heads={(Unembed,): Head("PegasusForConditionalGeneration", {"final_logits_bias": "head.bias"})},
    computed={f"model.{side}.embed_positions.weight": "body.positions.table" for side in ("encoder", "decoder")},
)

GPT2 = Names(
    family="gpt2",
    architecture="GPT2Model",
    model="gpt",
    sizes={
        "vocab_size": "vocab",
        "n_positions": "context",
        "n_embd": "dim",
        "n_layer": "layers",
        "n_head": "heads",
        "n_inner": "hidden",
        "resid_pdrop": "dropout",
        "pad_token_id": "pad",
    },
    theirs={
        "activation_function": "gelu_new",
        "layer_norm_epsilon": 1e-5,
        "scale_attn_weights": True,
        "scale_attn_by_inverse_layer_idx": False,
        "add_cross_attention": False,
        "tie_word_embeddings": True,
    },
    written={"embd_pdrop": lambda c: c["dropout"], "attn_pdrop": 0.0, **_NO_TOKENS},
    absent={"n_inner": _four_times("n_embd"), "pad_token_id": -1},
    weights={
        **_modules({"wte": "body.tokens", "wpe": "body.positions", "ln_f": "body.norm"}),
        **_modules({"h.{}.ln_1": MIXER_NORM, "h.{}.ln_2": FEEDFORWARD_NORM}),
        **_turned({"h.{}.attn.c_attn": (QUERY, KEY, VALUE), "h.{}.attn.c_proj": (OUT,)}),
        **_turned({"h.{}.mlp.c_fc": (UP,), "h.{}.mlp.c_proj": (DOWN,)}),
    },
    prefix="transformer.",
    heads={(Output,): Head("GPT2LMHeadModel", says=_ends)},
    ignored=("h.{}.attn.bias", "h.{}.attn.masked_bias"),  # their causal mask
)

_LLAMA_SIZES = _TEXT | _STACK | {"num_key_value_heads": "kv_heads", "dropout": "dropout"}  # they drop nothing
_LLAMA_THEIRS = {"rope_parameters.rope_type": "default", "attention_bias": False, "tie_word_embeddings": False}
_LLAMA_ABSENT = {"num_key_value_heads": 0, "dropout": 0.0, "pad_token_id": -1}
_LLAMA_ATTENTION = _within("layers.{}.self_attn", {"q_proj": QUERY, "k_proj": KEY, "v_proj": VALUE, "o_proj": OUT})
_LLAMA_HEAD = {"lm_head.weight": "head.weight"}
LLAMA = Names(
    family="llama",
    architecture="LlamaModel",
    model="llama",
    sizes=_LLAMA_SIZES | {"rope_parameters.rope_theta": "base", "rms_norm_eps": "eps"},
    theirs=_LLAMA_THEIRS | {"hidden_act": "silu", "mlp_bias": False},
    follows={"head_dim": lambda c: c["dim"] // c["heads"]},
    written=_NO_TOKENS,
    absent=_LLAMA_ABSENT | {"rope_parameters.rope_theta": 10_000.0},
    older={
        "rope_parameters.rope_theta": ("rope_theta",),
        "rope_parameters.rope_type": ("rope_scaling.rope_type", "rope_scaling.type"),
    },
    weights=_modules(
        {
            "embed_tokens": "body.tokens",
            **_LLAMA_ATTENTION,
            **_within("layers.{}.mlp", {"gate_proj": GATE, "up_proj": UP, "down_proj": DOWN}),
            **_within("layers.{}", {"input_layernorm": MIXER_NORM, "post_attention_layernorm": FEEDFORWARD_NORM}),
            "norm": "body.norm",
        }
    ),
    prefix="model.",
    heads={(Output,): Head("LlamaForCausalLM", _LLAMA_HEAD, _ends)},
    ignored=("layers.{}.self_attn.rotary_emb.inv_freq",),
)
NANOCHAT = replace(
    LLAMA,
    family="nanochat",
    architecture="NanoChatModel",
    model="nano",
    sizes=_LLAMA_SIZES,
    theirs=_LLAMA_THEIRS
    | {
        "rope_parameters.rope_theta": 10_000.0,
        "hidden_act": "relu2",
        "rms_norm_eps": 1e-6,
        "final_logit_softcapping": None,
    },
    absent=_LLAMA_ABSENT | {"final_logit_softcapping": 15.0},
    weights=_modules(
        {"embed_tokens": "body.tokens", **_LLAMA_ATTENTION, **_within("layers.{}.mlp", {"fc1": UP, "fc2": DOWN})}
    ),
    heads={(Output,): Head("NanoChatForCausalLM", _LLAMA_HEAD, _ends)},
)

BERT = Names(
    family="bert",
    architecture="BertModel",
    model="bert",
    sizes=_TEXT
    | _STACK
    | {"hidden_dropout_prob": "dropout", "type_vocab_size": "segments", "sep_token_id": "sep"},  # the last is ours
    theirs={
        "hidden_act": "gelu",
        "layer_norm_eps": 1e-12,
        "position_embedding_type": "absolute",
        "is_decoder": False,
        "add_cross_attention": False,
        "tie_word_embeddings": True,
    },
    written={"attention_probs_dropout_prob": 0.0},
    absent={"pad_token_id": 0, "sep_token_id": -1},
    older={"LayerNorm.weight": ("LayerNorm.gamma",), "LayerNorm.bias": ("LayerNorm.beta",)},
    weights=_modules(
        {
            "embeddings.word_embeddings": "body.tokens",
            "embeddings.position_embeddings": "body.positions",
            "embeddings.token_type_embeddings": "body.segments",
            "embeddings.LayerNorm": "body.embed_norm",
            **_within("encoder.layer.{}.attention.self", {"query": QUERY, "key": KEY, "value": VALUE}),
            **_within("encoder.layer.{}.attention.output", {"dense": OUT, "LayerNorm": MIXER_NORM}),
            **_within("encoder.layer.{}.intermediate", {"dense": UP}),
            **_within("encoder.layer.{}.output", {"dense": DOWN, "LayerNorm": FEEDFORWARD_NORM}),
        }
    ),
    prefix="bert.",
    heads={
        (MaskedOutput,): Head(
            "BertForMaskedLM",
            {
                **_modules(_within("cls.predictions.transform", {"dense": "head.inner", "LayerNorm": "head.norm"})),
                "cls.predictions.bias": "head.bias",
            },
        ),
        (PerToken,): Head("BertForTokenClassification", _LINEAR, _labels),
        (SpanScores,): Head(
            "BertForQuestionAnswering", {f"qa_outputs.{w}": f"head.out.{w}" for w in ("weight", "bias")}
        ),
    },
    ignored=("embeddings.position_ids", *_POOLER, "cls.seq_relationship.weight", "cls.seq_relationship.bias"),
)
VIT = Names(
    family="vit",
    architecture="ViTModel",
    model="vit",
    sizes=_IMAGE | _STACK | {"hidden_dropout_prob": "dropout"},
    ours={"convolution": False, "class_token": True},
    theirs={"hidden_act": "gelu", "layer_norm_eps": 1e-12, "qkv_bias": True},
    written={"attention_probs_dropout_prob": 0.0},
    weights={
        "embeddings.cls_token": "body.first",
        "embeddings.position_embeddings": framed("body.positions.weight"),
        **_modules(
            {
                "embeddings.patch_embeddings.projection": "body.stem.map",
                **_within("encoder.layer.{}.attention.attention", {"query": QUERY, "key": KEY, "value": VALUE}),
                **_within("encoder.layer.{}.attention.output", {"dense": OUT}),
                **_within("encoder.layer.{}.intermediate", {"dense": UP}),
                **_within("encoder.layer.{}.output", {"dense": DOWN}),
                **_within("encoder.layer.{}", {"layernorm_before": MIXER_NORM, "layernorm_after": FEEDFORWARD_NORM}),
                "layernorm": "body.norm",
            }
        ),
    },
    prefix="vit.",
    heads={(Classifier, First): Head("ViTForImageClassification", _LINEAR, _labels)},
    ignored=_POOLER,
)


def _tower(theirs: str, ours: str) -> dict[str, str]:
    names = {
        **_within("self_attn", {"q_proj": QUERY, "k_proj": KEY, "v_proj": VALUE, "out_proj": OUT}),
        **{"layer_norm1": MIXER_NORM, "layer_norm2": FEEDFORWARD_NORM, "mlp.fc1": UP, "mlp.fc2": DOWN},
    }
    return {f"{theirs}.encoder.layers.{{}}.{a}": b.replace("body", f"body.{ours}") for a, b in names.items()}


_CLIP_THEIRS = {"hidden_act": "quick_gelu", "layer_norm_eps": 1e-5}
CLIP = Names(
    family="clip",
    architecture="CLIPModel",
    model="clip",
    sizes=_within("text_config", _TEXT | _TOWER)
    | _within("vision_config", _IMAGE | {key: f"image_{ours}" for key, ours in _TOWER.items()})
    | {"projection_dim": "joint", "dropout": "dropout"},  # they drop nothing
    theirs=_within("text_config", _CLIP_THEIRS) | _within("vision_config", _CLIP_THEIRS),
    follows={
        "text_config.intermediate_size": lambda c: 4 * c["dim"],
        "vision_config.intermediate_size": lambda c: 4 * c["image_dim"],
    },
    written={
        "text_config.projection_dim": lambda c: c["joint"],
        "vision_config.projection_dim": lambda c: c["joint"],
        "text_config.bos_token_id": 2,  # [CLS]
        "text_config.eos_token_id": 3,  # [SEP], where they look for the vector of a text
    },
    absent={"text_config.pad_token_id": 1, "dropout": 0.0},
    weights={
        "logit_scale": "body.scale",
        "vision_model.embeddings.class_embedding": "body.image.first",
        **_modules(
            {
                "text_model.embeddings.token_embedding": "body.text.tokens",
                "text_model.embeddings.position_embedding": "body.text.positions",
                **_tower("text_model", "text"),
                "text_model.final_layer_norm": "body.text.norm",
                "text_projection": "body.text.out",
                "vision_model.embeddings.patch_embedding": "body.image.stem.map",
                "vision_model.embeddings.position_embedding": "body.image.positions",
                "vision_model.pre_layrnorm": "body.image.embed_norm",  # so spelled
                **_tower("vision_model", "image"),
                "vision_model.post_layernorm": "body.image.norm",
                "visual_projection": "body.image.out",
            }
        ),
    },
    ignored=("text_model.embeddings.position_ids", "vision_model.embeddings.position_ids"),
)

KNOWN = {names.family: names for names in (MARIAN, PEGASUS, GPT2, LLAMA, NANOCHAT, BERT, VIT, CLIP)}
PLAIN = {plain.family: plain for plain in map(Plain, MODELS)}
TABLES: dict[str, Names | Plain] = {**KNOWN, **PLAIN}


def table_for(model: str, fields: dict[str, object]) -> Names | Plain:
    """The family that a body of ours is written as."""
    for names in KNOWN.values():
        if names.model == model and all(fields[key] == value for key, value in names.ours.items()):
            return names
    return PLAIN[f"regard-{model}"]
