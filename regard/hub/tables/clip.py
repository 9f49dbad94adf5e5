"""CLIP: two towers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from regard.hub.names import Fields, Names
from regard.hub.tables.bert import ACTIVATION
from regard.hub.tables.wording import (
    DOWN,
    FEEDFORWARD_NORM,
    IMAGE,
    KEY,
    MIXER_NORM,
    OUT,
    QUERY,
    STACK,
    TEXT,
    UP,
    VALUE,
    modules,
    within,
)


@dataclass(frozen=True)
class SaidTwice(Names):
    """Old folders describe a tower twice. Then only text_config_dict and vision_config_dict count."""

    def said(self, config: Fields, key: str) -> Any:
        for tower in ("text_config", "vision_config"):
            told = config.get(tower) if config.get(f"{tower}_dict") is None else config[f"{tower}_dict"]
            if not isinstance(told, Mapping | None):
                raise ValueError(f"config.json: {tower} is {told!r}, but it must be a JSON object")
            config = {**config, tower: told}
        return super().said(config, key)


def _tower(theirs: str, ours: str) -> dict[str, str]:
    names = {
        **within("self_attn", {"q_proj": QUERY, "k_proj": KEY, "v_proj": VALUE, "out_proj": OUT}),
        **{"layer_norm1": MIXER_NORM, "layer_norm2": FEEDFORWARD_NORM, "mlp.fc1": UP, "mlp.fc2": DOWN},
    }
    return {f"{theirs}.encoder.layers.{{}}.{a}": b.replace("body", f"body.{ours}") for a, b in names.items()}


_TEXT = {"hidden_act": ACTIVATION, "layer_norm_eps": "eps"}
_VISION = {"hidden_act": replace(ACTIVATION, field="image_activation"), "layer_norm_eps": "image_eps"}
_BOTH_ABSENT = {"num_hidden_layers": 12, "hidden_act": "quick_gelu", "layer_norm_eps": 1e-5}
_TEXT_ABSENT = _BOTH_ABSENT | {
    "vocab_size": 49_408,
    "max_position_embeddings": 77,
    "hidden_size": 512,
    "intermediate_size": 2048,
    "num_attention_heads": 8,
    "pad_token_id": 1,
    "eos_token_id": 49_407,
}
_IMAGE_ABSENT = _BOTH_ABSENT | {
    "image_size": 224,
    "num_channels": 3,
    "patch_size": 32,
    "hidden_size": 768,
    "intermediate_size": 3072,
    "num_attention_heads": 12,
}
CLIP = SaidTwice(
    family="clip",
    architecture="CLIPModel",
    model="clip",
    ours={"convolution": False},
    sizes=within("text_config", TEXT | STACK | _TEXT | {"eos_token_id": "sep"})
    | within("vision_config", IMAGE | {key: f"image_{ours}" for key, ours in STACK.items()} | _VISION)
    | {"projection_dim": "joint", "dropout": "dropout"},  # they drop nothing
    theirs={},
    written={
        "text_config.projection_dim": lambda c: c["joint"],
        "vision_config.projection_dim": lambda c: c["joint"],
        "text_config.bos_token_id": 2,  # [CLS]
    },
    absent=within("text_config", _TEXT_ABSENT)
    | within("vision_config", _IMAGE_ABSENT)
    | {"projection_dim": 512, "dropout": 0.0},
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
