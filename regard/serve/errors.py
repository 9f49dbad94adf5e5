"""Errors over HTTP: one exception, and the JSON of it in the shape of each API.

OpenAI           {"error": {"message", "type", "param", "code"}}
LibreTranslate   {"error": "message"}
TEI              {"error": "message", "error_type": "Validation"}
native           {"error": {"message", "param", "code"}}
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from http import HTTPStatus

import msgspec
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.responses import Response

from regard.scheduler import Cancelled, DeadlineExceeded, InputTooLong, QueueFull
from regard.validate import FieldError

INVALID = 422  # status of an invalid value; an error shape may have another
CLIENT_LEFT = 499  # in logs and metrics only: nobody reads the response
INTERNAL = "the server failed to answer this request: its log has the cause"


class ApiError(Exception):
    """A request that ends with an error.

    Args:
        status: the HTTP status.
        message: one sentence with the remedy.
        param: the field of the request that is wrong.
        code: a short name that programs compare.
        headers: further headers of the response.
    """

    def __init__(
        self,
        status: int,
        message: str,
        param: str | None = None,
        code: str | None = None,
        headers: Mapping[str, str] | None = None,
    ):
        super().__init__(message)
        self.status, self.message, self.param, self.code = status, message, param, code
        self.headers = dict(headers or {})


class OpenAiErrorDetail(msgspec.Struct):
    message: str
    type: str
    param: str | None
    code: str | None


class OpenAiError(msgspec.Struct):
    error: OpenAiErrorDetail


class LibreTranslateError(msgspec.Struct):
    error: str


class TeiError(msgspec.Struct):
    error: str
    error_type: str


class NativeErrorDetail(msgspec.Struct):
    message: str
    param: str | None
    code: str | None


class NativeError(msgspec.Struct):
    error: NativeErrorDetail


ErrorBody = OpenAiError | LibreTranslateError | TeiError | NativeError


class ErrorShape:
    """The errors of one API: the type of their JSON, for the OpenAPI document, and the status of an invalid value."""

    def __init__(self, kind: type[msgspec.Struct], make: Callable[[ApiError], ErrorBody], invalid: int = INVALID):
        self.kind, self.make, self.invalid = kind, make, invalid

    def status(self, error: ApiError) -> int:
        return self.invalid if error.status == INVALID else error.status

    def __call__(self, error: ApiError) -> bytes:
        """The JSON body."""
        return msgspec.json.encode(self.make(error))

    def response(self, error: ApiError) -> Response:
        return Response(self(error), self.status(error), error.headers, "application/json")


def openai_type(status: int) -> str:
    named = {401: "authentication_error", 403: "permission_error", 429: "rate_limit_error"}
    return named.get(status, "server_error" if status >= 500 else "invalid_request_error")


def tei_type(status: int) -> str:
    named = {422: "Tokenizer", 429: "Overloaded", 503: "Unhealthy"}
    return named.get(status, "Backend" if status >= 500 else "Validation")


OPENAI = ErrorShape(
    OpenAiError,
    lambda e: OpenAiError(OpenAiErrorDetail(e.message, openai_type(e.status), e.param, e.code)),
    invalid=400,
)
LIBRETRANSLATE = ErrorShape(LibreTranslateError, lambda e: LibreTranslateError(e.message), invalid=400)
TEI = ErrorShape(TeiError, lambda e: TeiError(e.message, tei_type(e.status)))
NATIVE = ErrorShape(NativeError, lambda e: NativeError(NativeErrorDetail(e.message, e.param, e.code)))


def to_api_error(error: Exception) -> ApiError:
    """What the client is told about an exception; an unexpected one is only named in the log."""
    match error:
        case ApiError():
            return error
        case QueueFull():
            return ApiError(429, str(error), code="queue_full", headers={"Retry-After": str(error.retry_after)})
        case InputTooLong():
            return ApiError(413, str(error), code="context_length_exceeded")
        case DeadlineExceeded():
            return ApiError(
                504, str(error) or "the answer was not ready before the deadline of the request: ask for less"
            )
        case Cancelled():
            return ApiError(503, str(error) or "the server is shutting down: try again later")
        case ClientDisconnect():
            return ApiError(CLIENT_LEFT, "the client left")
        case FieldError():
            return ApiError(INVALID, str(error), param=error.field)
        case HTTPException():
            message = error.detail if error.detail != phrase(error.status_code) else status_message(error.status_code)
            return ApiError(error.status_code, message, headers=error.headers)
        case ValueError():
            return ApiError(INVALID, str(error))
        case FloatingPointError():
            return ApiError(500, str(error), code="not_finite")
    return ApiError(500, INTERNAL, code="internal_error")


def phrase(status: int) -> str:
    return HTTPStatus(status).phrase if status in {*HTTPStatus} else ""


def status_message(status: int) -> str:
    named = {
        404: "there is nothing at this path: /openapi.json lists all paths",
        405: "this path does not take this method: /openapi.json lists the methods of all paths",
    }
    return named.get(status, phrase(status))
