"""Texts of a request as inputs of a model: checked, cut at the context if the client wants that, and run as jobs.

Only models whose input is a text take them. A text is never the name of a file of the server.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from difflib import get_close_matches
from typing import Any, TypeVar

import msgspec
from starlette.requests import Request

from regard.data.batches import batched
from regard.data.tokenizer import Tokenizer
from regard.loaded_model import LoadedModel
from regard.modalities.protocols import Target
from regard.scheduler import Done, InputTooLong
from regard.serve.errors import INVALID, ApiError
from regard.serve.jobs import run_jobs
from regard.serve.registry import ModelRegistry, ServedModel
from regard.tasks.inference import context_of

T = TypeVar("T")

PAIRS = (Target.LABELS, Target.NUMBER)  # targets of inputs that may be two texts, separated by a tab
AT_ONCE = 64  # jobs of one request in the queue, so that a long list does not fill it


def registry_of(request: Request) -> ModelRegistry:
    registry: ModelRegistry = request.app.state.registry
    return registry


def convert_fields(values: Mapping[str, object], kind: type[T]) -> T:
    """The fields of a form or a query as a Struct."""
    try:
        return msgspec.convert(values, kind, strict=False)
    except msgspec.ValidationError as error:
        problem, _, path = str(error).partition(" - at `$")
        param = path.strip("`").strip(".")
        raise ApiError(INVALID, f"{param}: {problem}" if param else problem, param or None) from None


def nearest_name(name: str, names: Iterable[str]) -> str:
    """What to do about an unknown name."""
    near = get_close_matches(name, names, 1, 0.0)
    return f"did you mean {near[0]}?" if near else "GET /v1/models lists all"


def check_text_model(served: ServedModel) -> LoadedModel:
    """Refuse a model that reads files."""
    modality = served.loaded.modality
    if modality.file_formats:
        remedy = f"send a file to /v1/run/{served.name}"
        raise ApiError(INVALID, f"{served.name} reads {modality.unit}, not texts: {remedy}", "model", "wrong_modality")
    return served.loaded


def check_dimensions(dimensions: int | None, width: int) -> None:
    if dimensions not in (None, width):
        problem = f"the vectors of this model have {width} numbers, not {dimensions}"
        raise ApiError(INVALID, f"{problem}: leave out dimensions", "dimensions")


def make_input(loaded: LoadedModel, texts: Sequence[str], param: str) -> str:
    """One text, or two that the model compares, as `LoadedModel.generate` takes them."""
    takes_pairs = loaded.task.target in PAIRS
    if takes_pairs and any("\t" in text for text in texts):
        raise ApiError(INVALID, f"{param} contains a tab, which separates two texts: send them as a list", param)
    if len(texts) > 1 and not takes_pairs:
        raise ApiError(INVALID, f"{param} has two texts, but this model reads one: send them separately", param)
    return "\t".join(texts)


def max_tokens(loaded: LoadedModel) -> int:
    """Tokens of the longest input that the model reads as a whole; 0 without a limit."""
    tokenizer, context = loaded.task.preprocessor.tokenizer, context_of(loaded.model)
    limits = [context, getattr(loaded.task, "limit", None) or context]
    if tokenizer is not None and tokenizer.model_max_length < max(limits):
        limits.append(int(tokenizer.model_max_length))
    return min(limits)


def fit_context(loaded: LoadedModel, raw: str, truncate: bool) -> str:
    """The input, or as much of it as the model reads.

    Raises:
        InputTooLong: it has too many tokens, and `truncate` is False.
    """
    tokenizer, limit = loaded.task.preprocessor.tokenizer, max_tokens(loaded)
    if tokenizer is None or not limit:
        return raw
    texts = raw.split("\t", 1) if loaded.task.target in PAIRS else [raw]
    [ids] = tokenizer.encode([(texts[0], texts[1]) if len(texts) == 2 else raw])
    if len(ids) <= limit:
        return raw
    if not truncate:
        raise InputTooLong(len(ids), limit)
    return "\t".join(cut_texts(tokenizer, texts, limit))


def cut_texts(tokenizer: Tokenizer, texts: Sequence[str], limit: int) -> list[str]:
    """The beginnings of one or two texts that have `limit` tokens together; the longer one is cut first."""
    backend = tokenizer.backend_tokenizer
    encodings: list[Any] = [backend.encode(text, add_special_tokens=False) for text in texts]
    room = max(0, limit - backend.num_special_tokens_to_add(len(texts) == 2))
    lengths = [len(encoding.ids) for encoding in encodings]
    kept = [room] if len(texts) == 1 else [min(lengths[0], room // 2), min(lengths[1], room // 2)]
    if len(texts) == 2:
        longer = int(lengths[1] > lengths[0])
        kept[longer] = room - kept[1 - longer]
    return [
        text if count >= length else text[: encoding.offsets[count - 1][1] if count else 0]
        for text, encoding, count, length in zip(texts, encodings, kept, lengths, strict=True)
    ]


async def run_texts(
    request: Request,
    served: ServedModel,
    raws: Sequence[str],
    options: object = None,
    *,
    embed: bool = False,
    truncate: bool | None = None,
) -> list[Done]:
    """Run several inputs, some at a time.

    Args:
        truncate: cut long inputs (True) or refuse them (False); None leaves that to the scheduler.

    Raises:
        ApiError: what the client is told. ClientDisconnect: the client left.
    """
    loaded = check_text_model(served)
    if truncate is not None:
        raws = await asyncio.to_thread(lambda: [fit_context(loaded, raw, truncate) for raw in raws])
    results: list[Done] = []
    for some in batched(raws, AT_ONCE):
        results += await run_jobs(request, served, some, options, embed)
    return results
