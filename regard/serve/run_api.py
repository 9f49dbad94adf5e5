"""The native API: POST /v1/run/{model} runs a model of any task on one input.

JSON or multipart/form-data ─▶ RunRequest, upload ─▶ one request of the scheduler ─▶ RunAnswer, or events:

data: {"text": " a", "token": 7, "logprob": -0.2}      for every token
data: {"done": {"predictions": [...], ...}}
data: [DONE]
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import NamedTuple, TypeVar
from weakref import WeakKeyDictionary

import msgspec
from anyio import to_thread
from starlette.datastructures import FormData, UploadFile
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from regard.receipts import make_receipt, model_hash
from regard.scheduler import Done, Token
from regard.serve.errors import INVALID, NATIVE, ApiError
from regard.serve.jobs import JobStream, read_struct, run_job, sse
from regard.serve.model_description import make_decode_options
from regard.serve.openapi import Operation
from regard.serve.registry import ServedModel
from regard.serve.request_fields import make_request
from regard.serve.schemas_run import RunAnswer, RunRequest, Usage
from regard.serve.traces import align_lines, attention_weights, require_alignment, run_trace
from regard.serve.uploads import decode_file, saved_upload, without_path
from regard.tasks.embed import Embed
from regard.view.trace import is_translator

R = TypeVar("R", bound=RunRequest)
MULTIPART = "multipart/form-data"
HASHES: WeakKeyDictionary[ServedModel, str] = WeakKeyDictionary()
encode = msgspec.json.Encoder().encode


class Query(NamedTuple):
    """A request that is ready for the scheduler."""

    request: Request
    served: ServedModel
    fields: RunRequest
    raw: str
    options: object
    file: Path | None

    @property
    def embeds(self) -> bool:
        """Whether the answer is the vector of the input."""
        return isinstance(self.served.loaded.task, Embed) and "\t" not in self.raw


async def read_request(request: Request, kind: type[R]) -> tuple[R, bytes | None]:
    """The fields and the uploaded bytes of a JSON body or of a form."""
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() != MULTIPART:
        fields = await read_struct(request, kind)
        return fields, None if fields.file is None else decode_file(fields.file)
    limit = request.app.state.options.max_body
    async with request.form(max_files=1, max_fields=1000, max_part_size=limit) as form:
        upload = form.get("file")
        fields = form_struct(form, kind)
        if isinstance(upload, UploadFile):
            return fields, await upload.read()
        return fields, None if fields.file is None else decode_file(fields.file)


def form_struct(form: FormData, kind: type[R]) -> R:
    """The fields of a form: options as JSON, and a part `input` or one per field of the input, repeated for a list."""
    known, values = {field.name for field in msgspec.structs.fields(kind)}, dict[str, object]()
    parts: dict[str, list[str]] = {}
    for name, value in form.multi_items():
        if isinstance(value, UploadFile):
            values["filename"] = value.filename
        else:
            parts.setdefault(name, []).append(value)
    inputs = {name: parts.pop(name) for name in [*parts] if name not in known}
    for name, texts in parts.items():
        values[name] = texts[0] if len(texts) == 1 else texts
    if inputs:
        values["input"] = inputs
    try:
        if isinstance(text := values.get("options"), str):
            values["options"] = msgspec.json.decode(text)
        return msgspec.convert(values, kind, strict=False)
    except msgspec.ValidationError as error:
        problem, _, path = str(error).partition(" - at `$")
        param = path.strip("`").strip(".")
        raise ApiError(INVALID, f"{param}: {problem}" if param else problem, param or None) from None
    except msgspec.DecodeError as error:
        raise ApiError(INVALID, f"options is not valid JSON: {error}", "options") from None


async def open_query(stack: AsyncExitStack, request: Request, kind: type[R]) -> tuple[Query, R]:
    """Everything that a request needs, until the stack is closed: its model and its upload."""
    fields, content = await read_request(request, kind)
    served = await stack.enter_async_context(request.app.state.registry.use(request.path_params["model"]))
    loaded, file = served.loaded, None
    if content is not None:
        file = await stack.enter_async_context(saved_upload(content, fields.filename, loaded.modality))
    raw = make_request(loaded.task_name, loaded.modality.name, fields, file)
    options = make_decode_options(loaded, fields.options)
    return Query(request, served, fields, raw, options, file), fields


async def run_model(request: Request) -> Response:
    """POST /v1/run/{model}"""
    async with AsyncExitStack() as stack:
        query, fields = await open_query(stack, request, RunRequest)
        if fields.alignment:
            require_alignment(query.served.loaded, query.options)
        if fields.stream:
            return sse(stream_answer(query, stack.pop_all()))
        try:
            done = await run_job(request, query.served, query.raw, query.options, query.embeds)
            return Response(encode(await make_answer(query, done)), media_type="application/json")
        except ApiError as error:
            raise hide_path(error, query.file) from error


async def stream_answer(query: Query, stack: AsyncExitStack) -> AsyncIterator[str]:
    """The events of an answer."""
    async with stack:
        try:
            async for event in JobStream(query.request, query.served, query.raw, query.options, query.embeds):
                if isinstance(event, Token):
                    yield encode({"text": event.text, "token": event.id, "logprob": event.logprob}).decode()
                else:
                    yield encode({"done": await make_answer(query, event)}).decode()
            yield "[DONE]"
        except ApiError as error:
            raise hide_path(error, query.file) from error


def hide_path(error: ApiError, file: Path | None) -> ApiError:
    return ApiError(error.status, without_path(error.message, file), error.param, error.code, error.headers)


async def make_answer(query: Query, done: Done) -> RunAnswer:
    """The answer, with the traces that were asked for."""
    served, fields = query.served, query.fields
    answer = RunAnswer(
        model=served.name,
        task=served.loaded.task_name,
        predictions=[{"text": p.text, "logprob": p.logprob, "score": p.score, **p.extra} for p in done.predictions],
        finish_reasons=done.finish_reasons,
        usage=Usage(done.prompt_tokens, done.completion_tokens),
    )
    if done.vector is not None:
        answer.vector = done.vector
    if query.request.app.state.options.reproducible:
        digest = await hash_of(served)
        details = (query.raw, query.options, done, query.embeds, query.file)
        answer.receipt = make_receipt(served.loaded, served.name, digest, *details)
    target = done.predictions[0].text if is_translator(served.loaded.task) else None
    if fields.alignment:
        answer.alignment = await run_trace(served, lambda loaded: align_lines(loaded, query.raw, target or ""))
    if fields.attention:
        answer.attention = await run_trace(served, lambda loaded: attention_weights(loaded, query.raw, target))
    return answer


async def hash_of(served: ServedModel) -> str:
    """The hash of the model, computed once."""
    if served not in HASHES:
        HASHES[served] = await to_thread.run_sync(model_hash, served.loaded)
    return HASHES[served]


routes = [Route("/v1/run/{model}", run_model, methods=["POST"])]
operations = [
    Operation(
        "POST",
        "/v1/run/{model}",
        "Run a model of any task on one input",
        RunRequest,
        RunAnswer,
        NATIVE,
        ["native"],
        streams=True,
    )
]
