"""ViT with its head (Dosovitskiy et al. 2020)."""

from __future__ import annotations

from regard.hub.family_map import FamilyMap, HeadMap, TensorRule
from regard.hub.tables.shared_entries import ACTIVATION, IMAGE, LINEAR, POOLER, STACK, head_label_keys, layer, modules
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
        "embeddings.position_embeddings": TensorRule(  # with a batch dimension of 1
            ("body.positions.weight",), lambda table: table.unsqueeze(0), lambda table: table.squeeze(0)
        ),
        **modules(
            {
                "embeddings.patch_embeddings.projection": "body.stem.map",
                **layer("encoder.layer.{}.attention.attention", {"query": "query", "key": "key", "value": "value"}),
                **layer("encoder.layer.{}.attention", {"output.dense": "out"}),
                **layer("encoder.layer.{}", {"intermediate.dense": "up", "output.dense": "down"}),
                **layer("encoder.layer.{}", {"layernorm_before": "mixer norm", "layernorm_after": "feedforward norm"}),
                "layernorm": "body.norm",
            }
        ),
    },
    prefix="vit.",
    heads={(Classifier, FirstPool): HeadMap("ViTForImageClassification", LINEAR, head_label_keys)},
    preserved=(*POOLER, "embeddings.mask_token"),
)
