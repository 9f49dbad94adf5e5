"""The Transformer of 2017: Marian with the norm last, Pegasus with the norm first."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from regard.hub.family_map import FamilyMap, Head, ValueMap
from regard.hub.tables.shared_entries import ACTIVATION_WORDS, TEXT, modules
from regard.parts.heads import Unembed


def _side(side: str, attentions: Mapping[str, str]) -> dict[str, str]:
    """One of the two stacks of a Transformer."""
    roles = {"q_proj": "query", "k_proj": "key", "v_proj": "value", "out_proj": "out"}
    names = {f"{a}.{x}": f"{b}.inner.{y}" for a, b in attentions.items() for x, y in roles.items()}
    names |= {f"{a}_layer_norm": f"{b}.norm" for a, b in attentions.items()}
    names |= {"fc1": "feedforward.inner.up", "fc2": "feedforward.inner.down", "final_layer_norm": "feedforward.norm"}
    return {f"{side}.layers.{{}}.{a}": f"body.{side}.{{}}.{b}" for a, b in names.items()}


MARIAN = FamilyMap(
    family="marian",
    architecture="MarianModel",
    model="transformer",
    sizes=TEXT
    | {
        "d_model": "dim",
        "encoder_layers": "encoder_layers",
        "decoder_layers": "decoder_layers",
        "encoder_attention_heads": "heads",
        "decoder_attention_heads": "heads",
        "encoder_ffn_dim": "hidden",
        "decoder_ffn_dim": "hidden",
        "activation_function": ValueMap("activation", ACTIVATION_WORDS),
        "scale_embedding": "scaled",
        "dropout": "dropout",
    },
    ours={"norm_last": True},
    theirs={
        "static_position_embeddings": True,
        "share_encoder_decoder_embeddings": True,
        "tie_word_embeddings": True,
        "is_encoder_decoder": True,
        "normalize_embedding": False,
        "normalize_before": False,
        "add_final_layer_norm": False,
    },
    follows={"decoder_vocab_size": lambda c: c["vocab"]},
    written={
        "attention_dropout": 0.0,
        "activation_dropout": 0.0,
        "eos_token_id": 0,
        "forced_eos_token_id": None,
        "decoder_start_token_id": lambda c: c["pad"],
    },
    absent={"activation_function": "gelu", "scale_embedding": False, "dropout": 0.1, "pad_token_id": -1},
    weights=modules(
        {
            "shared": "body.tokens",
            **_side("encoder", {"self_attn": "mixer"}),
            **_side("decoder", {"self_attn": "mixer", "encoder_attn": "cross"}),
        }
    ),
    prefix="model.",
    heads={(Unembed,): Head("MarianMTModel", {"final_logits_bias": "head.bias"})},
    twins=dict.fromkeys(
        ("encoder.embed_tokens.weight", "decoder.embed_tokens.weight", "lm_head.weight"), "shared.weight"
    ),
    ignored=tuple(f"{side}.embed_positions.weight" for side in ("encoder", "decoder")),
)
PEGASUS = replace(
    MARIAN,
    family="pegasus",
    architecture="PegasusModel",
    ours={"norm_last": False},
    theirs={**MARIAN.theirs, "normalize_before": True, "add_final_layer_norm": True},
    follows={},
    absent={**MARIAN.absent, "pad_token_id": 0},
    weights={
        **MARIAN.weights,
        **modules({"encoder.layer_norm": "body.encoder_norm", "decoder.layer_norm": "body.decoder_norm"}),
    },
    heads={(Unembed,): Head("PegasusForConditionalGeneration", {"final_logits_bias": "head.bias"})},
    computed={f"model.{side}.embed_positions.weight": "body.positions.table" for side in ("encoder", "decoder")},
)
