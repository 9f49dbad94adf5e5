"""OpenAI's routes for text: /v1/completions and /v1/chat/completions, plain and as server-sent events.

prompts ─jobs─▶ TextEvent(choice, text, token, finish_reason) ... ─▶ one response, or a chunk for each event
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from typing import NamedTuple

from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route

from regard.scheduler import Done, Token
from regard.serve.chat_template import chat_prompt
from regard.serve.completion_shapes import ChatShape, CompletionShape, ResponseShape, TextEvent, add_usage
from regard.serve.errors import OPENAI
from regard.serve.generation_request import top_count, write_options
from regard.serve.jobs import JobStream, read_struct, run_jobs, sse, stream_job, wait_for_disconnect
from regard.serve.json_response import encode_json, json_response
from regard.serve.openapi import Operation
from regard.serve.registry import ServedModel
from regard.serve.schemas_openai import (
    ChatRequest,
    ChatResponse,
    CompletionRequest,
    CompletionResponse,
    FinishReason,
)
from regard.serve.text_inputs import check_text_model, registry_of

TASKS = ("write",)


class Generation(NamedTuple):
    """What a request asks of a model."""

    request: Request
    served: ServedModel
    prompts: Sequence[str]
    options: object
    n: int  # answers to each prompt
    shape: ResponseShape


async def complete(request: Request) -> Response:
    """POST /v1/completions"""
    return await answer(request, await read_struct(request, CompletionRequest))


async def complete_chat(request: Request) -> Response:
    """POST /v1/chat/completions"""
    return await answer(request, await read_struct(request, ChatRequest))


async def answer(request: Request, body: ChatRequest | CompletionRequest) -> Response:
    if body.stream:
        return sse(stream_chunks(request, body))
    async with registry_of(request).use(body.model, TASKS) as served:
        generation = await prepare(request, served, body)
        response = generation.shape.whole(await collect(generation))
        return json_response(response)


async def prepare(request: Request, served: ServedModel, body: ChatRequest | CompletionRequest) -> Generation:
    """The prompts and options of a request."""
    loaded, count, top = check_text_model(served), body.n or 1, top_count(body)
    options = write_options(loaded, body, limit_of(body), request.app.state.options.reproducible)
    if isinstance(body, ChatRequest):
        prompt = await asyncio.to_thread(chat_prompt, loaded.task.tokenizer, body.messages)
        return Generation(request, served, [prompt], options, count, ChatShape(request, served, [prompt], count, top))
    prompts = [body.prompt] if isinstance(body.prompt, str) else body.prompt
    shape = CompletionShape(request, served, prompts, count, top, bool(body.echo))
    return Generation(request, served, prompts, options, count, shape)


def limit_of(body: ChatRequest | CompletionRequest) -> int | None:
    """The most tokens of an answer; None for the default of the model's folder."""
    return getattr(body, "max_completion_tokens", None) or body.max_tokens


async def collect(generation: Generation) -> list[TextEvent]:
    """All events of a plain response; those of tokens only if the client wants log-probabilities."""
    request, served, prompts, options, count, shape = generation
    if shape.top is None:
        ends = await run_jobs(request, served, prompts, options)
        return [event for i, done in enumerate(ends) for event in end_events(done, i * count)]
    events = asyncio.create_task(list_events(generation))
    left = asyncio.create_task(wait_for_disconnect(request))
    try:
        await asyncio.wait((events, left), return_when=asyncio.FIRST_COMPLETED)
        if not events.done():
            raise ClientDisconnect
        return events.result()
    finally:
        events.cancel()
        left.cancel()
        await asyncio.gather(events, left, return_exceptions=True)


async def list_events(generation: Generation) -> list[TextEvent]:
    async with aclosing(text_events(generation)) as events:
        return [event async for event in events]


async def stream_chunks(request: Request, body: ChatRequest | CompletionRequest) -> AsyncGenerator[str, None]:
    """The answer as chunks, then [DONE]."""
    async with registry_of(request).use(body.model, TASKS) as served:
        generation, ends = await prepare(request, served, body), list[TextEvent]()
        async with aclosing(text_events(generation)) as events:
            async for event in events:
                ends += [event] if event.finish_reason else []
                for chunk in generation.shape.chunks(event):
                    yield encode_json(chunk).decode()
        if body.stream_options is not None and body.stream_options.include_usage:
            yield encode_json(generation.shape.usage_chunk(add_usage(ends))).decode()
        yield "[DONE]"


async def text_events(generation: Generation) -> AsyncGenerator[TextEvent, None]:
    """The events of all choices, as they come. Several answers to one prompt come as a whole."""
    request, served, prompts, options, count, shape = generation
    streams = [stream_job(request, served, prompt, options) for prompt in prompts]
    async with aclosing(merge(streams)) as events:
        async for i, event in events:
            if isinstance(event, Done):
                for end in end_events(event, i * count):
                    yield end._replace(text="") if count == 1 else end
            elif count == 1:
                is_end = event.id == shape.tokenizer.eos_token_id  # it only carries the rest of the text
                yield TextEvent(i, event.text, None if is_end else event)


def end_events(done: Done, first: int) -> list[TextEvent]:
    """The last events of the answers to one prompt, each with the whole text."""
    events = []
    for i, (prediction, reason) in enumerate(zip(done.predictions, done.finish_reasons, strict=True)):
        text = str(prediction.extra["continuation"])
        finish: FinishReason = "length" if reason == "length" else "stop"
        counts = (done.prompt_tokens, done.completion_tokens) if i == 0 else (0, 0)
        events.append(TextEvent(first + i, text, None, finish, text, *counts))
    return events


async def merge(streams: Sequence[JobStream]) -> AsyncGenerator[tuple[int, Token | Done], None]:
    """The events of several jobs, as they come, each with the number of its job."""
    waiting = {asyncio.ensure_future(anext(stream)): i for i, stream in enumerate(streams)}
    try:
        while waiting:
            ready, _ = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            for task in ready:
                i, event = waiting.pop(task), task.result()
                if not isinstance(event, Done):
                    waiting[asyncio.ensure_future(anext(streams[i]))] = i
                yield i, event
    finally:
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)
        for stream in streams:
            stream.close()


routes = [
    Route("/v1/completions", complete, methods=["POST"]),
    Route("/v1/chat/completions", complete_chat, methods=["POST"]),
]
operations = [
    Operation(
        "POST",
        "/v1/completions",
        "Continue one text or several",
        CompletionRequest,
        CompletionResponse,
        OPENAI,
        ["OpenAI"],
        streams=True,
    ),
    Operation(
        "POST",
        "/v1/chat/completions",
        "Answer a conversation, with the chat template of the model",
        ChatRequest,
        ChatResponse,
        OPENAI,
        ["OpenAI"],
        streams=True,
    ),
]
