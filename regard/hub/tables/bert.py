"""BERT and RoBERTa with their heads (Devlin et al. 2018, Liu et al. 2019)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from regard.hub.family_map import FamilyMap, Fields, HeadMap
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
    head_label_keys,
    modules,
    within,
)
from regard.parts.heads import Classifier, MaskedLMHead, SpanHead, TokenClassifier
from regard.parts.pooling import Pooler


@dataclass(frozen=True)
class OffsetPositionsMap(FamilyMap):
    """RoBERTa's positions start after the id of the padding: its position table has pad + 1 unused rows."""

    def config_from_hf(self, config: Fields) -> dict[str, Any]:
        fields = super().config_from_hf(config)
        rows, pad = fields["context"], fields["pad"]
        if isinstance(rows, int) and isinstance(pad, int):  # other types are refused later, by name
            fields["context"] = rows - pad - 1
        return fields

    def config_to_hf(self, fields: Fields, task_keys: Fields | None = None) -> dict[str, Any]:
        return super().config_to_hf({**fields, "context": fields["context"] + fields["pad"] + 1}, task_keys)


INNER, INNER_NORM = "head.transform.inner", "head.transform.norm"
_SPANS = modules({"qa_outputs": "head.out"})
BERT = FamilyMap(
    family="bert",
    architecture="BertModel",
    model="bert",
    config_fields=TEXT
    | STACK
    | {
        "hidden_act": ACTIVATION,
        "layer_norm_eps": "norm_eps",
        "hidden_dropout_prob": "dropout",
        "type_vocab_size": "segments",
        "sep_token_id": "sep",  # BertConfig has no such key
    },
    fixed_fields={"positions_after_pad": False},
    required={
        "position_embedding_type": "absolute",
        "is_decoder": False,
        "add_cross_attention": False,
        "tie_word_embeddings": True,
    },
    written_keys={"attention_probs_dropout_prob": 0.0},
    defaults={
        "hidden_act": "gelu",
        "layer_norm_eps": 1e-12,
        "hidden_dropout_prob": 0.1,
        "type_vocab_size": 2,
        "pad_token_id": 0,
        "sep_token_id": -1,
    },
    aliases={"LayerNorm.weight": ("LayerNorm.gamma",), "LayerNorm.bias": ("LayerNorm.beta",)},
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
        (MaskedLMHead,): HeadMap(
            "BertForMaskedLM",
            {
                **modules(within("cls.predictions.transform", {"dense": INNER, "LayerNorm": INNER_NORM})),
                "cls.predictions.bias": "head.bias",
            },
        ),
        (Classifier, Pooler): HeadMap(
            "BertForSequenceClassification",
            {**modules({"bert.pooler.dense": "head.pooling.dense"}), **LINEAR},
            head_label_keys,
        ),
        (TokenClassifier,): HeadMap("BertForTokenClassification", LINEAR, head_label_keys),
        (SpanHead,): HeadMap("BertForQuestionAnswering", _SPANS),
    },
    tied={
        "cls.predictions.decoder.weight": "embeddings.word_embeddings.weight",
        "cls.predictions.decoder.bias": "cls.predictions.bias",
    },
    ignored=("embeddings.position_ids",),
    preserved=(*POOLER, "cls.seq_relationship.weight", "cls.seq_relationship.bias"),
)
_ROBERTA = replace(
    BERT,
    family="roberta",
    architecture="RobertaModel",
    fixed_fields={"positions_after_pad": True},
    defaults={**BERT.defaults, "pad_token_id": 1},
    prefix="roberta.",
    heads={
        (MaskedLMHead,): HeadMap(
            "RobertaForMaskedLM",
            {
                **modules(within("lm_head", {"dense": INNER, "layer_norm": INNER_NORM})),
                "lm_head.bias": "head.bias",
            },
        ),
        (Classifier, Pooler): HeadMap(
            "RobertaForSequenceClassification",
            modules(within("classifier", {"dense": "head.pooling.dense", "out_proj": "head.out"})),
            head_label_keys,
        ),
        (TokenClassifier,): HeadMap("RobertaForTokenClassification", LINEAR, head_label_keys),
        (SpanHead,): HeadMap("RobertaForQuestionAnswering", _SPANS),
    },
    tied={
        "lm_head.decoder.weight": "embeddings.word_embeddings.weight",
        "lm_head.decoder.bias": "lm_head.bias",
    },
    preserved=POOLER,
)
ROBERTA = OffsetPositionsMap(**vars(_ROBERTA))
