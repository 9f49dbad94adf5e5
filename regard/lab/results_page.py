"""All experiments on one page that opens from disk: what is claimed, what was found, and whether it held."""

from __future__ import annotations

import base64
import io
import re
from collections.abc import Sequence
from html import escape
from textwrap import dedent
from typing import NamedTuple

from regard.lab.result import Finding

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


class Shown(NamedTuple):
    name: str
    about: str  # its docstring: what is asked, then more of it
    finding: Finding
    picture: bytes  # a PNG of its figure


def site(found: Sequence[Shown]) -> str:
    held = sum(one.finding.holds for one in found)
    links = "".join(f'<a href="#{one.name}">{mark(one.finding)} {escape(one.name)}</a>' for one in found)
    parts = "".join(section(*one) for one in found)
    return (
        '<!doctype html><html lang="en"><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1"><title>regard: the laboratory</title>'
        f"<style>{STYLE}</style><h1>The laboratory</h1>"
        f'<p class="soft">{held} of {len(found)} claims of the lectures held on this machine. '
        "Run one with <code>regard lab NAME</code>; its knobs are its options.</p>"
        f"<nav>{links}</nav>{parts}</html>"
    )


def section(name: str, about: str, finding: Finding, picture: bytes) -> str:
    asked, more = about.removeprefix(f"{name}: ").split("\n", 1)
    return (
        f'<h2 id="{name}">{escape(name)}</h2><p class="soft">{escape(asked)}</p>{paragraphs(more)}'
        f'<img alt="{escape(finding.says)}" src="data:image/png;base64,{base64.b64encode(picture).decode()}">'
        f"<p>{escape(finding.says)}</p>{table(finding)}"
        f"<p>{mark(finding)} {escape(verdict(finding))}</p>"
    )


def paragraphs(text: str) -> str:
    """Of a docstring: what is indented is a formula, and keeps its lines."""
    written = []
    for block in text.strip("\n").split("\n\n"):
        words = re.sub("`(.+?)`", r"<code>\1</code>", escape(dedent(block)))
        written.append(f"<pre>{words}</pre>" if block.startswith(" ") else f"<p>{words}</p>")
    return "".join(written)


def mark(finding: Finding) -> str:
    return '<span class="holds">✓</span>' if finding.holds else '<span class="fails">✗</span>'


def verdict(finding: Finding) -> str:
    return f"{'It holds' if finding.holds else 'It does NOT hold'}: {finding.wanted}"


def table(finding: Finding) -> str:
    if not finding.table:
        return ""
    head = "".join(f"<th>{escape(name)}</th>" for name in finding.table[0])
    rows = "".join(
        f"<tr>{''.join(f'<td>{escape(number(value))}</td>' for value in row.values())}</tr>" for row in finding.table
    )
    return f'<div class="table"><table><tr>{head}</tr>{rows}</table></div>'


def number(value: str | float) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def png(finding: Finding) -> bytes:
    file = io.BytesIO()
    finding.figure.savefig(file, format="png", dpi=130)
    return file.getvalue()
