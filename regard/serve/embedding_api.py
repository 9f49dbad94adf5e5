"""TEI's routes (text-embeddings-inference): POST / and /embed, /predict, /rerank, /similarity, /info.

/embed        `embed` models: vectors
/predict      `classify` and `regress` models: labels with scores
/rerank       `embed` models: cosine of the query and each text; or a model that reads the two as a pair
/             the first of these that the model can
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np
import numpy.typing as npt
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from regard import __version__
from regard.serve.errors import INVALID, TEI, ApiError
from regard.serve.jobs import read_struct
from regard.serve.json_response import json_response
from regard.serve.openapi import Operation
from regard.serve.prediction_scores import all_labels, label_scores, relevance
from regard.serve.registry import ServedModel
from regard.serve.schemas_embedding import (
    MAX_BATCH,
    EmbedRequest,
    InfoQuery,
    InfoResponse,
    LabelMaps,
    LabelScore,
    ModelType,
    PoolingType,
    PredictRequest,
    Rank,
    RerankRequest,
    RootRequest,
    SimilarityRequest,
)
from regard.serve.text_inputs import (
    check_dimensions,
    check_text_model,
    convert_fields,
    make_input,
    max_tokens,
    registry_of,
    run_texts,
)

EMBED, PREDICT = ("embed",), ("classify", "regress")
Vectors = npt.NDArray[np.float64]


async def answer_root(request: Request) -> Response:
    """POST /: what the model is for."""
    body = await read_struct(request, RootRequest)
    name = body.model or first_text_model(request, (*EMBED, *PREDICT))
    is_similarity = isinstance(body.inputs, dict)
    async with registry_of(request).use(name, EMBED if is_similarity else (*EMBED, *PREDICT)) as served:
        fields = {key: value for key, value in msgspec.to_builtins(body).items() if value is not None}
        if is_similarity:
            return await run_similarity(request, served, convert_fields(fields, SimilarityRequest))
        if served.loaded.task_name in EMBED:
            return await run_embed(request, served, convert_fields(fields, EmbedRequest))
        return await run_predict(request, served, convert_fields(fields, PredictRequest))


def first_text_model(request: Request, tasks: Sequence[str]) -> str | None:
    """The first model with one of these tasks that reads texts, and is not the language detector."""
    fits = [info for info in registry_of(request).infos() if info.task in tasks and info.modality == "text"]
    names = [info.name for info in fits]
    return next((name for name in names if name != request.app.state.options.detect), names[0] if names else None)


async def embed(request: Request) -> Response:
    """POST /embed"""
    body = await read_struct(request, EmbedRequest)
    async with registry_of(request).use(body.model or first_text_model(request, EMBED), EMBED) as served:
        return await run_embed(request, served, body)


async def run_embed(request: Request, served: ServedModel, body: EmbedRequest) -> Response:
    if body.prompt_name:
        raise ApiError(INVALID, "prompt_name is not supported: put the prompt before the text", "prompt_name")
    texts = [body.inputs] if isinstance(body.inputs, str) else body.inputs
    vectors = await embed_texts(request, served, texts, bool(body.truncate))
    check_dimensions(body.dimensions, vectors.shape[1])
    return json_response((unit(vectors) if body.normalize in (None, True) else vectors).tolist())


async def embed_texts(request: Request, served: ServedModel, texts: Sequence[str], truncate: bool) -> Vectors:
    """(N,D), one row for each text."""
    jobs = await run_texts(request, served, texts, embed=True, truncate=truncate)
    return np.array([job.vector for job in jobs], np.float64)


def unit(vectors: Vectors) -> Vectors:
    """Rows of length 1; a row of zeros stays."""
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    return vectors / np.where(lengths > 0, lengths, 1.0)


async def predict(request: Request) -> Response:
    """POST /predict"""
    body = await read_struct(request, PredictRequest)
    async with registry_of(request).use(body.model or first_text_model(request, PREDICT), PREDICT) as served:
        return await run_predict(request, served, body)


async def run_predict(request: Request, served: ServedModel, body: PredictRequest) -> Response:
    loaded = check_text_model(served)
    is_batch = not isinstance(body.inputs, str) and any(isinstance(item, list) for item in body.inputs)
    raws = [make_input(loaded, texts, "inputs") for texts in predict_inputs(body)]
    jobs = await run_texts(request, served, raws, all_labels(loaded), truncate=bool(body.truncate))
    parameters = body.parameters
    is_raw = bool(body.raw_scores) or (parameters is not None and parameters.function_to_apply == "none")
    top = parameters.top_k if parameters else None
    answers = [label_scores(loaded.task, job.predictions, is_raw)[:top] for job in jobs]
    return json_response(answers if is_batch else answers[0])


def predict_inputs(body: PredictRequest) -> list[list[str]]:
    """One or two texts for each input: "a", ["a", "b"] for a pair, or [["a"], ["b", "c"]] for a batch."""
    if isinstance(body.inputs, str):
        return [[body.inputs]]
    texts = [item for item in body.inputs if isinstance(item, str)]
    if len(texts) < len(body.inputs):
        return [[item] if isinstance(item, str) else item for item in body.inputs]
    if len(texts) > 2:
        problem = f"inputs has {len(texts)} texts, and a pair has two"
        raise ApiError(INVALID, f'{problem}: send a batch as [["first"], ["second"]]', "inputs")
    return [texts]


async def rerank(request: Request) -> Response:
    """POST /rerank"""
    body = await read_struct(request, RerankRequest)
    tasks = (*EMBED, *PREDICT)
    async with registry_of(request).use(body.model or first_text_model(request, tasks), tasks) as served:
        scores = await rank_scores(request, served, body)
    order = sorted(range(len(scores)), key=lambda i: -scores[i])
    ranks = [Rank(i, scores[i], body.texts[i]) if body.return_text else Rank(i, scores[i]) for i in order]
    return json_response(ranks)


async def rank_scores(request: Request, served: ServedModel, body: RerankRequest) -> list[float]:
    """How relevant each text is to the query."""
    loaded, truncate = check_text_model(served), bool(body.truncate)
    if loaded.task_name in EMBED:
        return await cosines(request, served, body.query, body.texts, truncate)
    raws = [make_input(loaded, [body.query, text], "texts") for text in body.texts]
    jobs = await run_texts(request, served, raws, all_labels(loaded), truncate=truncate)
    return [relevance(loaded.task, job.predictions, bool(body.raw_scores)) for job in jobs]


async def similarity(request: Request) -> Response:
    """POST /similarity"""
    body = await read_struct(request, SimilarityRequest)
    async with registry_of(request).use(body.model or first_text_model(request, EMBED), EMBED) as served:
        return await run_similarity(request, served, body)


async def run_similarity(request: Request, served: ServedModel, body: SimilarityRequest) -> Response:
    texts = body.inputs.sentences
    return json_response(await cosines(request, served, body.inputs.source_sentence, texts, truncate=False))


async def cosines(
    request: Request, served: ServedModel, query: str, texts: Sequence[str], truncate: bool
) -> list[float]:
    vectors = unit(await embed_texts(request, served, [query, *texts], truncate))
    products: list[float] = (vectors[1:] @ vectors[0]).tolist()
    return products


async def show_info(request: Request) -> Response:
    """GET /info"""
    body, tasks = convert_fields(dict(request.query_params), InfoQuery), (*EMBED, *PREDICT)
    async with registry_of(request).use(body.model or first_text_model(request, tasks), tasks) as served:
        loaded = check_text_model(served)
        dtype = str(next(loaded.reference.parameters()).dtype).removeprefix("torch.")
        limits, labels = served.scheduler.options, getattr(loaded.task, "labels", ["LABEL_0"])
        maps = LabelMaps({str(i): name for i, name in enumerate(labels)}, {name: i for i, name in enumerate(labels)})
        kinds = {
            "embed": ModelType(embedding=PoolingType(getattr(loaded.task, "pooling", "mean"))),
            "classify": ModelType(classifier=maps),
            "regress": ModelType(reranker=maps),
        }
        kind, length = kinds[loaded.task_name], max_tokens(loaded)
        return json_response(
            InfoResponse(served.name, dtype, kind, length, limits.max_batch_tokens, MAX_BATCH, False, __version__)
        )


routes = [
    Route("/", answer_root, methods=["POST"]),
    Route("/embed", embed, methods=["POST"]),
    Route("/predict", predict, methods=["POST"]),
    Route("/rerank", rerank, methods=["POST"]),
    Route("/similarity", similarity, methods=["POST"]),
    Route("/info", show_info),
]
Scores = list[LabelScore | list[LabelScore]]
TAGS = ["text-embeddings-inference"]
operations = [
    Operation("POST", "/", "Embed, compare or classify, by the first model that can", RootRequest, list, TEI, TAGS),
    Operation("POST", "/embed", "Embed one text or several", EmbedRequest, list[list[float]], TEI, TAGS),
    Operation("POST", "/predict", "Scores of all labels", PredictRequest, Scores, TEI, TAGS),
    Operation("POST", "/rerank", "Order texts by their relevance to a query", RerankRequest, list[Rank], TEI, TAGS),
    Operation("POST", "/similarity", "Compare a text with others", SimilarityRequest, list[float], TEI, TAGS),
    Operation("GET", "/info", "Describe the model", None, InfoResponse, TEI, TAGS, query=InfoQuery),
]
