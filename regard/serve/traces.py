"""Alignment and attention of an answer: traced forward passes of plain modules, one at a time, in a thread.

The engine records no tensors, so the trace runs on `LoadedModel.reference`. Its length is bounded: attention weights
grow with the square of the tokens.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from typing import TypeVar

from regard.loaded_model import LoadedModel
from regard.serve.errors import INVALID, ApiError, to_api_error
from regard.serve.registry import ServedModel
from regard.serve.schemas_run import AlignedWord, AttentionWeights, LineAlignment
from regard.view.alignment import align
from regard.view.attention_maps import attention_maps
from regard.view.trace import is_translator, trace_text

T = TypeVar("T")
MAX_TRACED = 256  # tokens of a traced text
MAX_WAITING = 8  # traces that wait or run; more are refused
DIGITS = 4  # of a weight
THREADS = ThreadPoolExecutor(1, thread_name_prefix="trace")
_slots = threading.BoundedSemaphore(MAX_WAITING)


async def run_trace(served: ServedModel, trace: Callable[[LoadedModel], T]) -> T:
    """The result of a function of the plain model. Hooks must not change while the scheduler runs the same modules."""
    loaded = served.loaded
    plain = LoadedModel(loaded.reference, loaded.task)
    is_shared = loaded.model is loaded.reference
    lock: AbstractContextManager[object] = served.scheduler.lock if is_shared else nullcontext()

    def locked() -> T:
        with lock:
            return trace(plain)

    if not _slots.acquire(blocking=False):
        raise ApiError(429, "too many traces wait: try again in 1 s", code="queue_full", headers={"Retry-After": "1"})
    try:
        return await asyncio.get_running_loop().run_in_executor(THREADS, locked)
    except Exception as error:
        raise to_api_error(error) from error
    finally:
        _slots.release()


def check_length(loaded: LoadedModel, *texts: str) -> None:
    """Refuse a text that is too long to trace."""
    if loaded.task.preprocessor.tokenizer is None:
        return
    for ids in loaded.task.tokenizer.encode([*texts]):
        if len(ids) > MAX_TRACED:
            message = f"a trace shows at most {MAX_TRACED} tokens, and the text has {len(ids):,}: shorten it"
            raise ApiError(413, message, code="context_length_exceeded")


def require_alignment(loaded: LoadedModel, options: object) -> None:
    """Refuse an alignment that the model cannot have, before it answers."""
    is_text = loaded.task.preprocessor.tokenizer is not None
    has_weights = any(name.endswith("cross.inner") for name, _ in loaded.reference.named_modules())
    if not is_translator(loaded.task) or not is_text or not has_weights or getattr(options, "back", False):
        needed = "a model with cross-attention that translates text forward"
        raise ApiError(INVALID, f"an alignment needs {needed}: leave out alignment", "alignment", "no_alignment")


def align_lines(loaded: LoadedModel, text: str, translation: str) -> list[LineAlignment]:
    """The word alignment of each line of a text with its translation."""
    check_length(loaded, text, translation)
    sources, targets = text.split("\n"), translation.split("\n")
    if len(sources) != len(targets):
        sources, targets = [text], [translation]
    lines, starts = [], [0, 0]
    for source, target in zip(sources, targets, strict=True):
        if source.strip() and target.strip():
            lines.append(align_line(loaded, source, target, *starts))
        starts = [starts[0] + len(source) + 1, starts[1] + len(target) + 1]
    return lines


def align_line(loaded: LoadedModel, source: str, target: str, source_start: int, target_start: int) -> LineAlignment:
    alignment = align(loaded, source, target)
    words = locate_words(alignment.source, source, source_start), locate_words(alignment.target, target, target_start)
    return LineAlignment(*words, [[round(float(x), DIGITS) for x in row] for row in alignment.weights])


def locate_words(words: list[str], text: str, start: int) -> list[AlignedWord]:
    """The words with their places in the text, which begins at `start`; special and unknown tokens have none."""
    located: list[AlignedWord] = []
    cursor, folded = 0, text.casefold()
    searchable = folded if len(folded) == len(text) else text
    for word in words:
        at = searchable.find(word.casefold() if searchable is folded else word, cursor) if word else -1
        after_gap = bool(located) and located[-1].start is None
        if at < 0 or (text[cursor:at].strip() and not after_gap):
            located.append(AlignedWord(word, None, None))
        else:
            cursor = at + len(word)
            located.append(AlignedWord(word, start + at, start + cursor))
    return located


def attention_weights(loaded: LoadedModel, text: str, target: str | None) -> list[AttentionWeights]:
    """The attention of all layers, the mean of their heads."""
    check_length(loaded, text, target or "")
    return [
        AttentionWeights(
            attention.name,
            attention.queries.tokens,
            attention.keys.tokens,
            attention.weights.mean(1).astype(float).round(DIGITS).tolist(),
        )
        for attention in attention_maps(trace_text(loaded, text, target))
    ]
