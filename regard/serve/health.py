"""Health and metrics: /health/live, /health/ready and /metrics, which need no key."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from regard.serve.prometheus import CONTENT_TYPE


async def live(request: Request) -> Response:
    """The process answers."""
    return JSONResponse({"status": "live"})


async def ready(request: Request) -> Response:
    """The first model is in memory, or was; and the server is not shutting down."""
    state = request.app.state
    status = "draining" if state.is_draining else "ready" if state.is_ready else "loading"
    return JSONResponse({"status": status}, 200 if status == "ready" else 503)


async def metrics(request: Request) -> Response:
    return Response(request.app.state.metrics.render(request.app.state.registry), media_type=CONTENT_TYPE)


routes = [
    Route("/health/live", live),
    Route("/health/ready", ready),
    Route("/health", ready),  # its name in the APIs of LibreTranslate and TEI
    Route("/metrics", metrics),
]
