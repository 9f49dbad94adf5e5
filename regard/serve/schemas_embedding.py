"""Requests and answers of the TEI routes (text-embeddings-inference)."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import UNSET, Meta, Struct, UnsetType

MAX_BATCH = 1024
Text = Annotated[str, Meta(min_length=1)]
Texts = Annotated[list[Text], Meta(min_length=1, max_length=MAX_BATCH)]
Pair = Annotated[list[Text], Meta(min_length=1, max_length=2, description="a text, or two that are compared")]
Truncate = Annotated[bool, Meta(description="cut a long text at the context instead of refusing it")]


class EmbedRequest(Struct, kw_only=True, forbid_unknown_fields=True):
    inputs: Text | Texts
    normalize: bool | None = True
    truncate: Truncate | None = False
    truncation_direction: Literal["Right", "right"] | None = "Right"
    prompt_name: Annotated[str, Meta(description="not supported")] | None = None
    dimensions: Annotated[int, Meta(ge=1, description="only the width of the model's vectors")] | None = None
    model: str | None = None


class PredictParameters(Struct):
    """As huggingface_hub's InferenceClient sends them."""

    top_k: Annotated[int, Meta(ge=1)] | None = None
    function_to_apply: Literal["sigmoid", "softmax", "none"] | None = None


class PredictRequest(Struct, kw_only=True, forbid_unknown_fields=True):
    inputs: Annotated[
        Text | Annotated[list[Text | Pair], Meta(min_length=1, max_length=MAX_BATCH)],
        Meta(description="a text, [a text, its second text], or a batch: a list of lists"),
    ]
    raw_scores: Annotated[bool, Meta(description="logits instead of probabilities, up to a constant")] | None = False
    truncate: Truncate | None = False
    truncation_direction: Literal["Right", "right"] | None = "Right"
    parameters: PredictParameters | None = None
    model: str | None = None


class LabelScore(Struct):
    score: float
    label: str


class RerankRequest(Struct, kw_only=True, forbid_unknown_fields=True):
    query: Text
    texts: Texts
    raw_scores: bool | None = False
    return_text: bool | None = False
    truncate: Truncate | None = False
    truncation_direction: Literal["Right", "right"] | None = "Right"
    model: str | None = None


class Rank(Struct):
    index: int
    score: float
    text: str | UnsetType = UNSET


class SimilarityInputs(Struct, forbid_unknown_fields=True):
    source_sentence: Text
    sentences: Texts


class SimilarityRequest(Struct, kw_only=True, forbid_unknown_fields=True):
    inputs: SimilarityInputs
    parameters: PredictParameters | None = None
    model: str | None = None


class RootRequest(Struct, kw_only=True, forbid_unknown_fields=True):
    """A request of /embed, /predict or /similarity, whichever the model can."""

    inputs: (
        Text | Annotated[list[Text | Pair], Meta(min_length=1, max_length=MAX_BATCH)] | dict[str, Text | Texts]
    )  # fields of SimilarityInputs
    normalize: bool | None = None
    raw_scores: bool | None = None
    truncate: Truncate | None = None
    truncation_direction: Literal["Right", "right"] | None = None
    prompt_name: str | None = None
    dimensions: Annotated[int, Meta(ge=1)] | None = None
    parameters: PredictParameters | None = None
    model: str | None = None


class PoolingType(Struct):
    pooling: str


class LabelMaps(Struct):
    id2label: dict[str, str]
    label2id: dict[str, int]


class ModelType(Struct, omit_defaults=True):
    embedding: PoolingType | None = None
    classifier: LabelMaps | None = None
    reranker: LabelMaps | None = None


class InfoResponse(Struct):
    model_id: str
    model_dtype: str
    model_type: ModelType
    max_input_length: int
    max_batch_tokens: int
    max_client_batch_size: int
    auto_truncate: bool
    version: str


class InfoQuery(Struct):
    model: Annotated[str, Meta(min_length=1)] | None = None
