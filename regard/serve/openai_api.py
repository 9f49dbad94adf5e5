"""OpenAI's routes for models and embeddings: /v1/models and /v1/embeddings."""

from __future__ import annotations

from base64 import b64encode

import msgspec
import numpy as np
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from regard.serve.errors import OPENAI, ApiError
from regard.serve.jobs import read_struct
from regard.serve.json_response import json_response
from regard.serve.model_description import describe_model
from regard.serve.openapi import Operation
from regard.serve.registry import ModelInfo
from regard.serve.schemas_openai import (
    EmbeddingItem,
    EmbeddingRequest,
    EmbeddingResponse,
    EmbeddingUsage,
    ModelCard,
    ModelList,
)
from regard.serve.text_inputs import (
    check_dimensions,
    check_text_model,
    make_input,
    nearest_name,
    registry_of,
    run_texts,
)

EMBEDDING_TASKS = ("embed", "classify", "regress")  # of models that have one vector for an input


async def list_models(request: Request) -> Response:
    """GET /v1/models"""
    return json_response(ModelList([model_card(info) for info in registry_of(request).infos()]))


async def show_model(request: Request) -> Response:
    """GET /v1/models/{model}"""
    name = request.path_params["model"]
    infos = {info.name: info for info in registry_of(request).infos()}
    if name not in infos:
        raise ApiError(404, f"unknown model {name!r:.80}: {nearest_name(name, infos)}", "model", "model_not_found")
    return json_response(model_card(infos[name]))


def model_card(info: ModelInfo) -> ModelCard:
    names = {"id": info.name, "object": "model", "created": info.created, "owned_by": "regard"}
    return msgspec.convert({**describe_model(info), **names}, ModelCard)


async def create_embeddings(request: Request) -> Response:
    """POST /v1/embeddings"""
    body = await read_struct(request, EmbeddingRequest)
    texts = [body.input] if isinstance(body.input, str) else body.input
    async with registry_of(request).use(body.model, EMBEDDING_TASKS) as served:
        loaded = check_text_model(served)
        raws = [make_input(loaded, [text], "input") for text in texts]
        jobs = await run_texts(request, served, raws, embed=True, truncate=False)
    vectors = [job.vector or [] for job in jobs]
    check_dimensions(body.dimensions, len(vectors[0]))
    pack = encode_vector if body.encoding_format == "base64" else list
    tokens = sum(job.prompt_tokens for job in jobs)
    items = [EmbeddingItem(i, pack(vector)) for i, vector in enumerate(vectors)]
    return json_response(EmbeddingResponse(items, body.model, EmbeddingUsage(tokens, tokens)))


def encode_vector(vector: list[float]) -> str:
    """float32, little-endian, in base64."""
    return b64encode(np.asarray(vector, "<f4").tobytes()).decode()


routes = [
    Route("/v1/models", list_models),
    Route("/v1/models/{model:path}", show_model),
    Route("/v1/embeddings", create_embeddings, methods=["POST"]),
]
operations = [
    Operation("GET", "/v1/models", "List the models", None, ModelList, OPENAI, ["OpenAI"]),
    Operation("GET", "/v1/models/{model}", "Describe a model", None, ModelCard, OPENAI, ["OpenAI"]),
    Operation(
        "POST",
        "/v1/embeddings",
        "Embed one text or several",
        EmbeddingRequest,
        EmbeddingResponse,
        OPENAI,
        ["OpenAI"],
    ),
]
