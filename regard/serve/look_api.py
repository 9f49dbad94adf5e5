"""POST /v1/look/{model}: the look page of one input, as HTML or as a link that a browser opens.

A link holds 128 random bits and expires, because a frame of the page cannot send an API key. The page runs in a sandbox
without an origin: its scripts reach neither the server nor what a browser stores for it.
"""

from __future__ import annotations

import secrets
import time
from collections import OrderedDict
from contextlib import AsyncExitStack

import msgspec
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import Route

from regard.loaded_model import LoadedModel
from regard.modalities.protocols import Target
from regard.serve.errors import NATIVE, ApiError
from regard.serve.openapi import Operation
from regard.serve.run_api import Query, hide_path, open_query
from regard.serve.schemas_run import LookRequest, PageLink
from regard.serve.traces import MAX_TRACED, check_length, run_trace
from regard.view.report import ModelReport
from regard.view.trace import is_translator

MAX_PAGES = 32  # links that are valid at the same time
LINK_SECONDS = 900
LOOK_POLICY = (
    "sandbox allow-scripts; default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:"
)
LOOK_HEADERS = {
    "Content-Security-Policy": LOOK_POLICY,
    "Cache-Control": "no-store",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}


class PageLinks:
    """Look pages in memory, by random name; the oldest are dropped."""

    def __init__(self) -> None:
        self._pages: OrderedDict[str, tuple[float, str]] = OrderedDict()

    def add(self, html: str) -> str:
        name = secrets.token_urlsafe(16)
        self._pages[name] = time.monotonic() + LINK_SECONDS, html
        while len(self._pages) > MAX_PAGES:
            self._pages.popitem(last=False)
        return name

    def get(self, name: str) -> str | None:
        expires, html = self._pages.get(name, (0.0, ""))
        if expires > time.monotonic():
            return html
        self._pages.pop(name, None)
        return None


def page_links(request: Request) -> PageLinks:
    """Those of this server."""
    state = request.app.state
    if not hasattr(state, "page_links"):
        state.page_links = PageLinks()
    links: PageLinks = state.page_links
    return links


async def make_look_page(request: Request) -> Response:
    """POST /v1/look/{model}"""
    async with AsyncExitStack() as stack:
        query, fields = await open_query(stack, request, LookRequest)
        try:
            html = await run_trace(query.served, lambda loaded: render_report(loaded, query, fields.target))
        except ApiError as error:
            raise hide_path(error, query.file) from error
    if not fields.link:
        return HTMLResponse(html, headers=LOOK_HEADERS)
    link = PageLink(f"/look/{page_links(request).add(html)}")
    return Response(msgspec.json.encode(link), media_type="application/json")


def render_report(loaded: LoadedModel, query: Query, target: str | None) -> str:
    """The page of a request; of a text that the model wrote and that is too long, the page of its end."""
    raw = last_tokens(loaded, query.raw) if loaded.task.target is Target.NEXT else query.raw
    check_length(loaded, raw, target or "")
    report = ModelReport(loaded, raw, target if is_translator(loaded.task) else None)
    html = report.page.html
    return html if query.file is None else html.replace(str(query.file), query.file.name)


def last_tokens(loaded: LoadedModel, text: str) -> str:
    if loaded.task.preprocessor.tokenizer is None:
        return text
    tokenizer, limit = loaded.task.tokenizer, min(MAX_TRACED, loaded.model.body.config.context)
    [ids] = tokenizer.encode([text])
    return text if len(ids) < limit else tokenizer.decode([ids[-limit + 8 :]])[0].lstrip()


async def open_look_page(request: Request) -> Response:
    """GET /look/{name}"""
    html = page_links(request).get(request.path_params["name"])
    if html is None:
        raise ApiError(404, "this look page has expired: open it again from the answer", code="expired")
    return HTMLResponse(html, headers=LOOK_HEADERS)


routes = [
    Route("/v1/look/{model}", make_look_page, methods=["POST"]),
    Route("/look/{name}", open_look_page, methods=["GET"]),
]
operations = [
    Operation(
        "POST",
        "/v1/look/{model}",
        "The look page of one input: text/html, or a link to it",
        LookRequest,
        PageLink,
        NATIVE,
        ["native"],
        content_type=("application/json", "text/html"),
    )
]
