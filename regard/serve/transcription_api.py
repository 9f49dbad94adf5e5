"""OpenAI's route for speech: /v1/audio/transcriptions, by a `translate` model that reads audio."""

from __future__ import annotations

import asyncio
from pathlib import Path

from starlette.datastructures import FormData, UploadFile
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from regard.modalities.audio.audio_io import open_audio
from regard.serve.errors import INVALID, OPENAI, ApiError
from regard.serve.jobs import run_job
from regard.serve.json_response import json_response
from regard.serve.openapi import JSON, Operation
from regard.serve.registry import ServedModel
from regard.serve.schemas_openai import TranscriptionRequest, TranscriptionResponse
from regard.serve.text_inputs import convert_fields, registry_of
from regard.serve.uploads import saved_upload, without_path

MULTIPART = "multipart/form-data"
TASKS = ("translate",)
MAX_FIELDS = 100


async def transcribe(request: Request) -> Response:
    """POST /v1/audio/transcriptions"""
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() != MULTIPART:
        raise ApiError(415, f"a recording is sent as {MULTIPART}: send the part file and the field model")
    limit = request.app.state.options.max_body
    async with request.form(max_files=1, max_fields=MAX_FIELDS, max_part_size=limit) as form:
        body, upload = read_fields(form), form.get("file")
        if not isinstance(upload, UploadFile):
            raise ApiError(INVALID, "the part file is missing: send a recording", "file")
        content, filename = await upload.read(), upload.filename
    async with registry_of(request).use(body.model, TASKS) as served:
        if served.loaded.modality.name != "audio":
            problem = f"{served.name} reads {served.loaded.modality.unit}, not recordings"
            raise ApiError(INVALID, f"{problem}: choose another model", "model", "wrong_modality")
        async with saved_upload(content, filename, served.loaded.modality) as file:
            return await transcribe_file(request, served, body, file)


def read_fields(form: FormData) -> TranscriptionRequest:
    values = {name: value for name, value in form.items() if name != "file"}
    body = convert_fields(values, TranscriptionRequest)
    if body.prompt:
        raise ApiError(INVALID, "prompt is not supported: leave it out", "prompt")
    return body


async def transcribe_file(request: Request, served: ServedModel, body: TranscriptionRequest, file: Path) -> Response:
    loaded = served.loaded
    options = loaded.make_options(**({"temperature": body.temperature} if body.temperature else {}))
    try:
        done = await run_job(request, served, str(file), options)
    except ApiError as error:
        message = without_path(error.message, file)
        raise ApiError(error.status, message, error.param, error.code, error.headers) from None
    text = done.predictions[0].text
    if body.response_format == "text":
        return PlainTextResponse(f"{text}\n")
    answer = TranscriptionResponse(text)
    if body.response_format == "verbose_json":
        seconds = await asyncio.to_thread(duration, file)
        answer = TranscriptionResponse(text, "transcribe", body.language or "", seconds)
    return json_response(answer)


def duration(file: Path) -> float:
    recording = open_audio(str(file))
    return len(recording.samples) / recording.sampling_rate


routes = [Route("/v1/audio/transcriptions", transcribe, methods=["POST"])]
operations = [
    Operation(
        "POST",
        "/v1/audio/transcriptions",
        "Transcribe a recording",
        TranscriptionRequest,
        TranscriptionResponse,
        OPENAI,
        ["OpenAI"],
        multipart=True,
        content_type=(JSON, "text/plain"),
    )
]
