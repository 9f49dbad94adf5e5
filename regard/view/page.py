"""One self-contained HTML page of a report: no library, no network, no server.

    render_page(data) = page/page.html with page/page.css, all scripts of page/ and the data inlined

The data are one JSON object: {"title", "generator", "about": [[name, value]], "tabs": [tab]}, where a tab has a "kind",
a "title" and a "description" of what to look for; each kind has its own script. Arrays are stored as a `blob`. NaN and
infinity become null, since JSON has neither.
"""

from __future__ import annotations

import json
import math
import zlib
from base64 import b64encode
from dataclasses import dataclass
from functools import cached_property
from html import escape
from pathlib import Path
from string import Template

import numpy as np
import numpy.typing as npt

from regard.atomic import path_in_errors

ASSETS = Path(__file__).parent / "page"
NOTEBOOK_HEIGHT = 760  # pixels
LIBRARY = ("elements", "numbers", "words", "colours", "controls", "maps", "chart")  # scripts that the others use
Tab = dict[str, object]  # the data of a tab, or of the page
KINDS = ("attention", "steps", "lens", "positions", "beam", "image", "similarity", "training", "heads")


def render_page(data: Tab) -> str:
    """The page of `data` as HTML."""
    encoded = json.dumps(to_json(data), allow_nan=False, separators=(",", ":"))
    return Template(asset("page.html")).substitute(
        title=escape(str(data["title"])),
        style=asset("page.css"),
        script="\n".join(asset(f"{name}.js") for name in (*LIBRARY, *KINDS, "tabs")),
        data=encoded.replace("<", r"\u003c"),  # no text can end the script that holds it
    )


@dataclass(frozen=True)
class Page:
    """A page to save, or to display in a notebook."""

    data: Tab

    @cached_property
    def html(self) -> str:
        return render_page(self.data)

    def save(self, file: str | Path) -> Path:
        file = Path(file)
        with path_in_errors(file):
            file.write_text(self.html, encoding="utf-8")
        return file

    def _repr_html_(self) -> str:
        source = escape(self.html)
        return f'<iframe srcdoc="{source}" style="width: 100%; height: {NOTEBOOK_HEIGHT}px; border: 0"></iframe>'


def blob(array: npt.NDArray[np.generic]) -> str:
    """An array as text: base64 of its zlib-compressed little-endian bytes, float32 or uint8."""
    if not (np.issubdtype(array.dtype, np.floating) or array.dtype in (np.bool_, np.uint8)):
        raise ValueError(f"a blob holds floats, bytes or booleans, not {array.dtype}")
    dtype = "<f4" if np.issubdtype(array.dtype, np.floating) else "u1"
    return b64encode(zlib.compress(array.astype(dtype).tobytes())).decode("ascii")


def asset(name: str) -> str:
    return (ASSETS / name).read_text(encoding="utf-8")


def to_json(value: object) -> object:
    """Values that JSON can hold: NumPy numbers become Python's, NaN and infinity become None."""
    if isinstance(value, dict):
        return {str(key): to_json(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [to_json(item) for item in value]
    if isinstance(value, np.generic | np.ndarray):
        return to_json(value.tolist())
    return None if isinstance(value, float) and not math.isfinite(value) else value
