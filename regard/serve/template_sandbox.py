"""The sandbox of chat templates: jinja2 without access to Python objects, with limits on size, output and work.

A template comes with the model's files. It may not change its inputs or reach attributes of Python (jinja2's immutable
sandbox); here it may not run or grow without bound either. A trace function counts the lines that Python runs for it.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import datetime
from functools import lru_cache, wraps
from types import FrameType
from typing import Any

import jinja2
from jinja2 import nodes
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.runtime import Context
from jinja2.sandbox import ImmutableSandboxedEnvironment

MAX_TEMPLATE = 1 << 18  # characters of a template
MAX_OUTPUT = 1 << 20  # characters of a prompt
MAX_STEPS = 300_000  # lines that Python runs for one prompt
MAX_WORK = 1 << 24  # characters that one operation may make
UNBOUNDED = (
    *(
        "center",
        "wordwrap",
        "format",
        "pprint",
        "random",
        "urlize",
        "xmlattr",
        "filesizeformat",
        "slice",
        "batch",
        "attr",
    ),
)


class TemplateLimit(Exception):
    """A template is too large, or does too much."""


class TemplateRefusal(Exception):
    """A template called raise_exception: it does not accept the conversation."""


class RenderBudget:
    """What a template may still do."""

    def __init__(self) -> None:
        self.steps, self.output = MAX_STEPS, MAX_OUTPUT

    def trace(self, frame: FrameType, event: str, value: object) -> Callable[..., Any]:
        """Called by Python for every line and every return of a function."""
        self.steps -= 1
        if self.steps < 0:
            raise TemplateLimit(f"it runs more than {MAX_STEPS:,} lines")
        if event == "return" and isinstance(value, str) and len(value) > MAX_OUTPUT:
            raise TemplateLimit(f"it makes a text of more than {MAX_OUTPUT:,} characters")
        return self.trace

    def write(self, text: str) -> str:
        self.output -= len(text)
        if self.output < 0:
            raise TemplateLimit(f"its prompt has more than {MAX_OUTPUT:,} characters")
        return text


budget: ContextVar[RenderBudget] = ContextVar("budget")


@contextmanager
def limited_work() -> Iterator[RenderBudget]:
    """Limit what this thread does. A debugger or a coverage tool is suspended meanwhile."""
    before, limits = sys.gettrace(), RenderBudget()
    token = budget.set(limits)
    sys.settrace(limits.trace)
    try:
        yield limits
    finally:
        sys.settrace(before)
        budget.reset(token)


def size_of(value: object) -> int:
    """An upper bound of the characters that a value contributes to an operation."""
    if isinstance(value, bool):
        return 1
    if isinstance(value, int | float):
        return int(min(abs(value), 2.0**62)) if value == value else 1
    if isinstance(value, list | tuple):
        return sum(len(item) if isinstance(item, str) else 1 for item in value)
    return len(value) if isinstance(value, str) else 1


def check_work(values: tuple[object, ...]) -> None:
    """Refuse an operation whose result may be huge: the product of the sizes bounds it."""
    product = 1
    for value in values:
        product *= max(1, size_of(value))
    if product > MAX_WORK:
        raise TemplateLimit(f"one of its operations may make more than {MAX_WORK:,} characters")


def check_widths(pattern: str) -> None:
    """Refuse wide fields of a format, such as %999999d."""
    if re.search(r"\d{4}|%[^%]{0,9}\*", pattern):
        raise TemplateLimit("it formats a field of 1,000 characters or more")


def bounded(function: Callable[..., object]) -> Callable[..., object]:
    """A filter that refuses work without bound."""

    @wraps(function)
    def call(*args: object, **kwargs: object) -> object:
        check_work((*args, *kwargs.values()))
        return function(*args, **kwargs)

    return call


def bounded_format(owner: object, name: object, value: Any) -> Any:
    if not isinstance(owner, str) or name not in ("format", "format_map"):
        return value
    check_widths(owner)
    return bounded(value)


class TemplateEnvironment(ImmutableSandboxedEnvironment):
    """The immutable sandbox, with bounded operators, methods and filters."""

    intercepted_binops = frozenset({"*", "**", "%", "+"})

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        if operator != "+":
            check_work((left, right))
        if operator == "%" and isinstance(left, str):
            check_widths(left)
        if operator == "**" and size_of(left) ** min(size_of(right), 64) > 2**64:
            raise TemplateLimit("it computes a number above 2^64")
        result = super().call_binop(context, operator, left, right)
        check_work((result,) if isinstance(result, str | list | tuple) else ())
        return result

    def getattr(self, obj: Any, attribute: str) -> Any:
        return bounded_format(obj, attribute, super().getattr(obj, attribute))

    def getitem(self, obj: Any, argument: Any) -> Any:
        return bounded_format(obj, argument, super().getitem(obj, argument))

    def call(__self, __context: Context, __obj: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: N805
        owner = getattr(__obj, "__self__", None)
        if isinstance(owner, str):  # its methods are not Python code, which the trace would see
            check_work((owner, *args, *kwargs.values()))
        return super().call(__context, __obj, *args, **kwargs)


class GenerationBlock(Extension):
    """{% generation %}, by which templates mark the answers of the assistant for training."""

    tags = {"generation"}  # noqa: RUF012  the protocol of jinja2

    def parse(self, parser: Parser) -> list[nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


def to_json(
    value: object,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """`tojson` as chat templates expect it: without escapes for HTML."""
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def raise_exception(message: object = "") -> str:
    raise TemplateRefusal(str(message)[:300])


def format_now(pattern: str) -> str:
    return datetime.now().strftime(pattern[:100])


@jinja2.pass_context
def write_value(context: Context, value: object) -> str:
    """Counts what {{ }} writes."""
    return budget.get().write(str(value))


@lru_cache(maxsize=1)
def environment() -> TemplateEnvironment:
    made = TemplateEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[GenerationBlock, loopcontrols], finalize=write_value
    )
    for name in UNBOUNDED:
        made.filters.pop(name, None)
    made.filters = {name: bounded(function) for name, function in {**made.filters, "tojson": to_json}.items()}
    made.globals = {
        **{name: made.globals[name] for name in ("range", "dict", "namespace")},
        "raise_exception": raise_exception,
        "strftime_now": format_now,
    }
    return made


@lru_cache(maxsize=32)
def compile_template(source: str) -> jinja2.Template:
    if len(source) > MAX_TEMPLATE:
        raise TemplateLimit(f"it has {len(source):,} characters, and the limit is {MAX_TEMPLATE:,}")
    return environment().from_string(source)


def render(source: str, variables: Mapping[str, object]) -> str:
    """The text that a template makes.

    Raises:
        TemplateLimit: it is too large, or does too much. TemplateRefusal: it called raise_exception.
        jinja2.TemplateError, RecursionError, ...: it is invalid, or fails on these variables.
    """
    template = compile_template(source)
    pieces: list[str] = []
    with limited_work():
        size = 0
        for piece in template.generate(**variables):
            size += len(piece)
            if size > MAX_OUTPUT:
                raise TemplateLimit(f"its prompt has more than {MAX_OUTPUT:,} characters")
            pieces.append(piece)
    return "".join(pieces)
