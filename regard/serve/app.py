"""The application: the routes of all APIs, behind the limits and the access log."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route, compile_path

from regard.serve import (
    completion_api,
    embedding_api,
    health,
    look_api,
    openai_api,
    page_files,
    run_api,
    transcription_api,
    translate_api,
)
from regard.serve.access_log import AccessLog, record_of
from regard.serve.errors import NATIVE, ApiError, ErrorShape, to_api_error
from regard.serve.limits import RequestLimits
from regard.serve.openapi import Operation, openapi_document
from regard.serve.prometheus import ServerMetrics
from regard.serve.registry import ModelRegistry
from regard.serve.serve_options import ServeOptions

APIS = (openai_api, completion_api, transcription_api, translate_api, embedding_api, run_api, look_api)
OPERATIONS: list[Operation] = [operation for api in APIS for operation in api.operations]


class RouteTable:
    """The error shape of every path, and the paths that need no key: health, metrics, and what a browser opens."""

    def __init__(self, public: Sequence[Route]):
        self._public = [(route.methods or set(), route.path_regex) for route in public]
        self._shapes = [
            (operation.method, compile_path(operation.path)[0], operation.errors) for operation in OPERATIONS
        ]
        self._shapes += [("", route.path_regex, api.operations[0].errors) for api in APIS for route in api.routes]

    def shape_of(self, method: str, path: str) -> ErrorShape:
        """Of the operation, or of the API at this path if it has none with this method."""
        matches = [(other, shape) for other, pattern, shape in self._shapes if pattern.match(path)]
        return next((shape for other, shape in matches if other == method), matches[0][1] if matches else NATIVE)

    def is_public(self, method: str, path: str) -> bool:
        return any(method in methods and pattern.match(path) for methods, pattern in self._public)


def create_app(registry: ModelRegistry, options: ServeOptions) -> Starlette:
    """The application for any ASGI server; `options.detect` is a name in the registry."""
    own = [*health.routes, Route("/openapi.json", show_document), *page_files.routes]
    routes = [*own, *(route for api in APIS for route in api.routes)]
    table = RouteTable([*own, *(route for route in look_api.routes if "GET" in (route.methods or ()))])
    metrics = ServerMetrics()
    limits = Middleware(RequestLimits, options=options, shape_of=table.shape_of, is_public=table.is_public)
    handlers = dict.fromkeys((ApiError, HTTPException, ValueError, FloatingPointError), handle_error)
    handlers[ClientDisconnect] = handle_disconnect
    app = Starlette(
        routes=routes,
        middleware=[Middleware(AccessLog, metrics=metrics), limits],
        exception_handlers=handlers,
        lifespan=lifespan,
    )
    app.router.redirect_slashes = False
    app.state.registry, app.state.options, app.state.metrics = registry, options, metrics
    app.state.shape_of = table.shape_of
    app.state.is_ready = app.state.is_draining = False
    return app


async def show_document(request: Request) -> Response:
    """GET /openapi.json"""
    return JSONResponse(openapi_document(OPERATIONS))


async def handle_error(request: Request, error: Exception) -> Response:
    shape: ErrorShape = request.app.state.shape_of(request.method, request.url.path)
    return shape.response(to_api_error(error))


async def handle_disconnect(request: Request, error: Exception) -> Response:
    record_of(request.scope).has_left = True
    return await handle_error(request, error)


@asynccontextmanager
async def lifespan(app: Starlette) -> AsyncIterator[None]:
    registry: ModelRegistry = app.state.registry
    tasks = [asyncio.create_task(registry.watch()), asyncio.create_task(load_first(app, registry))]
    yield
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    await registry.close()


async def load_first(app: Starlette, registry: ModelRegistry) -> None:
    """The others are loaded by their first request."""
    with suppress(ApiError):
        async with registry.use(None):
            app.state.is_ready = True
