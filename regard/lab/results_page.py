"""All experiments on one self-contained HTML page: claim, figure, table and verdict."""

from __future__ import annotations

import base64
import io
import re
from collections.abc import Sequence
from html import escape
from textwrap import dedent
from typing import NamedTuple

from regard.lab.result import LabResult

STYLE = """
:root { color-scheme: light dark;
  --ink: #1c1d21; --soft: #6b6f7a; --line: #e4e5ea; --paper: #fff; --good: #1a7f4b; --bad: #b3261e }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e8e8ec; --soft: #a0a3ad; --line: #33353d; --paper: #17181c; --good: #5fcf95; --bad: #ff8a80 }
}
body { margin: 0 auto; padding: 2rem 1rem 6rem; max-width: 46rem; background: var(--paper); color: var(--ink);
  font: 1rem/1.6 system-ui, sans-serif }
h1 { font-size: 1.7rem; margin-bottom: .3rem } h2 { margin: 3.2rem 0 .2rem; font-size: 1.25rem }
p { margin: .6rem 0 } .soft { color: var(--soft) } nav { columns: 9rem; margin: 1.5rem 0 } nav a { display: block }
a { color: inherit } img { max-width: 100%; background: #fff; border-radius: .4rem; margin: .6rem 0 }
pre { white-space: pre-wrap; padding: .8rem 1rem; border: 1px solid var(--line); border-radius: .4rem }
pre, code { font-size: .85rem }
.table { overflow-x: auto } table { border-collapse: collapse; font-size: .9rem; font-variant-numeric: tabular-nums }
td, th { padding: .25rem .8rem .25rem 0; text-align: right; border-bottom: 1px solid var(--line) }
td:first-child, th:first-child { text-align: left } .holds { color: var(--good) } .fails { color: var(--bad) }
"""


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
        f"<style>{STYLE}</style><h1>The laboratory</h1>"
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
