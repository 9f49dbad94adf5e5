"""One HTML page that shows what a model did, whole in itself: no library, no network, no server.

    page(data) = page/page.html with page/page.css, all scripts of page/ and the data inside

The data are one JSON object: {"title", "made", "about": [[what, value]], "tabs": [tab]}, where a tab has a "kind", a
"title" and what "says" in a sentence what to look for; each kind has its own script. Many numbers travel as a `blob`.
A number that is not finite becomes null: JSON has no word for it.
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
from typing import Any

import numpy as np
import numpy.typing as npt

from regard.atomic import naming

PARTS = Path(__file__).parent / "page"
HEIGHT = 760  # pixels that a notebook gives to the page
SHARED = ("elements", "numbers", "words", "colours", "controls", "maps", "chart")  # scripts that the others use
KINDS = ("attention", "steps", "stream", "positions", "beam", "picture", "similarity", "training", "heads")


def page(data: dict[str, Any]) -> str:
    """The page that shows `data`, as one HTML text."""
    told = json.dumps(plain(data), allow_nan=False, separators=(",", ":"))
    return Template(part("page.html")).substitute(
        title=escape(data["title"]),
        style=part("page.css"),
        script="\n".join(part(f"{name}.js") for name in (*SHARED, *KINDS, "tabs")),
        data=told.replace("<", r"\u003c"),  # no text can end the script that holds it
    )


@dataclass(frozen=True)
class Page:
    """A page to save or, in a notebook, to look at."""

    data: dict[str, Any]

    @cached_property
    def html(self) -> str:
        return page(self.data)

    def save(self, file: str | Path) -> Path:
        file = Path(file)
        with naming(file):
            file.write_text(self.html, encoding="utf-8")
        return file

    def _repr_html_(self) -> str:
        inside = escape(self.html)
        return f'<iframe srcdoc="{inside}" style="width: 100%; height: {HEIGHT}px; border: 0"></iframe>'


def blob(array: npt.NDArray[Any]) -> str:
    """Numbers as a text: base64 of the zlib-deflated little-endian bytes, float32 or uint8."""
    if not (np.issubdtype(array.dtype, np.floating) or array.dtype in (np.bool_, np.uint8)):
        raise ValueError(f"a blob holds floats, bytes or truth values, not {array.dtype}")
    kind = "<f4" if np.issubdtype(array.dtype, np.floating) else "u1"
    return b64encode(zlib.compress(array.astype(kind).tobytes())).decode("ascii")


def part(name: str) -> str:
    return (PARTS / name).read_text(encoding="utf-8")


def plain(value: Any) -> Any:
    """What JSON knows: numbers of NumPy become Python's, and numbers that are not finite become None."""
    if isinstance(value, dict):
        return {str(key): plain(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [plain(one) for one in value]
    if isinstance(value, np.generic | np.ndarray):
        return plain(value.tolist())
    return None if isinstance(value, float) and not math.isfinite(value) else value
