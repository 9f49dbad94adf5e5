"""What a request must fulfil before its body is parsed: host, origin, key, content encoding and size of the body.

Host      a name of this server, if it listens on the loopback interface: a web page cannot reach it by DNS rebinding
Origin    of another site: refused, unless --cors allows it; without --cors no page of another site reads an answer
key       Authorization: Bearer KEY; or api_key in the query or the body of the LibreTranslate routes
body      at most --max-body-mb, by Content-Length, and counted while it arrives
"""

from __future__ import annotations

import ipaddress
import json
from collections.abc import Callable
from hmac import compare_digest
from urllib.parse import parse_qs, urlsplit

from starlette.datastructures import Headers, MutableHeaders, QueryParams
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from regard.serve.errors import LIBRETRANSLATE, ApiError, ErrorShape
from regard.serve.serve_options import ServeOptions

SAFE_METHODS = ("GET", "HEAD", "OPTIONS")
LOOPBACK_NAMES = ("localhost", "127.0.0.1", "[::1]")
ALLOWED_METHODS, ALLOWED_HEADERS = "GET, POST, OPTIONS", "Authorization, Content-Type, X-Request-Id"


class RequestLimits:
    """ASGI middleware.

    Args:
        app: the application.
        options: the limits.
        shape_of: the error shape of a method and a path.
        is_public: whether a method and a path need no key.
    """

    def __init__(
        self,
        app: ASGIApp,
        options: ServeOptions,
        shape_of: Callable[[str, str], ErrorShape],
        is_public: Callable[[str, str], bool],
    ):
        self.app, self.options, self.shape_of, self.is_public = app, options, shape_of, is_public
        names = (*LOOPBACK_NAMES, options.host, *options.allow_host)
        self.host_names = {host_name(name) for name in names}
        self.checks_host = is_loopback(options.host) or bool(options.allow_host)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return await self.app(scope, receive, send)
        headers, shape = Headers(scope=scope), self.shape_of(scope["method"], scope["path"])
        origin = headers.get("origin")
        send = self._with_cors(send, origin) if origin and self._allows(origin) else send
        try:
            self._check_host(headers)
            self._check_origin(scope["method"], headers)
            if scope["method"] == "OPTIONS" and origin and "access-control-request-method" in headers:
                return await self._preflight(origin)(scope, receive, send)
            self._check_body(headers)
            receive = self._limited(receive)
            if self.options.api_key is not None and not self.is_public(scope["method"], scope["path"]):
                receive = await self._check_key(scope, headers, shape, receive)
        except ApiError as error:
            return await shape.response(error)(scope, receive, send)
        return await self.app(scope, receive, send)

    def _check_host(self, headers: Headers) -> None:
        host = headers.get("host", "")
        if self.checks_host and host and host_name(host) not in self.host_names:
            problem = f"this server is not known as {host!r:.80}"
            raise ApiError(403, f"{problem}: start it with --allow-host {host_name(host)!r:.80}", code="wrong_host")

    def _check_origin(self, method: str, headers: Headers) -> None:
        """A page of another site may send requests with a body of any kind; only its origin tells them apart."""
        origin = headers.get("origin")
        if not origin or method in SAFE_METHODS or self._allows(origin):
            return
        if authority(urlsplit(origin).netloc) != authority(headers.get("host", "")) or origin == "null":
            remedy = "start the server with --cors ORIGIN to allow it"
            raise ApiError(403, f"requests of web pages from {origin!r:.80} are refused: {remedy}", code="wrong_origin")

    def _allows(self, origin: str) -> bool:
        return "*" in self.options.cors or origin in self.options.cors

    def _preflight(self, origin: str) -> Response:
        headers = {"Access-Control-Max-Age": "600", "Vary": "Origin"}
        if self._allows(origin):
            headers |= {
                "Access-Control-Allow-Methods": ALLOWED_METHODS,
                "Access-Control-Allow-Headers": ALLOWED_HEADERS,
            }
        return Response(status_code=204 if self._allows(origin) else 403, headers=headers)

    def _with_cors(self, send: Send, origin: str) -> Send:
        async def send_with_cors(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                headers["Access-Control-Allow-Origin"] = "*" if "*" in self.options.cors else origin
                headers["Access-Control-Expose-Headers"] = "X-Request-Id, Retry-After"
                headers.add_vary_header("Origin")
            await send(message)

        return send_with_cors

    def _check_body(self, headers: Headers) -> None:
        if (encoding := headers.get("content-encoding", "identity").lower()) != "identity":
            raise ApiError(415, f"the content encoding {encoding!r:.80} is not accepted: send the body as it is")
        length = headers.get("content-length", "0")
        if not length.isdigit() or int(length) > self.options.max_body:
            raise too_large(self.options.max_body, f"{int(length):,}" if length.isdigit() else length[:80])

    def _limited(self, receive: Receive) -> Receive:
        size = 0

        async def receive_limited() -> Message:
            nonlocal size
            message = await receive()
            size += len(message.get("body", b""))
            if size > self.options.max_body:
                raise too_large(self.options.max_body, f"at least {size:,}")
            return message

        return receive_limited

    async def _check_key(self, scope: Scope, headers: Headers, shape: ErrorShape, receive: Receive) -> Receive:
        """Raises ApiError for a missing or a wrong key. Returns what the application receives from: the key may have
        been in the body."""
        scheme, _, key = headers.get("authorization", "").partition(" ")
        key = key.strip() if scheme.lower() == "bearer" else ""
        if not key and shape is LIBRETRANSLATE:
            key = QueryParams(scope["query_string"]).get("api_key", "")
            if not key and scope["method"] != "OPTIONS":
                body, receive = await read_ahead(receive)
                key = key_in_body(body)
        if not key:
            remedy = "send the header Authorization: Bearer KEY"
            raise ApiError(401, f"this server needs a key: {remedy}", code="missing_key", headers=CHALLENGE)
        if not compare_digest(key.encode(), (self.options.api_key or "").encode()):
            raise ApiError(401, "the key is wrong: ask who runs this server", code="wrong_key", headers=CHALLENGE)
        return receive


CHALLENGE = {"WWW-Authenticate": "Bearer"}


def too_large(limit: int, size: str) -> ApiError:
    return ApiError(
        413, f"the body has {size} bytes, and this server takes {limit:,}: send less", code="body_too_large"
    )


async def read_ahead(receive: Receive) -> tuple[bytes, Receive]:
    """The whole body, and a function that receives it again."""
    messages: list[Message] = []
    while not messages or messages[-1].get("more_body"):
        messages.append(await receive())
    waiting = iter(messages)

    async def receive_again() -> Message:
        message = next(waiting, None)
        return await receive() if message is None else message

    return b"".join(message.get("body", b"") for message in messages), receive_again


def key_in_body(body: bytes) -> str:
    """The field api_key of a JSON object or a form; empty if there is none."""
    try:
        if not body.lstrip().startswith(b"{"):
            return parse_qs(body.decode(), max_num_fields=1000).get("api_key", [""])[0]
        key = json.loads(body).get("api_key")
    except (ValueError, RecursionError):
        return ""
    return key if isinstance(key, str) else ""


def is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def host_name(host: str) -> str:
    """A host without its port, in lower case: [::1] for [::1]:8000 and for ::1."""
    host = host.strip().lower()
    if host.startswith("["):
        return host.partition("]")[0] + "]"
    return f"[{host}]" if host.count(":") > 1 else host.partition(":")[0].rstrip(".")


def authority(text: str) -> str:
    """Host and port in lower case, without the default ports."""
    return text.lower().removesuffix(":80").removesuffix(":443")
