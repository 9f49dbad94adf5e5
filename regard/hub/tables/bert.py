"""BERT, with its heads."""

from __future__ import annotations

from regard.hub.names import Head, Names
from regard.hub.tables.wording import (
    DOWN,
    FEEDFORWARD_NORM,
    KEY,
    LINEAR,
    MIXER_NORM,
    OUT,
    POOLER,
    QUERY,
    STACK,
    TEXT,
    UP,
    VALUE,
    labels,
    modules,
    within,
)
from regard.parts.heads import MaskedOutput, PerToken, SpanScores

BERT = Names(
    family="bert",
    architecture="BertModel",
    model="bert",
    sizes=TEXT
    | STACK
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
    weights=modules(
        {
            "embeddings.word_embeddings": "body.tokens",
            "embeddings.position_embeddings": "body.positions",
            "embeddings.token_type_embeddings": "body.segments",
            "embeddings.LayerNorm": "body.embed_norm",
            **within("encoder.layer.{}.attention.self", {"query": QUERY, "key": KEY, "value": VALUE}),
            **within("encoder.layer.{}.attention.output", {"dense": OUT, "LayerNorm": MIXER_NORM}),
            **within("encoder.layer.{}.intermediate", {"dense": UP}),
            **within("encoder.layer.{}.output", {"dense": DOWN, "LayerNorm": FEEDFORWARD_NORM}),
        }
    ),
    prefix="bert.",
    heads={
        (MaskedOutput,): Head(
            "BertForMaskedLM",
            {
                **modules(within("cls.predictions.transform", {"dense": "head.inner", "LayerNorm": "head.norm"})),
                "cls.predictions.bias": "head.bias",
            },
        ),
        (PerToken,): Head("BertForTokenClassification", LINEAR, labels),
        (SpanScores,): Head(
            "BertForQuestionAnswering", {f"qa_outputs.{w}": f"head.out.{w}" for w in ("weight", "bias")}
        ),
    },
    ignored=("embeddings.position_ids", *POOLER, "cls.seq_relationship.weight", "cls.seq_relationship.bias"),
)
