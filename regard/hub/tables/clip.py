"""CLIP: two towers."""

from __future__ import annotations

from regard.hub.names import Names
from regard.hub.tables.wording import (
    DOWN,
    FEEDFORWARD_NORM,
    IMAGE,
    KEY,
    MIXER_NORM,
    OUT,
    QUERY,
    TEXT,
    TOWER,
    UP,
    VALUE,
    modules,
    within,
)


def _tower(theirs: str, ours: str) -> dict[str, str]:
    names = {
        **within("self_attn", {"q_proj": QUERY, "k_proj": KEY, "v_proj": VALUE, "out_proj": OUT}),
        **{"layer_norm1": MIXER_NORM, "layer_norm2": FEEDFORWARD_NORM, "mlp.fc1": UP, "mlp.fc2": DOWN},
    }
    return {f"{theirs}.encoder.layers.{{}}.{a}": b.replace("body", f"body.{ours}") for a, b in names.items()}


_CLIP_THEIRS = {"hidden_act": "quick_gelu", "layer_norm_eps": 1e-5}
CLIP = Names(
    family="clip",
    architecture="CLIPModel",
    model="clip",
    sizes=within("text_config", TEXT | TOWER)
    | within("vision_config", IMAGE | {key: f"image_{ours}" for key, ours in TOWER.items()})
    | {"projection_dim": "joint", "dropout": "dropout"},  # they drop nothing
    theirs=within("text_config", _CLIP_THEIRS) | within("vision_config", _CLIP_THEIRS),
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
        **modules(
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
