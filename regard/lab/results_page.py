"""All experiments on one self-contained HTML page: claim, figure, table and verdict."""

from __future__ import annotations

import base64
import io
import re
from collections.abc import Sequence
from html import escape
from pathlib import Path
from textwrap import dedent
from typing import NamedTuple

from regard.lab.result import LabResult

STYLE = Path(__file__).with_suffix(".css")


class LabEntry(NamedTuple):
    name: str
    about: str  # its docstring: the question, then the details
    result: LabResult
    png: bytes  # its figure


def render_results(entries: Sequence[LabEntry]) -> str:
    holding = sum(entry.result.holds for entry in entries)
    links = "".join(
        f'<a href="#{entry.name}">{verdict_mark(entry.result)} {escape(entry.name)}</a>' for entry in entries
    )
    parts = "".join(render_entry(*entry) for entry in entries)
    return (
        '<!doctype html><html lang="en"><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1"><title>regard: the laboratory</title>'
        f"<style>\n{STYLE.read_text(encoding='utf-8')}</style><h1>The laboratory</h1>"
        f'<p class="soft">{holding} of {len(entries)} claims of the lectures hold on this machine. '
        "Run one experiment with <code>regard lab NAME</code>; <code>--help</code> lists its options.</p>"
        f"<nav>{links}</nav>{parts}</html>"
    )


def render_entry(name: str, about: str, result: LabResult, picture: bytes) -> str:
    question, details = about.removeprefix(f"{name}: ").split("\n", 1)
    return (
        f'<h2 id="{name}">{escape(name)}</h2><p class="soft">{escape(question)}</p>{paragraphs(details)}'
        f'<img alt="{escape(result.summary)}" src="data:image/png;base64,{base64.b64encode(picture).decode()}">'
        f"<p>{escape(result.summary)}</p>{html_table(result)}"
        f"<p>{verdict_mark(result)} {escape(verdict(result))}</p>"
    )


def paragraphs(text: str) -> str:
    """HTML of a docstring; an indented block is a formula and keeps its line breaks."""
    blocks = []
    for block in text.strip("\n").split("\n\n"):
        words = re.sub("`(.+?)`", r"<code>\1</code>", escape(dedent(block)))
        blocks.append(f"<pre>{words}</pre>" if block.startswith(" ") else f"<p>{words}</p>")
    return "".join(blocks)


def verdict_mark(result: LabResult) -> str:
    return '<span class="holds">✓</span>' if result.holds else '<span class="fails">✗</span>'


def verdict(result: LabResult) -> str:
    return f"{'It holds' if result.holds else 'It does NOT hold'}: {result.expected}"


def html_table(result: LabResult) -> str:
    if not result.table:
        return ""
    head = "".join(f"<th>{escape(name)}</th>" for name in result.table[0])
    rows = "".join(
        f"<tr>{''.join(f'<td>{escape(format_value(value))}</td>' for value in row.values())}</tr>"
        for row in result.table
    )
    return f'<div class="table"><table><tr>{head}</tr>{rows}</table></div>'


def format_value(value: str | float) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def figure_png(result: LabResult) -> bytes:
    file = io.BytesIO()
    result.figure.savefig(file, format="png", dpi=130)
    return file.getvalue()
