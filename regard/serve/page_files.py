"""The page at /: files of this package only, under a strict content security policy, and no build step.

/                    page/index.html
/page/NAME           a script or the style sheet of page/
/page/library.js     the scripts of view/page that both pages share, as one module
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from string import Template

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from regard import __version__
from regard.serve.errors import ApiError
from regard.view.page import ASSETS as VIEW_ASSETS

ASSETS = Path(__file__).parent / "page"
LIBRARY = ("elements", "numbers", "words", "colours", "controls", "chart")  # of view/page
EXPORTS = (
    *("box", "chart", "data", "divergingColour", "element", "formatNumber", "keepPainted", "note", "paint", "percent"),
    *("range", "repaintAll", "rovingFocus", "toFixed"),
)
TYPES = {".js": "text/javascript", ".css": "text/css", ".html": "text/html", ".svg": "image/svg+xml"}
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data: blob:; "
    "media-src blob:; frame-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "Content-Security-Policy": POLICY,
    "Cache-Control": "no-cache",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}


@cache
def read_files() -> dict[str, str]:
    """All files of the page, by name. Nothing else on the disk can be asked for."""
    files = {file.name: file.read_text(encoding="utf-8") for file in ASSETS.iterdir() if file.suffix in TYPES}
    files["index.html"] = Template(files["index.html"]).substitute(version=__version__)
    scripts = [(VIEW_ASSETS / f"{name}.js").read_text(encoding="utf-8") for name in LIBRARY]
    files["library.js"] = "\n".join([*scripts, f"export {{ {', '.join(EXPORTS)} }};\n"])
    files["look.css"] = (VIEW_ASSETS / "page.css").read_text(encoding="utf-8")
    return files


def file_response(name: str) -> Response:
    content = read_files().get(name)
    if content is None:
        raise ApiError(404, f"the page has no file {name!r:.80}: open /")
    return Response(content, headers=HEADERS, media_type=TYPES[Path(name).suffix])


async def open_page(request: Request) -> Response:
    """GET /"""
    return file_response("index.html")


async def page_file(request: Request) -> Response:
    """GET /page/{name}"""
    return file_response(request.path_params["name"])


routes = [Route("/", open_page, methods=["GET"]), Route("/page/{name}", page_file, methods=["GET"])]
