"""BERT and RoBERTa, with their heads."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from regard.hub.family_map import FamilyMap, Fields, Head
from regard.hub.tables.shared_entries import (
    ACTIVATION,
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
from regard.parts.heads import Classifier, MaskedOutput, PerToken, SpanScores
from regard.parts.pooling import Pooler


@dataclass(frozen=True)
class AfterPad(FamilyMap):
    """Their table of positions has a row for every id up to that of the padding, and only then those of the tokens."""

    def config_to_ours(self, config: Fields) -> dict[str, Any]:
        fields = super().config_to_ours(config)
        rows, pad = fields["context"], fields["pad"]
        if isinstance(rows, int) and isinstance(pad, int):  # what is no number is refused later, under its own name
            fields["context"] = rows - pad - 1
        return fields

    def config_to_theirs(self, fields: Fields, facts: Fields | None = None) -> dict[str, Any]:
        return super().config_to_theirs({**fields, "context": fields["context"] + fields["pad"] + 1}, facts)


INNER, INNER_NORM = "head.thought.inner", "head.thought.norm"
_SPANS = modules({"qa_outputs": "head.out"})
BERT = FamilyMap(
    family="bert",
    architecture="BertModel",
    model="bert",
    sizes=TEXT
    | STACK
    | {
        "hidden_act": ACTIVATION,
        "layer_norm_eps": "eps",
        "hidden_dropout_prob": "dropout",
        "type_vocab_size": "segments",
        "sep_token_id": "sep",  # ours
    },
    ours={"after_pad": False},
    theirs={
        "position_embedding_type": "absolute",
        "is_decoder": False,
        "add_cross_attention": False,
        "tie_word_embeddings": True,
    },
    written={"attention_probs_dropout_prob": 0.0},
    absent={
        "hidden_act": "gelu",
        "layer_norm_eps": 1e-12,
        "hidden_dropout_prob": 0.1,
        "type_vocab_size": 2,
        "pad_token_id": 0,
        "sep_token_id": -1,
    },
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
                **modules(within("cls.predictions.transform", {"dense": INNER, "LayerNorm": INNER_NORM})),
                "cls.predictions.bias": "head.bias",
            },
        ),
        (Classifier, Pooler): Head(
            "BertForSequenceClassification", {**modules({"bert.pooler.dense": "head.pooling.dense"}), **LINEAR}, labels
        ),
        (PerToken,): Head("BertForTokenClassification", LINEAR, labels),
        (SpanScores,): Head("BertForQuestionAnswering", _SPANS),
    },
    twins={
        "cls.predictions.decoder.weight": "embeddings.word_embeddings.weight",
        "cls.predictions.decoder.bias": "cls.predictions.bias",
    },
    ignored=("embeddings.position_ids",),
    kept=(*POOLER, "cls.seq_relationship.weight", "cls.seq_relationship.bias"),
)
_ROBERTA: dict[str, Any] = {
    "family": "roberta",
    "architecture": "RobertaModel",
    "ours": {"after_pad": True},
    "absent": {**BERT.absent, "pad_token_id": 1},
    "prefix": "roberta.",
    "heads": {
        (MaskedOutput,): Head(
            "RobertaForMaskedLM",
            {
                **modules(within("lm_head", {"dense": INNER, "layer_norm": INNER_NORM})),
                "lm_head.bias": "head.bias",
            },
        ),
        (Classifier, Pooler): Head(
            "RobertaForSequenceClassification",
            modules(within("classifier", {"dense": "head.pooling.dense", "out_proj": "head.out"})),
            labels,
        ),
        (PerToken,): Head("RobertaForTokenClassification", LINEAR, labels),
        (SpanScores,): Head("RobertaForQuestionAnswering", _SPANS),
    },
    "twins": {
        "lm_head.decoder.weight": "embeddings.word_embeddings.weight",
        "lm_head.decoder.bias": "lm_head.bias",
    },
    "kept": POOLER,
}
ROBERTA = AfterPad(**vars(BERT) | _ROBERTA)
