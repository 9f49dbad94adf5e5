"""The access log: one JSON line on standard error for every request, and the record that its handlers fill in.

{"time": "2026-01-01T12:00:00.000Z", "id": "5f0c...", "method": "POST", "path": "/translate", "status": 200,
 "milliseconds": 12.3, "model": "demo", "prompt_tokens": 5, "completion_tokens": 4}
"""

from __future__ import annotations

import asyncio
import logging
import re
import sys
import traceback
from dataclasses import dataclass, field
from datetime import UTC, datetime
from time import monotonic
from uuid import uuid4

import msgspec
from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from regard.scheduler import Cancelled
from regard.serve.errors import CLIENT_LEFT, ErrorShape, to_api_error
from regard.serve.prometheus import ServerMetrics

REQUEST_ID = re.compile(r"[\w.:-]{1,100}", re.ASCII)  # of a client or a proxy; others are replaced
MAX_PATH = 200  # characters of a path in the log


@dataclass
class RequestRecord:
    """What is known about a request; handlers add the model and the tokens."""

    id: str = field(default_factory=lambda: uuid4().hex)
    start: float = field(default_factory=monotonic)  # in seconds, as `time.monotonic`
    model: str | None = None
    prompt_tokens: int = 0
    completion_tokens: int = 0
    first_token: float | None = None  # seconds from the start
    has_left: bool = False  # the client, before the end of the answer


def record_of(scope: Scope) -> RequestRecord:
    """The record of a request; a new one if no middleware made it."""
    record = scope.setdefault("state", {}).setdefault("record", None) or RequestRecord()
    scope["state"]["record"] = record
    assert isinstance(record, RequestRecord)
    return record


def write_log(**values: object) -> None:
    """One line on standard error; values that are None are left out."""
    time = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    line = msgspec.json.encode({"time": time} | {key: value for key, value in values.items() if value is not None})
    print(line.decode(), file=sys.stderr, flush=True)


class JsonHandler(logging.Handler):
    """Warnings of uvicorn and asyncio, as lines of the same log."""

    def emit(self, record: logging.LogRecord) -> None:
        cause = "".join(traceback.format_exception(*record.exc_info)) if record.exc_info else None
        write_log(level=record.levelname.lower(), message=record.getMessage().strip(), traceback=cause)


class AccessLog:
    """ASGI middleware: gives every request an id, logs and counts it, and answers unexpected exceptions."""

    def __init__(self, app: ASGIApp, metrics: ServerMetrics):
        self.app, self.metrics = app, metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return await self.app(scope, receive, send)
        record, status = record_of(scope), CLIENT_LEFT
        name = Headers(scope=scope).get("x-request-id", "")
        record.id = name if REQUEST_ID.fullmatch(name) else record.id
        has_started = False

        async def send_with_id(message: Message) -> None:
            nonlocal status, has_started
            if message["type"] == "http.response.start":
                status, has_started = message["status"], True
                headers = MutableHeaders(scope=message)
                headers["X-Request-Id"], headers["X-Content-Type-Options"] = record.id, "nosniff"
            await send(message)

        self.metrics.active += 1
        try:
            await self.app(scope, receive, send_with_id)
        except Exception as error:
            write_log(level="error", id=record.id, message=repr(error), traceback=traceback.format_exc())
            if has_started:
                raise
            await self._answer(error, scope, receive, send_with_id)
        except asyncio.CancelledError:  # the server ends, and waits no longer
            if has_started:
                raise
            await self._answer(Cancelled(), scope, receive, send_with_id)
        finally:
            self.metrics.active -= 1
            refusal = scope["state"].get("refusal")  # by the protocol
            self._finish(scope, record, refusal or (CLIENT_LEFT if record.has_left else status))
        return None

    async def _answer(self, error: Exception, scope: Scope, receive: Receive, send: Send) -> None:
        shape: ErrorShape = scope["app"].state.shape_of(scope["method"], scope["path"])
        await shape.response(to_api_error(error))(scope, receive, send)

    def _finish(self, scope: Scope, record: RequestRecord, status: int) -> None:
        seconds = monotonic() - record.start
        route = getattr(scope.get("route"), "path", "other")
        self.metrics.observe_request(scope["method"], route, status, seconds)
        if record.model is not None:
            tokens = record.prompt_tokens, record.completion_tokens
            self.metrics.observe_answer(record.model, *tokens, record.first_token)
        write_log(
            id=record.id,
            method=scope["method"],
            path=scope["path"][:MAX_PATH],
            status=status,
            milliseconds=round(1000 * seconds, 1),
            model=record.model,
            prompt_tokens=record.prompt_tokens if record.model else None,
            completion_tokens=record.completion_tokens if record.model else None,
        )
