"""CLIP (Radford et al. 2021): both towers, or one alone; the text tower is a GPT, the image tower a ViT."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import torch

from regard.hub.family_map import FamilyMap, Fields, HeadMap, TensorRule, ValueMap
from regard.hub.tables.shared_entries import ACTIVATION, IMAGE, STACK, TEXT, layer, modules, within
from regard.parts.heads import ProjectionHead
from regard.parts.pooling import FirstPool, LastPool


@dataclass(frozen=True)
class ClipMap(FamilyMap):
    """Old folders describe each tower twice: text_config_dict and vision_config_dict take precedence."""

    def config_value(self, config: Fields, key: str) -> object:
        for tower in ("text_config", "vision_config"):
            settings = config.get(tower) if config.get(f"{tower}_dict") is None else config[f"{tower}_dict"]
            if not isinstance(settings, Mapping | None):
                raise ValueError(f"config.json: {tower} is {settings!r}, but it must be a JSON object")
            config = {**config, tower: settings}
        return super().config_value(config, key)


_BLOCKS = {
    **layer("encoder.layers.{}.self_attn", {"q_proj": "query", "k_proj": "key", "v_proj": "value", "out_proj": "out"}),
    **layer("encoder.layers.{}", {"layer_norm1": "mixer norm", "layer_norm2": "feedforward norm"}),
    **layer("encoder.layers.{}.mlp", {"fc1": "up", "fc2": "down"}),
}
_TEXT_TOWER = {
    "embeddings.token_embedding": "body.tokens",
    "embeddings.position_embedding": "body.positions",
    **_BLOCKS,
    "final_layer_norm": "body.norm",
}
_IMAGE_TOWER = {
    "embeddings.patch_embedding": "body.stem.map",
    "embeddings.position_embedding": "body.positions",
    "pre_layrnorm": "body.embed_norm",  # transformers spells it so
    **_BLOCKS,
    "post_layernorm": "body.norm",
}


def _tower(names: dict[str, str], hf_tower: str, tower: str) -> dict[str, str]:
    """The names of a tower inside CLIP."""
    return within(hf_tower, {hf_name: name.replace("body", f"body.{tower}", 1) for hf_name, name in names.items()})


_TEXT: dict[str, str | ValueMap] = {"hidden_act": ACTIVATION, "layer_norm_eps": "norm_eps"}
_VISION: dict[str, str | ValueMap] = {
    "hidden_act": replace(ACTIVATION, field="image_activation"),
    "layer_norm_eps": "image_norm_eps",
}
_TOWER_DEFAULTS = {"num_hidden_layers": 12, "hidden_act": "quick_gelu", "layer_norm_eps": 1e-5}
_TEXT_DEFAULTS = _TOWER_DEFAULTS | {
    **{"vocab_size": 49_408, "max_position_embeddings": 77, "pad_token_id": 1, "eos_token_id": 49_407},
    **{"hidden_size": 512, "intermediate_size": 2048, "num_attention_heads": 8},
}
_IMAGE_DEFAULTS = _TOWER_DEFAULTS | {
    **{"image_size": 224, "num_channels": 3, "patch_size": 32},
    **{"hidden_size": 768, "intermediate_size": 3072, "num_attention_heads": 12},
}
CLIP = ClipMap(
    family="clip",
    architecture="CLIPModel",
    model="clip",
    fixed_fields={"conv_stem": False},
    config_fields=within("text_config", TEXT | STACK | _TEXT | {"eos_token_id": "sep"})
    | within("vision_config", IMAGE | {key: f"image_{name}" for key, name in STACK.items()} | _VISION)
    | {"projection_dim": "projection_dim", "dropout": "dropout"},  # CLIPConfig has no dropout
    written_keys={
        "text_config.projection_dim": lambda c: c["projection_dim"],
        "vision_config.projection_dim": lambda c: c["projection_dim"],
        "text_config.bos_token_id": 2,  # [CLS]
    },
    defaults={
        **within("text_config", _TEXT_DEFAULTS),
        **within("vision_config", _IMAGE_DEFAULTS),
        **{"projection_dim": 512, "dropout": 0.0},
    },
    weights={
        "logit_scale": "body.scale",
        "vision_model.embeddings.class_embedding": "body.image.first",
        **modules(_tower(_TEXT_TOWER, "text_model", "text") | {"text_projection": "body.text.out"}),
        **modules(_tower(_IMAGE_TOWER, "vision_model", "image") | {"visual_projection": "body.image.out"}),
    },
    ignored=("text_model.embeddings.position_ids", "vision_model.embeddings.position_ids"),
)


def _projection_keys(head: ProjectionHead) -> Fields:
    return {"projection_dim": head.out.out_features}


CLIP_TEXT = FamilyMap(
    family="clip_text_model",
    architecture="CLIPTextModel",
    model="gpt",
    fixed_fields={"tie_embeddings": True},
    config_fields=TEXT | STACK | _TEXT | {"dropout": "dropout"},
    defaults=_TEXT_DEFAULTS | {"dropout": 0.0},
    weights=modules(_TEXT_TOWER),
    prefix="text_model.",
    heads={
        (ProjectionHead, LastPool): HeadMap(
            "CLIPTextModelWithProjection", {"text_projection.weight": "head.out.weight"}, _projection_keys
        )
    },
    ignored=("embeddings.position_ids",),
)
CLIP_VISION = FamilyMap(
    family="clip_vision_model",
    architecture="CLIPVisionModel",
    model="vit",
    fixed_fields={"conv_stem": False, "class_token": True, "qkv_bias": True, "embed_norm": True},
    config_fields=IMAGE | STACK | _TEXT | {"dropout": "dropout"},
    defaults=_IMAGE_DEFAULTS | {"dropout": 0.0},
    weights={
        "embeddings.class_embedding": TensorRule(("body.first",), torch.flatten, lambda row: row[None, None]),
        **modules(_IMAGE_TOWER),
    },
    prefix="vision_model.",
    heads={
        (ProjectionHead, FirstPool): HeadMap(
            "CLIPVisionModelWithProjection", {"visual_projection.weight": "head.out.weight"}, _projection_keys
        )
    },
    ignored=("embeddings.position_ids",),
)
