"""BERT and RoBERTa with their heads (Devlin et al. 2018, Liu et al. 2019)."""

from __future__ import annotations

from dataclasses import replace

from regard.hub.family_map import FamilyMap, Fields, HeadMap, Weights
from regard.hub.tables.shared_entries import ACTIVATION, LINEAR, POOLER, STACK, TEXT, head_label_keys, layer, modules
from regard.parts.heads import Classifier, MaskedLMHead, SpanHead, TokenClassifier
from regard.parts.pooling import Pooler


def _heads(family: str, masked_lm: Weights, classifier: Weights) -> dict[tuple[type, ...], HeadMap]:
    return {
        (MaskedLMHead,): HeadMap(f"{family}ForMaskedLM", masked_lm),
        (Classifier, Pooler): HeadMap(f"{family}ForSequenceClassification", classifier, head_label_keys),
        (TokenClassifier,): HeadMap(f"{family}ForTokenClassification", LINEAR, head_label_keys),
        (SpanHead,): HeadMap(f"{family}ForQuestionAnswering", modules({"qa_outputs": "head.out"})),
    }


def _positions_after_pad(config: Fields) -> object:
    """RoBERTa's positions start after the id of the padding: its position table has pad + 1 unused rows."""
    rows, pad = config["max_position_embeddings"], config.get("pad_token_id")
    pad = 1 if pad is None else pad
    return rows - pad - 1 if isinstance(rows, int) and isinstance(pad, int) else rows  # others are refused later


INNER, INNER_NORM = "head.transform.inner", "head.transform.norm"
BERT = FamilyMap(
    family="bert",
    architecture="BertModel",
    model="bert",
    config_fields={
        **(TEXT | STACK),
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
        **{"hidden_act": "gelu", "layer_norm_eps": 1e-12, "hidden_dropout_prob": 0.1},
        **{"type_vocab_size": 2, "pad_token_id": 0, "sep_token_id": -1},
    },
    aliases={"LayerNorm.weight": ("LayerNorm.gamma",), "LayerNorm.bias": ("LayerNorm.beta",)},
    weights=modules(
        {
            "embeddings.word_embeddings": "body.tokens",
            "embeddings.position_embeddings": "body.positions",
            "embeddings.token_type_embeddings": "body.segments",
            "embeddings.LayerNorm": "body.embed_norm",
            **layer("encoder.layer.{}.attention.self", {"query": "query", "key": "key", "value": "value"}),
            **layer("encoder.layer.{}.attention.output", {"dense": "out", "LayerNorm": "mixer norm"}),
            **layer("encoder.layer.{}", {"intermediate.dense": "up", "output.dense": "down"}),
            **layer("encoder.layer.{}", {"output.LayerNorm": "feedforward norm"}),
        }
    ),
    prefix="bert.",
    heads=_heads(
        "Bert",
        modules({"cls.predictions.transform.dense": INNER, "cls.predictions.transform.LayerNorm": INNER_NORM})
        | {"cls.predictions.bias": "head.bias"},
        modules({"bert.pooler.dense": "head.pooling.dense"}) | LINEAR,
    ),
    tied={
        "cls.predictions.decoder.weight": "embeddings.word_embeddings.weight",
        "cls.predictions.decoder.bias": "cls.predictions.bias",
    },
    ignored=("embeddings.position_ids",),
    preserved=(*POOLER, "cls.seq_relationship.weight", "cls.seq_relationship.bias"),
)
ROBERTA = replace(
    BERT,
    family="roberta",
    architecture="RobertaModel",
    fixed_fields={"positions_after_pad": True},
    derived_fields={"context": _positions_after_pad},
    written_keys={**BERT.written_keys, "max_position_embeddings": lambda c: c["context"] + c["pad"] + 1},
    defaults={**BERT.defaults, "pad_token_id": 1},
    prefix="roberta.",
    heads=_heads(
        "Roberta",
        modules({"lm_head.dense": INNER, "lm_head.layer_norm": INNER_NORM}) | {"lm_head.bias": "head.bias"},
        modules({"classifier.dense": "head.pooling.dense", "classifier.out_proj": "head.out"}),
    ),
    tied={"lm_head.decoder.weight": "embeddings.word_embeddings.weight", "lm_head.decoder.bias": "lm_head.bias"},
    preserved=POOLER,
)
