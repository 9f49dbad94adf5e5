"""The server process: uvicorn with our connection limits, and a shutdown that finishes what was accepted.

SIGTERM ─▶ accept what waits, then close the socket ─▶ answer all requests, at most --drain-timeout seconds
        ─▶ cancel the rest ─▶ end the schedulers ─▶ exit code 0
"""

from __future__ import annotations

import asyncio
import errno
import logging
import math
import signal
import socket
import sys
from collections.abc import Callable, Iterator
from types import FrameType

import uvicorn
from starlette.applications import Starlette

from regard.serve.access_log import JsonHandler, write_log
from regard.serve.http_protocol import ConnectionLimits, protocol_class
from regard.serve.serve_options import ServeOptions

KEEP_ALIVE = 30  # seconds that an idle connection stays open
MAX_HEADERS = 32 << 10  # bytes of the headers of a request
BACKLOG = 512  # connections that wait to be accepted


def bind(host: str, port: int) -> socket.socket:
    """A listening socket. Raises ValueError if the address cannot be used."""
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        return socket.create_server((host, port), family=family, backlog=BACKLOG)
    except (OSError, UnicodeError) as error:
        number = error.errno if isinstance(error, OSError) else None
        remedy = "stop the other process, or choose another --port" if number == errno.EADDRINUSE else "check --host"
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise ValueError(f"cannot listen on {host}:{port} ({reason}): {remedy}") from None


def url_of(listener: socket.socket) -> str:
    host, port = listener.getsockname()[:2]
    return f"http://{f'[{host}]' if ':' in host else host}:{port}"


class DrainingServer(uvicorn.Server):
    """A uvicorn server that loses no connection at a shutdown.

    Args:
        app: of `create_app`.
        options: the limits.
        on_start: called when the server accepts connections.
    """

    def __init__(self, app: Starlette, options: ServeOptions, on_start: Callable[[], None] = lambda: None):
        def count_refusal(status: int) -> None:
            app.state.metrics.observe_request("", "other", status, None)
            write_log(status=status)

        self._app, self._on_start = app, on_start
        limits = ConnectionLimits(
            options.max_connections,
            options.header_timeout,
            options.body_timeout,
            app.state.shape_of,
            count_refusal,
            lambda: self.should_exit,
        )
        self._protocol = protocol_class(limits)
        config = uvicorn.Config(
            app,
            http=self._protocol,
            loop="asyncio",
            ws="none",
            lifespan="on",
            log_config=None,
            access_log=False,
            proxy_headers=False,
            server_header=False,
            timeout_keep_alive=KEEP_ALIVE,
            timeout_graceful_shutdown=math.ceil(options.drain_timeout),
            h11_max_incomplete_event_size=MAX_HEADERS,
        )
        super().__init__(config)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        self._app.state.is_draining = True
        super().handle_exit(sig, frame)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._on_start()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Accept the connections that wait in the queue of the kernel, then stop."""
        self._app.state.is_draining = True
        loop = asyncio.get_running_loop()
        for listener in sockets or []:
            loop.remove_reader(listener)
        await asyncio.sleep(0)  # asyncio takes over what it has accepted
        waiting = [connection for listener in sockets or [] for connection in accept_waiting(listener)]
        tasks = [asyncio.create_task(self._take_over(connection)) for connection in waiting]
        await super().shutdown(sockets)  # first closes the listeners
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _take_over(self, connection: socket.socket) -> None:
        protocol = self._protocol(self.config, self.server_state, self.lifespan.state)
        await asyncio.get_running_loop().connect_accepted_socket(lambda: protocol, connection)


def accept_waiting(listener: socket.socket) -> Iterator[socket.socket]:
    while True:
        try:
            yield listener.accept()[0]
        except OSError:  # no more, or one that was reset
            return


def run_server(app: Starlette, options: ServeOptions, listener: socket.socket, on_start: Callable[[], None]) -> None:
    """Serve until SIGTERM or Ctrl-C."""
    logging.basicConfig(level=logging.WARNING, handlers=[JsonHandler()], force=True)
    logging.getLogger("regard.serve").setLevel(logging.INFO)
    server = DrainingServer(app, options, on_start)
    for number in (signal.SIGTERM, signal.SIGINT):
        # uvicorn raises the signal again at the end, for the handler that was there before it: it must not end the
        # process in another way, and a signal that comes before uvicorn listens to it counts as well.
        signal.signal(number, server.handle_exit)
    server.run([listener])
    sys.stdout.flush()
