"""Deadlines of a connection: uvicorn's HTTP/1.1 protocol, which itself waits for ever for a request.

    connected ──headers──▶ request ──body──▶ complete ──▶ answered ──▶ idle (uvicorn closes it after some seconds)
         408 after `header_timeout`    408 after `body_timeout`   closed if the client does not read

A connection beyond `max_connections` gets status 503. Refused clients may read why: what they still send is dropped
for `LINGER` seconds before the connection is closed, because closing with unread data would reset it.
"""

from __future__ import annotations

import asyncio
import socket
import sys
from collections.abc import Callable
from http import HTTPStatus
from typing import ClassVar, NamedTuple

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from regard.serve.errors import NATIVE, ApiError, ErrorShape

LINGER = 2.0  # seconds in which a refused client may read the response
MAX_LINGERING = 64  # refused connections that linger; further ones are reset
DRAIN_GRACE = 0.5  # seconds in which an idle connection may still send a request that is on its way at a shutdown


class ConnectionLimits(NamedTuple):
    """Limits of every connection, and what to call for a response that does not come from the application."""

    max_connections: int
    header_timeout: float
    body_timeout: float
    shape_of: Callable[[str, str], ErrorShape]  # of a method and a path
    on_refusal: Callable[[int], None]  # the status of a connection that has sent no complete headers
    is_draining: Callable[[], bool]


class DeadlineProtocol(H11Protocol):
    """A connection with deadlines."""

    limits: ClassVar[ConnectionLimits]
    lingering: ClassVar[set[DeadlineProtocol]]

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as in uvicorn
        super().connection_made(transport)
        # asyncio does this only for sockets of a named protocol. With Nagle's algorithm, the body of a response would
        # wait for the acknowledgement of its headers, which clients delay by 40 ms.
        connection = transport.get_extra_info("socket")
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, True)
        self._timer: asyncio.TimerHandle | None = None
        self._phase: tuple[str, object] = ("", None)
        self._is_refused = self._is_draining = False
        if len(self.connections) > self.limits.max_connections:
            count = self.limits.max_connections
            error = ApiError(503, f"all {count} connections of the server are in use: try again later")
            return self._refuse(error)
        self._watch()
        return self.shutdown() if self.limits.is_draining() else None

    def connection_lost(self, exc: Exception | None) -> None:
        self._set_timer(0, None)
        self.lingering.discard(self)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self._is_refused:
            return
        super().data_received(data)
        self._watch()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self.transport.is_closing():  # it closes when the client has read the response
            self._set_timer(LINGER, self.transport.abort)
        elif self._phase[0] == "body":  # refused by its headers
            self._set_timer(LINGER, self._close)
        else:
            self._watch()

    def timeout_keep_alive_handler(self) -> None:
        super().timeout_keep_alive_handler()
        self._set_timer(LINGER, self.transport.abort)

    def pause_writing(self) -> None:
        super().pause_writing()
        self._write_timer = self.loop.call_later(self.limits.body_timeout, self.transport.abort)

    def resume_writing(self) -> None:
        super().resume_writing()
        self._write_timer.cancel()

    def shutdown(self) -> None:
        """Requests that the client has sent are still answered."""
        self._is_draining = True
        if self.cycle is not None and not self.cycle.response_complete:
            self.cycle.keep_alive = False
        elif self._phase[0] != "headers" or not self.conn.trailing_data[0]:
            self._set_timer(DRAIN_GRACE, self._close)

    def send_400_response(self, msg: str) -> None:
        """uvicorn calls this while it handles the exception of h11."""
        cause = sys.exc_info()[1]
        if isinstance(cause, h11.RemoteProtocolError):
            self._refuse(ApiError(cause.error_status_hint, f"this is no valid HTTP request: {cause}"))
        else:
            self._refuse(ApiError(400, msg))

    def _watch(self) -> None:
        """Start the deadline of the phase that the connection is in, when that begins."""
        if self._is_refused or self.transport.is_closing():
            return
        if self._is_draining and self.cycle is not None and not self.cycle.response_complete:
            self.cycle.keep_alive = False
        phase = self._find_phase(), self.cycle
        if phase == self._phase:
            return
        self._phase = phase
        seconds = {"headers": self.limits.header_timeout, "body": self.limits.body_timeout}.get(phase[0], 0.0)
        self._set_timer(seconds, self._expire if seconds else None)

    def _find_phase(self) -> str:
        if self.conn.their_state is h11.SEND_BODY:
            return "body"
        if self.conn.their_state is h11.IDLE and (self.cycle is None or self.conn.trailing_data[0]):
            return "headers"
        return ""

    def _expire(self) -> None:
        part = self._phase[0]
        seconds = self.limits.header_timeout if part == "headers" else self.limits.body_timeout
        if part == "headers" and not self.conn.trailing_data[0]:
            return self._close()  # a connection that was never used
        return self._refuse(
            ApiError(408, f"the {part} of the request did not arrive within {seconds:g} s: send faster")
        )

    def _refuse(self, error: ApiError) -> None:
        """Answer without the application, then drop all that arrives."""
        self._is_refused = True
        self.connections.discard(self)
        self._unset_keepalive_if_required()
        is_open = self.cycle is not None and not self.cycle.response_complete
        if is_open:  # the application logs the request, and cannot answer it any more
            self.scope["state"]["refusal"] = error.status
            self.cycle.disconnected = True
            self.cycle.message_event.set()
        else:
            self.limits.on_refusal(error.status)
        if self.transport.is_closing() or (is_open and self.cycle.response_started):
            return self._close()
        shape = self.limits.shape_of(self.scope["method"], self.scope["path"]) if is_open else NATIVE
        self.transport.write(response_bytes(error.status, shape(error)))
        if len(self.lingering) >= MAX_LINGERING or not self.transport.can_write_eof():
            return self._close()
        self.lingering.add(self)
        self.transport.write_eof()
        self.flow.resume_reading()
        return self._set_timer(LINGER, self._close)

    def _close(self) -> None:
        self.transport.close()
        self._set_timer(LINGER, self.transport.abort)

    def _set_timer(self, seconds: float, function: Callable[[], None] | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = None if function is None else self.loop.call_later(seconds, function)


def response_bytes(status: int, body: bytes) -> bytes:
    """A response without h11, whose state may not allow one."""
    reason = HTTPStatus(status).phrase
    head = f"HTTP/1.1 {status} {reason}\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n"
    return f"{head}Connection: close\r\n\r\n".encode() + body


def protocol_class(limits: ConnectionLimits) -> type[DeadlineProtocol]:
    """uvicorn makes an instance of this class for every connection."""
    return type("LimitedProtocol", (DeadlineProtocol,), {"limits": limits, "lingering": set()})
