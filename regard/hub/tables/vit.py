"""ViT with its head (Dosovitskiy et al. 2020)."""

from __future__ import annotations

from regard.hub.family_map import FamilyMap, HeadMap, unsqueeze
from regard.hub.tables.shared_entries import (
    ACTIVATION,
    DOWN,
    FEEDFORWARD_NORM,
    IMAGE,
    KEY,
    LINEAR,
    MIXER_NORM,
    OUT,
    POOLER,
    QUERY,
    STACK,
    UP,
    VALUE,
    head_label_keys,
    modules,
    within,
)
from regard.parts.heads import Classifier
from regard.parts.pooling import FirstPool

VIT = FamilyMap(
    family="vit",
    architecture="ViTModel",
    model="vit",
    config_fields={
        **IMAGE,
        **STACK,
        "hidden_act": ACTIVATION,
        "layer_norm_eps": "norm_eps",
        "qkv_bias": "qkv_bias",
        "hidden_dropout_prob": "dropout",
    },
    fixed_fields={"conv_stem": False, "class_token": True, "embed_norm": False},
    required={},
    written_keys={"attention_probs_dropout_prob": 0.0},
    defaults={
        "num_channels": 3,
        "hidden_act": "gelu",
        "layer_norm_eps": 1e-12,
        "qkv_bias": True,
        "hidden_dropout_prob": 0.0,
    },
    weights={
        "embeddings.cls_token": "body.first",
        "embeddings.position_embeddings": unsqueeze("body.positions.weight"),
        **modules(
            {
                "embeddings.patch_embeddings.projection": "body.stem.map",
                **within("encoder.layer.{}.attention.attention", {"query": QUERY, "key": KEY, "value": VALUE}),
                **within("encoder.layer.{}.attention.output", {"dense": OUT}),
                **within("encoder.layer.{}.intermediate", {"dense": UP}),
                **within("encoder.layer.{}.output", {"dense": DOWN}),
                **within("encoder.layer.{}", {"layernorm_before": MIXER_NORM, "layernorm_after": FEEDFORWARD_NORM}),
                "layernorm": "body.norm",
            }
        ),
    },
    prefix="vit.",
    heads={(Classifier, FirstPool): HeadMap("ViTForImageClassification", LINEAR, head_label_keys)},
    preserved=(*POOLER, "embeddings.mask_token"),
)
