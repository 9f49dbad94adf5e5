"""The Transformer of 2017 (Vaswani et al.): Marian is its post-norm variant, Pegasus the pre-norm one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from regard.hub.family_map import FamilyMap, HeadMap, ValueMap
from regard.hub.tables.shared_entries import ACTIVATION_NAMES, TEXT, modules
from regard.parts.heads import BiasedLMHead


def _stack(stack: str, attentions: Mapping[str, str]) -> dict[str, str]:
    """The names of the encoder's or the decoder's layers."""
    roles = {"q_proj": "query", "k_proj": "key", "v_proj": "value", "out_proj": "out"}
    names = {f"{a}.{x}": f"{b}.inner.{y}" for a, b in attentions.items() for x, y in roles.items()}
    names |= {f"{a}_layer_norm": f"{b}.norm" for a, b in attentions.items()}
    names |= {"fc1": "feedforward.inner.up", "fc2": "feedforward.inner.down", "final_layer_norm": "feedforward.norm"}
    return {f"{stack}.layers.{{}}.{a}": f"body.{stack}.{{}}.{b}" for a, b in names.items()}


MARIAN = FamilyMap(
    family="marian",
    architecture="MarianModel",
    model="transformer",
    config_fields={
        **TEXT,
        "d_model": "dim",
        "encoder_layers": "encoder_layers",
        "decoder_layers": "decoder_layers",
        "encoder_attention_heads": "heads",
        "decoder_attention_heads": "heads",
        "encoder_ffn_dim": "hidden",
        "decoder_ffn_dim": "hidden",
        "activation_function": ValueMap("activation", ACTIVATION_NAMES),
        "scale_embedding": "scale_embedding",
        "dropout": "dropout",
    },
    fixed_fields={"post_norm": True},
    required={
        "static_position_embeddings": True,
        "share_encoder_decoder_embeddings": True,
        "tie_word_embeddings": True,
        "is_encoder_decoder": True,
        "normalize_embedding": False,
        "normalize_before": False,
        "add_final_layer_norm": False,
    },
    derived_keys={"decoder_vocab_size": lambda c: c["vocab"]},
    written_keys={
        "attention_dropout": 0.0,
        "activation_dropout": 0.0,
        "eos_token_id": 0,
        "forced_eos_token_id": None,
        "decoder_start_token_id": lambda c: c["pad"],
    },
    defaults={"activation_function": "gelu", "scale_embedding": False, "dropout": 0.1, "pad_token_id": -1},
    weights=modules(
        {
            "shared": "body.tokens",
            **_stack("encoder", {"self_attn": "mixer"}),
            **_stack("decoder", {"self_attn": "mixer", "encoder_attn": "cross"}),
        }
    ),
    prefix="model.",
    heads={(BiasedLMHead,): HeadMap("MarianMTModel", {"final_logits_bias": "head.bias"})},
    tied=dict.fromkeys(
        ("encoder.embed_tokens.weight", "decoder.embed_tokens.weight", "lm_head.weight"), "shared.weight"
    ),
    ignored=tuple(f"{stack}.embed_positions.weight" for stack in ("encoder", "decoder")),
)
PEGASUS = replace(
    MARIAN,
    family="pegasus",
    architecture="PegasusModel",
    fixed_fields={"post_norm": False},
    required={**MARIAN.required, "normalize_before": True, "add_final_layer_norm": True},
    derived_keys={},
    defaults={**MARIAN.defaults, "pad_token_id": 0},
    weights={
        **MARIAN.weights,
        **modules({"encoder.layer_norm": "body.encoder_norm", "decoder.layer_norm": "body.decoder_norm"}),
    },
    heads={(BiasedLMHead,): HeadMap("PegasusForConditionalGeneration", {"final_logits_bias": "head.bias"})},
    computed={f"model.{stack}.embed_positions.weight": "body.positions.table" for stack in ("encoder", "decoder")},
)
