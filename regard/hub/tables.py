"""One table for each family: its names at Hugging Face on the left, ours on the right."""

from __future__ import annotations

from regard.hub.names import Names


def _attention(theirs: str, ours: str) -> dict[str, str]:
    parts = {"q_proj": "query", "k_proj": "key", "v_proj": "value", "out_proj": "out"}
    return {f"{theirs}.{a}.{w}": f"{ours}.inner.{b}.{w}" for a, b in parts.items() for w in ("weight", "bias")}


def _both(theirs: str, ours: str) -> dict[str, str]:
    return {f"{theirs}.{w}": f"{ours}.{w}" for w in ("weight", "bias")}


_TRANSFORMER_WEIGHTS = {
    "model.shared.weight": "body.tokens.weight",
    "final_logits_bias": "head.bias",
    **_attention("model.encoder.layers.{}.self_attn", "body.encoder.{}.mixer"),
    **_both("model.encoder.layers.{}.self_attn_layer_norm", "body.encoder.{}.mixer.norm"),
    **_both("model.encoder.layers.{}.fc1", "body.encoder.{}.feedforward.inner.up"),
    **_both("model.encoder.layers.{}.fc2", "body.encoder.{}.feedforward.inner.down"),
    **_both("model.encoder.layers.{}.final_layer_norm", "body.encoder.{}.feedforward.norm"),
    **_attention("model.decoder.layers.{}.self_attn", "body.decoder.{}.mixer"),
    **_both("model.decoder.layers.{}.self_attn_layer_norm", "body.decoder.{}.mixer.norm"),
    **_attention("model.decoder.layers.{}.encoder_attn", "body.decoder.{}.cross"),
    **_both("model.decoder.layers.{}.encoder_attn_layer_norm", "body.decoder.{}.cross.norm"),
    **_both("model.decoder.layers.{}.fc1", "body.decoder.{}.feedforward.inner.up"),
    **_both("model.decoder.layers.{}.fc2", "body.decoder.{}.feedforward.inner.down"),
    **_both("model.decoder.layers.{}.final_layer_norm", "body.decoder.{}.feedforward.norm"),
}
_TRANSFORMER_SIZES = {
    "vocab_size": "vocab",
    "max_position_embeddings": "context",
    "d_model": "dim",
    "encoder_layers": "encoder_layers",
    "decoder_layers": "decoder_layers",
    "encoder_attention_heads": "heads",
    "decoder_attention_heads": "heads",
    "encoder_ffn_dim": "hidden",
    "decoder_ffn_dim": "hidden",
    "dropout": "dropout",
    "pad_token_id": "pad",
    "decoder_start_token_id": "pad",
}
_TRANSFORMER_THEIRS = {
    "activation_function": "relu",
    "scale_embedding": True,
    "static_position_embeddings": True,
    "share_encoder_decoder_embeddings": True,
    "tie_word_embeddings": True,
    "is_encoder_decoder": True,
    "normalize_embedding": False,
    "attention_dropout": 0.0,
    "activation_dropout": 0.0,
    "eos_token_id": 0,
}

MARIAN = Names(
    family="marian",
    architecture="MarianMTModel",
    model="transformer",
    sizes=_TRANSFORMER_SIZES,
    ours={"norm_last": True},
    theirs=_TRANSFORMER_THEIRS | {"normalize_before": False, "add_final_layer_norm": False},
    weights=_TRANSFORMER_WEIGHTS,
)
PEGASUS = Names(
    family="pegasus",
    architecture="PegasusForConditionalGeneration",
    model="transformer",
    sizes=_TRANSFORMER_SIZES,
    ours={"norm_last": False},
    theirs=_TRANSFORMER_THEIRS | {"normalize_before": True, "add_final_layer_norm": True},
    weights=_TRANSFORMER_WEIGHTS
    | _both("model.encoder.layer_norm", "body.encoder_norm")
    | _both("model.decoder.layer_norm", "body.decoder_norm"),
    computed={f"model.{side}.embed_positions.weight": "body.positions.table" for side in ("encoder", "decoder")},
)

TABLES = {names.family: names for names in (MARIAN, PEGASUS)}


def table_for(model: str, fields: dict[str, object]) -> Names:
    """The family that a body of ours is written as."""
    return next(n for n in TABLES.values() if n.model == model and all(fields[k] == v for k, v in n.ours.items()))
