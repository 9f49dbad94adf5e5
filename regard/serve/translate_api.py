"""LibreTranslate's routes: /translate, /languages, /detect and /frontend/settings.

A model translates from the first language of --languages into the second; one that was trained both ways, also back.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, TypeVar

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from regard.hub.task_config import read_task_file
from regard.scheduler import Done
from regard.serve.errors import INVALID, LIBRETRANSLATE, ApiError
from regard.serve.jobs import form_fields, read_struct
from regard.serve.json_response import json_response
from regard.serve.languages import language_name
from regard.serve.openapi import Operation
from regard.serve.registry import ModelInfo, ServedModel
from regard.serve.schemas_translate import (
    DefaultLanguages,
    DetectedLanguage,
    DetectRequest,
    FrontendSettings,
    Language,
    LanguageName,
    TranslateRequest,
    TranslateResponse,
)
from regard.serve.text_inputs import check_text_model, convert_fields, make_input, registry_of, run_texts

R = TypeVar("R", bound=msgspec.Struct)
AUTO = "auto"
MIN_CONFIDENCE = 1.0  # per cent; languages below it are left out, except the best


class Direction(NamedTuple):
    source: str
    target: str
    back: bool  # from the second language of the model into the first


async def read_fields(request: Request, kind: type[R]) -> R:
    """A JSON body, a form, or the query: deep-translator sends no body."""
    if not await request.body() and request.url.query:
        return convert_fields(form_fields(request.scope["query_string"]), kind)
    return await read_struct(request, kind)


def languages_of(request: Request) -> tuple[str, str]:
    first, second = getattr(request.app.state.options, "languages", None) or ("en", "de")
    return first, second


def directions(request: Request, info: ModelInfo) -> list[Direction]:
    """What a model translates; known without its weights."""
    return language_pairs(request, bool((read_task_file(info.folder) or {}).get("both_ways")))


def language_pairs(request: Request, both_ways: bool) -> list[Direction]:
    first, second = languages_of(request)
    return [Direction(first, second, False), *([Direction(second, first, True)] if both_ways else [])]


def translators(request: Request) -> dict[str, ModelInfo]:
    """The models that translate texts."""
    infos = registry_of(request).infos()
    return {info.name: info for info in infos if info.task == "translate" and info.modality == "text"}


async def translate(request: Request) -> Response:
    """POST /translate"""
    body = await read_fields(request, TranslateRequest)
    if body.format == "html":
        raise ApiError(INVALID, "format must be text: this server does not translate html", "format")
    texts = [body.q] if isinstance(body.q, str) else body.q
    models = translators(request)
    name = body.model or next(iter(models), None)
    async with registry_of(request).use(name, ("translate",)) as served:
        check_text_model(served)
        pairs = language_pairs(request, getattr(served.loaded.task, "both_ways", False))
        check_target(body, pairs)
        detected = await detect_all(request, texts) if body.source == AUTO else []
        sources = [language.language for language in detected] or [body.source] * len(texts)
        chosen = [choose(source, body.target, pairs) for source in sources]
        answers = await translate_texts(request, served, texts, chosen, body.alternatives)
    return json_response(make_response(body, answers, detected))


def check_target(body: TranslateRequest, pairs: Sequence[Direction]) -> None:
    """Before a text is detected: no source of this server leads to another target."""
    if body.target not in [pair.target for pair in pairs] and body.target != body.source:
        raise ApiError(INVALID, unknown_direction(body.source, body.target, pairs), "target")


def choose(source: str, target: str, pairs: Sequence[Direction]) -> Direction | None:
    """The direction of a text; None if it is in the target language already."""
    if source == target and source in [pair.source for pair in pairs] + [pair.target for pair in pairs]:
        return None
    match = next((pair for pair in pairs if (pair.source, pair.target) == (source, target)), None)
    if match is None:
        raise ApiError(INVALID, unknown_direction(source, target, pairs), "source")
    return match


def unknown_direction(source: str, target: str, pairs: Sequence[Direction]) -> str:
    known = " and ".join(f"{pair.source} to {pair.target}" for pair in pairs)
    return f"this server does not translate {source:.16} to {target:.16}: it translates {known}"


async def translate_texts(
    request: Request, served: ServedModel, texts: Sequence[str], chosen: Sequence[Direction | None], alternatives: int
) -> list[list[str]]:
    """The translations of each text, best first. A blank text is its own translation."""
    answers = [[text] for text in texts]
    for back in (False, True):
        rows = [i for i, pair in enumerate(chosen) if pair and pair.back is back and texts[i].strip()]
        if rows:
            options = translate_options(served, back, alternatives)
            for i, done in zip(rows, await run_texts(request, served, [texts[i] for i in rows], options), strict=True):
                answers[i] = [prediction.text for prediction in done.predictions]
    return answers


def translate_options(served: ServedModel, back: bool, alternatives: int) -> object:
    beams = getattr(served.loaded.make_options(), "num_beams", 1)
    count = {"num_return": alternatives + 1, "num_beams": max(beams, alternatives + 1)} if alternatives else {}
    return served.loaded.make_options(back=back, **count)


def make_response(
    body: TranslateRequest, answers: Sequence[Sequence[str]], detected: list[DetectedLanguage]
) -> TranslateResponse:
    is_list = isinstance(body.q, list)
    response = TranslateResponse([best for best, *_ in answers] if is_list else answers[0][0])
    if detected:
        response.detectedLanguage = detected if is_list else detected[0]
    if body.alternatives:
        others = [[*rest] for _, *rest in answers]
        response.alternatives = [*others] if is_list else [*others[0]]
    return response


async def detect(request: Request) -> Response:
    """POST /detect"""
    body = await read_fields(request, DetectRequest)
    [done] = await run_detector(request, [body.q])
    languages = [language(prediction.text, prediction.score) for prediction in done.predictions]
    likely = [item for item in languages if item.confidence >= MIN_CONFIDENCE]
    return json_response(likely or languages[:1])


async def detect_all(request: Request, texts: Sequence[str]) -> list[DetectedLanguage]:
    """The most probable language of each text."""
    answers = await run_detector(request, texts)
    return [language(done.predictions[0].text, done.predictions[0].score) for done in answers]


def language(code: str, probability: float) -> DetectedLanguage:
    return DetectedLanguage(round(100 * min(1.0, max(0.0, probability)), 2), code)


async def run_detector(request: Request, texts: Sequence[str]) -> list[Done]:
    name = request.app.state.options.detect
    if name is None:
        remedy = "start the server with --detect FOLDER, or name the source language"
        raise ApiError(501, f"this server has no model that detects languages: {remedy}", "source")
    async with registry_of(request).use(name, ("classify",)) as served:
        loaded = check_text_model(served)
        raws = [make_input(loaded, [text.replace("\t", " ")], "q") for text in texts]
        options = loaded.make_options(num_return=max(2, len(getattr(loaded.task, "labels", ()))))
        return await run_texts(request, served, raws, options, truncate=True)


async def list_languages(request: Request) -> Response:
    """GET /languages"""
    targets: dict[str, list[str]] = {}
    for info in translators(request).values():
        for pair in directions(request, info):
            targets.setdefault(pair.source, []).append(pair.target)
            targets.setdefault(pair.target, [])
    languages = [Language(code, language_name(code), [*dict.fromkeys(names)]) for code, names in targets.items()]
    return json_response(languages)


async def show_settings(request: Request) -> Response:
    """GET /frontend/settings"""
    source, target = (LanguageName(code, language_name(code)) for code in languages_of(request))
    has_key = request.app.state.options.api_key is not None
    settings = FrontendSettings(-1, 500, has_key, has_key, False, False, [], DefaultLanguages(source, target))
    return json_response(settings)


routes = [
    Route("/translate", translate, methods=["POST"]),
    Route("/detect", detect, methods=["POST"]),
    Route("/languages", list_languages),
    Route("/frontend/settings", show_settings),
]
TAGS = ["LibreTranslate"]
operations = [
    Operation(
        "POST",
        "/translate",
        "Translate one text or several",
        TranslateRequest,
        TranslateResponse,
        LIBRETRANSLATE,
        TAGS,
        form=True,
    ),
    Operation(
        "POST",
        "/detect",
        "Detect the language of a text",
        DetectRequest,
        list[DetectedLanguage],
        LIBRETRANSLATE,
        TAGS,
        form=True,
    ),
    Operation("GET", "/languages", "List the languages", None, list[Language], LIBRETRANSLATE, TAGS),
    Operation(
        "GET",
        "/frontend/settings",
        "Settings of LibreTranslate's clients",
        None,
        FrontendSettings,
        LIBRETRANSLATE,
        TAGS,
    ),
]
