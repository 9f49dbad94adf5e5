"""The bridge between a request and its job: the thread of the scheduler on one side, the event loop on the other.

    request ─read_struct─▶ fields ─run_job─▶ Done                      a plain response
                                  ─stream_job─▶ Token ... Done ─sse─▶  server-sent events

A client that leaves cancels its jobs.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import suppress
from typing import Any, TypeVar
from urllib.parse import parse_qs

import msgspec
from starlette.requests import ClientDisconnect, Request
from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from regard.scheduler import DeadlineExceeded, Done, Event, Failed, ScheduledJob, Token
from regard.serve.access_log import record_of
from regard.serve.errors import INVALID, ApiError, ErrorShape, to_api_error
from regard.serve.registry import ServedModel

T = TypeVar("T")
logger = logging.getLogger("regard.serve")

FORM = "application/x-www-form-urlencoded"
KEEP_ALIVE = 15.0  # seconds without an event after which a comment keeps the connection open
MAX_FIELDS = 1000  # of a form
SHORT = 1000  # characters of an input that is tokenized sooner than another thread takes over


async def run_job(request: Request, served: ServedModel, raw: str, options: object = None, embed: bool = False) -> Done:
    """Run one input to its end.

    Args:
        request: the client; its job is cancelled if it leaves.
        served: the model.
        raw: the input, as `LoadedModel.generate` takes it.
        options: what `LoadedModel.make_options` returns.
        embed: embed the input instead of predicting.

    Raises:
        ApiError: what the client is told.
        ClientDisconnect: the client left.
    """
    [done] = await run_jobs(request, served, [raw], options, embed)
    return done


async def run_jobs(
    request: Request, served: ServedModel, raws: Sequence[str], options: object = None, embed: bool = False
) -> list[Done]:
    """Run several inputs; all are cancelled if one fails."""
    streams = [JobStream(request, served, raw, options, embed, tokens=False) for raw in raws]
    left = asyncio.create_task(wait_for_disconnect(request))
    ends = asyncio.gather(*(stream.result() for stream in streams))
    try:
        await asyncio.wait((left, ends), return_when=asyncio.FIRST_COMPLETED)
        if not ends.done():
            raise ClientDisconnect
        return ends.result()
    finally:
        left.cancel()
        ends.cancel()
        for stream in streams:
            stream.close()


def stream_job(request: Request, served: ServedModel, raw: str, options: object = None) -> JobStream:
    """The tokens of one input, then Done. Closing it cancels the job."""
    return JobStream(request, served, raw, options)


async def wait_for_disconnect(request: Request) -> None:
    """Returns when the client has left. The body must have been read."""
    while (await request.receive())["type"] != "http.disconnect":
        pass


class JobStream(AsyncIterator[Token | Done]):
    """The events of a job, which is submitted when the first one is awaited."""

    def __init__(
        self,
        request: Request,
        served: ServedModel,
        raw: str,
        options: object,
        embed: bool = False,
        tokens: bool = True,
    ):
        self._job: ScheduledJob | None = None
        self._is_closed = self._is_submitted = False
        self._record = record_of(request.scope)
        self._record.model = served.name
        self._deadline = self._record.start + request.app.state.options.request_timeout
        self._scheduler, self._raw, self._options, self._embed = served.scheduler, raw, options, embed
        self._loop, self._events = asyncio.get_running_loop(), asyncio.Queue[Event]()
        self._wants_tokens = tokens
        self._is_short = len(raw) < SHORT and served.loaded.task.preprocessor.tokenizer is not None

    def __aiter__(self) -> JobStream:
        return self

    async def __anext__(self) -> Token | Done:
        if self._is_closed:
            raise StopAsyncIteration
        try:
            if not self._is_submitted:
                self._is_submitted = True
                if self._is_short:
                    self._submit()
                else:  # to tokenize it may take long
                    await asyncio.to_thread(self._submit)
            event = await self._next_event()
            if isinstance(event, Failed):
                raise event.error
        except Exception as error:
            self.close()
            raise to_api_error(error) from error
        except BaseException:
            self.close()
            raise
        if isinstance(event, Done):
            self._is_closed = True
            self._record.prompt_tokens += event.prompt_tokens
            self._record.completion_tokens += event.completion_tokens
        return event

    async def _next_event(self) -> Event:
        """The scheduler looks at the deadline between two steps only."""
        if not self._events.empty():
            return self._events.get_nowait()
        try:
            async with asyncio.timeout_at(self._deadline):  # the clock of the loop is `time.monotonic`
                return await self._events.get()
        except TimeoutError:
            raise DeadlineExceeded from None

    async def result(self) -> Done:
        """Wait for the end of the job."""
        async for event in self:
            if isinstance(event, Done):
                return event
        raise ClientDisconnect

    def close(self) -> None:
        """Cancel the job. Does nothing if it has ended."""
        if not self._is_closed:
            self._is_closed = True
            if self._job is not None:
                self._job.cancel()

    async def aclose(self) -> None:
        self.close()

    def __del__(self) -> None:
        self.close()

    def _submit(self) -> None:
        if "\0" in self._raw:
            raise ApiError(INVALID, "the input contains a NUL character: remove it")
        self._job = self._scheduler.submit(
            self._raw, self._options, embed=self._embed, deadline=self._deadline, listener=self._listen
        )
        if self._is_closed:  # while this thread submitted
            self._job.cancel()

    def _listen(self, event: Event) -> None:
        """Called from the thread of the scheduler."""
        if isinstance(event, Token):
            if self._record.first_token is None:
                self._record.first_token = time.monotonic() - self._record.start
            if not self._wants_tokens:
                return
        with suppress(RuntimeError):  # the loop has ended
            self._loop.call_soon_threadsafe(self._events.put_nowait, event)


async def read_struct(request: Request, kind: type[T]) -> T:
    """The fields of a request: a JSON body, a form, or the query of a GET without a body.

    Raises:
        ApiError: another content type (415), malformed content (400), or invalid values.
    """
    body = await request.body()
    content_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    try:
        if not body and request.method in ("GET", "HEAD"):
            return msgspec.convert(form_fields(request.scope["query_string"]), kind, strict=False)
        if content_type == FORM:
            return msgspec.convert(form_fields(body), kind, strict=False)
        if content_type not in ("application/json", "") and not content_type.endswith("+json"):
            raise ApiError(415, f"the content type {content_type!r:.80} is not accepted: send application/json")
        return msgspec.json.decode(body, type=kind)
    except msgspec.ValidationError as error:
        problem, _, path = str(error).partition(" - at `$")
        param = path.strip("`").strip(".")
        message = f"{param}: {problem}" if param else problem
        if content_type == FORM and body.lstrip().startswith(b"{"):
            message = "the body is JSON, but its content type a form: add the header Content-Type: application/json"
        raise ApiError(INVALID, message, param or None) from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        problem = "the body is empty: send a JSON object" if not body else f"the body cannot be read as JSON: {error}"
        raise ApiError(400, problem, code="malformed_body") from None


def form_fields(text: bytes) -> dict[str, str | list[str]]:
    """The fields of a form; one that occurs several times is a list."""
    try:
        values = parse_qs(text.decode(), keep_blank_values=True, errors="strict", max_num_fields=MAX_FIELDS)
    except ValueError as error:
        raise ApiError(400, f"the form cannot be read: {error}", code="malformed_body") from None
    return {name: items[0] if len(items) == 1 else items for name, items in values.items()}


def sse(events: AsyncIterator[str]) -> StreamingResponse:
    """Server-sent events, each a `data:` field. An error before the first event has a status of its own; a later one
    is sent as the last event. The iterator is closed when the client leaves."""
    return EventResponse(events)


class EventResponse(StreamingResponse):
    """Awaits the first event before the response starts, so that a refused request has the right status."""

    media_type = "text/event-stream"

    def __init__(self, events: AsyncIterator[str]):
        super().__init__(events, headers={"Cache-Control": "no-cache", "X-Accel-Buffering": "no"})
        self._events = events
        self._is_started = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        shape: ErrorShape = scope["app"].state.shape_of(scope["method"], scope["path"])
        sender = asyncio.create_task(self._send_events(send, shape))
        left = asyncio.create_task(wait_for_disconnect(Request(scope, receive)))
        try:
            await asyncio.wait((sender, left), return_when=asyncio.FIRST_COMPLETED)
            if sender.done():
                sender.result()
            else:
                record_of(scope).has_left = True
        finally:
            await end_tasks(sender, left)
            if isinstance(self._events, AsyncGenerator):
                await self._events.aclose()

    async def _send_events(self, send: Send, shape: ErrorShape) -> None:
        while True:
            event = asyncio.ensure_future(anext(self._events))
            try:
                while not (await asyncio.wait((event,), timeout=KEEP_ALIVE))[0]:
                    await self._send_chunk(send, ": keep-alive\n\n")
                await self._send_chunk(send, f"data: {event.result()}\n\n")
            except StopAsyncIteration:
                break
            except Exception as error:
                if not self._is_started:
                    raise
                if not isinstance(error, ApiError):
                    logger.error("a stream failed: %r", error, exc_info=error)
                await self._send_chunk(send, f"data: {shape(to_api_error(error)).decode()}\n\n")
                break
            finally:
                await end_tasks(event)
        await self._send_chunk(send, "", is_last=True)

    async def _send_chunk(self, send: Send, chunk: str, is_last: bool = False) -> None:
        if not self._is_started:
            self._is_started = True
            await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        await send({"type": "http.response.body", "body": chunk.encode(), "more_body": not is_last})


async def end_tasks(*tasks: asyncio.Future[Any]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
